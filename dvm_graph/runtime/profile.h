// Where the time of one run went: a record that grows while the run goes on.
//
// Times are nanoseconds since the start of the run. A kernel is known by the call that launched it;
// those in the bodies of control flow are named with the body they are in, and what ran several
// times is told as one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "npu/device.h"
#include "runtime/dims.h"
#include "runtime/model.h"
#include "runtime/work.h"
#include "vm/compile.h"

namespace dvm {

struct InstructionProfile {
  std::string family, unit;  // of the instruction table; moving between tiles: "tiles", "scalar"
  int64_t count = 0;
  int64_t ns = 0;  // over all cores
};

struct KernelProfile {
  std::string name, kind;
  std::vector<std::string> origin;  // names of ONNX nodes
  bool fallback = false;
  int64_t launches = 0;
  int64_t programs = 0;
  int64_t tiles = 0;  // of all programs
  KernelWork work;    // of all launches, as are programs, tiles and instructions
  std::vector<InstructionProfile> instructions;
};

// A kernel's work on a core, without a pause in which the core did something else.
struct KernelSpan {
  int32_t core = 0;
  uint32_t kernel = 0;  // index in RunProfile::kernels
  int64_t start_ns = 0, end_ns = 0;
  int64_t tiles = 0;
};

// On whichever core.
struct CompileSpan {
  uint32_t kernel = 0;
  int64_t start_ns = 0, end_ns = 0;
};

// What the calling thread was at: "bind" and "memory" ahead of a segment, "stage" from the first of
// its launches to the last, "vendor", "host",
// "control", in which lie those of the bodies.
struct HostSpan {
  std::string category, name;
  int64_t start_ns = 0, end_ns = 0;
};

struct RunProfile {
  int64_t run_ns = 0;
  std::vector<KernelProfile> kernels;  // those launched
  std::vector<KernelSpan> spans;
  std::vector<CompileSpan> compilations;
  std::vector<HostSpan> host;
};

class Profiler {
 public:
  Profiler(const Model& model, int cores, int64_t start_ns);

  // What the device records into while launches of this run have it; tags are calls.
  std::span<CoreRecord> records() { return records_; }

  void compiled(uint32_t call, int64_t start_ns, int64_t elapsed_ns) noexcept;
  void launched(uint32_t call, const CompiledKernel& kernel, const Dims& dims,
                const ValueInfo* values, int64_t times);
  // Of the run of a body that began then.
  void include(const RunProfile& body, int64_t start_ns, const std::string& within);
  void did(std::string category, std::string name, int64_t start_ns);

  RunProfile finish();

 private:
  struct Compilation {
    int64_t start_ns = 0, elapsed_ns = 0;
  };

  uint32_t included(const KernelProfile& kernel, std::string name);
  void add_instructions(uint32_t call, double ns_per_tick, KernelProfile& kernel) const;

  const Model& model_;
  const int64_t start_ns_;
  const uint64_t start_ticks_;
  std::vector<CoreRecord> records_;
  std::vector<char> fallback_;                          // by call: stands in for another one
  std::vector<int32_t> kernels_;                        // by call: index in profile_.kernels, or -1
  std::vector<Compilation> compilations_;               // by call
  std::unordered_map<std::string, uint32_t> included_;  // kernels of bodies, by name
  RunProfile profile_;
};

}  // namespace dvm
