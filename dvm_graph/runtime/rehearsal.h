// Keeps the run-time compiler near while shapes change.
//
// The data of a run push the compiler's code and the kernel plans out of the caches, and the first
// kernels of the next run wait for them line by line: that takes longer than compiling. So after a
// run that compiled, a core with nothing else to do compiles the same kernels once more, for
// nobody: what it reads, others get from its caches. It does so again until that gets no faster:
// once the code is there, the core still has to learn what its branches do. It stops as soon as
// there are tiles to claim, another errand, which is the next run's kernels, or a vendor library to
// leave the cores to.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "npu/device.h"
#include "runtime/kernel_table.h"
#include "vm/compile.h"

namespace dvm {

class Rehearsal final : public Errand {
 public:
  Rehearsal(Device& device, const KernelTable& table, CompilerScratch& compiler)
      : device_(device), table_(table), compiler_(compiler) {}
  ~Rehearsal();  // waits for a core that is at it
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // `kernels`: indices into KernelTable::bound. Nothing happens if a core is still at an earlier
  // one.
  void ask(std::span<const uint32_t> kernels, std::span<const int64_t> dims,
           std::span<const ValueInfo> values) noexcept;

  void run() noexcept override;

 private:
  bool compile_all();  // false: there was something else to do
  void compile(const BoundKernel& kernel);

  Device& device_;
  const KernelTable& table_;
  CompilerScratch& compiler_;
  std::mutex mutex_;  // held by who reads or writes what follows
  std::vector<uint32_t> kernels_;
  std::vector<int64_t> dims_;
  std::vector<ValueInfo> values_, arguments_;
  CompiledKernel compiled_;
};

}  // namespace dvm
