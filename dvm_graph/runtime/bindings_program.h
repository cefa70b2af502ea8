// A program as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/bindings_calls.h"
#include "runtime/bindings_tensors.h"
#include "runtime/executor.h"

namespace dvm {

namespace nb = nanobind;

// Partitions are Python callables: a list of arrays and the run's options (or None) in, a list of
// arrays out.
class PythonVendor final : public VendorLibrary {
 public:
  struct Partition {
    nb::object function;
    std::vector<char> opaque_inputs, opaque_outputs;
    std::vector<DType> outputs;
  };

  void add(Partition partition) { partitions_.push_back(std::move(partition)); }
  void run(uint32_t index, std::span<const Tensor> inputs, std::span<Tensor> outputs,
           void* context) override;

 private:
  std::vector<Partition> partitions_;
};

// Of a packed panel of this dtype.
int columns_of(nb::handle dtype, const SharedDevice& device);

class PyProgram {
 public:
  PyProgram(Model model, std::shared_ptr<SharedDevice> device, std::unique_ptr<PythonVendor> vendor,
            std::vector<nb::object> constants);

  // To be run by a control-flow operator, which has runners of its own.
  std::shared_ptr<const Executor> body() { return executor_; }

  // None stands for an absent input, or an output wanted fresh. `options` go on to partitions.
  // What the run cost goes to `record`, if there is one: then it is profiled.
  nb::list run(const nb::list& inputs, const nb::list& given, RunStatistics* record,
               const StopFlag* stop, nb::handle options);
  // On arrays by name, if that is what `feeds` are: a dict of just one for each input, of its dtype
  // and to be read where it lies. Else nothing runs, and None comes back.
  nb::object run_on(nb::handle feeds, const nb::list& given, RunStatistics* record,
                    const StopFlag* stop, nb::handle options);
  // `run_on` takes these inputs as they come, whatever they are.
  // `strings`: of inputs that are strings their rank, -1 for any; below that they are none.
  void take_as_they_come(std::vector<bool> inputs, std::vector<int> strings) {
    as_they_come_ = std::move(inputs);
    strings_ = std::move(strings);
  }
  void forget() { executor_->forget(); }
  std::map<std::string, int64_t> bind(const nb::list& inputs);

  // Kernel, the text of its programs, why it runs in this form, and the steps to there.
  std::vector<std::tuple<std::string, std::string, std::string, std::string>> disassemble(
      const std::map<std::string, int64_t>& symbols, bool steps, const Target* target) const;
  // Kernel, and the first, median and least time in nanoseconds.
  std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> compile_times(
      const std::map<std::string, int64_t>& symbols, int repeats) const;
  SimulatedModel simulate(const std::map<std::string, int64_t>& symbols, const Target& target,
                          const NpuPart& part, const SimulationRequest& request) const;

  // What a constant holds, panels as they are packed: an array over its memory, or the object.
  nb::object contents(uint32_t index) const;

  int panel_columns(nb::handle dtype) const { return columns_of(dtype, executor_->device()); }
  RunStatistics statistics() const { return executor_->statistics(); }
  int cores() const { return executor_->device().device->cores(); }
  std::string simd() const { return executor_->device().device->table().name; }
  // Of a simulated part whose flags are audited.
  FlagCounts flags() const;
  // Of a simulated part.
  std::vector<std::string> lacking() const;

 private:
  nb::list run_tensors(std::span<const Tensor> feeds, const nb::list& given, RunStatistics* record,
                       const StopFlag* stop, nb::handle options);
  // Whether `feeds` are as run_on wants them; then the tensors of the inputs.
  bool take(nb::handle feeds, std::vector<ArrayView>& arrays, std::vector<Tensor>& tensors) const;
  // False: Ctrl-C ended the run, and its handler has nothing against another one.
  bool run_once(std::span<const Tensor> feeds, std::span<const Tensor> targets, RunRequest request,
                RunStatistics* record, const StopFlag* stop, std::vector<Tensor>& results);
  // `arrays` keep what the tensors lie in.
  std::vector<Tensor> feeds_of(const nb::list& objects, std::vector<ArrayView>& arrays) const;
  // None: absent.
  std::vector<Tensor> targets_of(const nb::list& objects, std::vector<ArrayView>& arrays) const;

  const std::shared_ptr<Executor> executor_;
  std::vector<nb::object> constants_;  // keep the memory of constants alive
  std::vector<nb::object> names_;      // of inputs, as keys
  std::vector<bool> as_they_come_;     // of inputs
  std::vector<int> strings_;
};

void bind_program(nb::module_& module);
void bind_builder(nb::module_& module);

}  // namespace dvm
