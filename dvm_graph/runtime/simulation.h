// A model on a simulated part, for given symbols and without data: its kernels compiled for the
// part as for any device, and the time of each stage. Host and device time are put together by who
// reads this.
#pragma once

#include <string>
#include <vector>

#include "npu/simulator/part.h"
#include "npu/simulator/stage_timing.h"
#include "runtime/model.h"
#include "vm/target.h"

namespace dvm {

struct SimulationRequest {
  bool cold_cache = true;    // else the shared cache holds what a run before left there
  bool side_by_side = true;  // kernels of a stage; else one after the other, each a launch
  bool stacked = true;       // stages that follow each other are one launch; else each is
  // A launch ends where more kernels would have to be compiled for it: the device begins early.
  int64_t launch_kernels = 0;  // 0: however many
  size_t most_spans = 0;       // of the trace of a stage
  int compile_repeats = 0;     // measure how long kernels take to compile, so often; 0: do not
};

// What a core does of a stage: tiles [begin, end) of its programs, in this order. Of a pair that
// of the cube unit, with whose groups its lanes go.
struct SimulatedCore {
  struct Part {
    uint32_t program = 0;
    int64_t begin = 0, end = 0;
  };

  bool cube = false;
  int64_t number = 0;  // among the cores of its kind
  std::vector<Part> parts;
};

// Kernels that run side by side, or one stage of them.
struct SimulatedStage {
  std::vector<std::string> kernels;  // one for each program
  std::vector<std::string> kinds;
  std::vector<std::string> origins;  // ONNX nodes, by kernel
  std::vector<int64_t> tiles;
  std::vector<std::string> lacking;  // by program: why it runs as on a core with one local memory
  bool fallback = false;             // one of them stands in for another kernel
  int64_t compiled = 0;              // kernels that are first met here
  double compile_seconds = 0;        // of these, measured
  double flops = 0, vector_flops = 0, bytes = 0;  // what there is to do, however it is tiled
  std::vector<SimulatedCore> cores;               // that have something to do
  StageTiming timing;
};

// What the host hands to the device at once: the program of a kernel, or a stacked one.
struct SimulatedLaunch {
  std::vector<SimulatedStage> stages;
  int64_t words = 0;         // of its program, 64 bits each
  int64_t programs = 0;      // that it is made of and that differ
  double stack_seconds = 0;  // to deal out their tiles and stack them, measured
};

struct SimulatedModel {
  std::vector<SimulatedLaunch> launches;
  std::vector<std::string> vendor_calls;  // whose time nobody knows
};

// Throws InputError where a dim is not given, CompileError, ShapeError.
SimulatedModel simulate_model(const Model& model, const Dims& dims, const Target& target,
                              const NpuPart& part, const SimulationRequest& request);

// Kernels whose products a part's cube unit does not have, and what it lacks: "k3_conv: patches of
// an image".
std::vector<std::string> lacking_products(const Model& model);

}  // namespace dvm
