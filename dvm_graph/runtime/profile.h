// Where the time of one run went: a record that grows while the run goes on.
//
// Times are nanoseconds since the start of the run. A kernel is known by the call that launched it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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
  int32_t programs = 0;
  int64_t tiles = 0;  // of all programs
  KernelWork work;
  int64_t compile_start_ns = 0, compile_ns = 0;  // 0: programs made earlier served
  std::vector<InstructionProfile> instructions;
};

// A kernel's work on a core, without a pause in which the core did something else.
struct KernelSpan {
  int32_t core = 0;
  uint32_t kernel = 0;  // index in RunProfile::kernels
  int64_t start_ns = 0, end_ns = 0;
  int64_t tiles = 0;
};

// What the calling thread was at: "bind" and "memory" ahead of a segment, "stage" from the first of
// its launches to the last, "vendor".
struct HostSpan {
  std::string category, name;
  int64_t start_ns = 0, end_ns = 0;
};

struct RunProfile {
  int64_t run_ns = 0;
  std::vector<KernelProfile> kernels;  // those launched, in the order of launches
  std::vector<KernelSpan> spans;       // core by core, in the order of time
  std::vector<HostSpan> host;          // in the order of time
};

class Profiler {
 public:
  Profiler(const Model& model, int cores, int64_t start_ns);

  // What the device records into while launches of this run have it; tags are calls.
  std::span<CoreRecord> records() { return records_; }

  void compiled(uint32_t call, int64_t start_ns, int64_t elapsed_ns);
  void launched(uint32_t call, const CompiledKernel& kernel, const Dims& dims,
                const ValueInfo* values);
  void did(std::string category, std::string name, int64_t start_ns);

  RunProfile finish();

 private:
  struct Compilation {
    int64_t start_ns = 0, elapsed_ns = 0;
  };

  void add_instructions(uint32_t call, double ns_per_tick, KernelProfile& kernel) const;

  const Model& model_;
  const int64_t start_ns_;
  const uint64_t start_ticks_;
  std::vector<CoreRecord> records_;
  std::vector<char> fallback_;             // by call: stands in for another one
  std::vector<Compilation> compilations_;  // by call
  std::vector<uint32_t> calls_;            // of profile_.kernels
  RunProfile profile_;
};

}  // namespace dvm
