// Python's way into the runtime: a builder that takes a plan apart, and the program it gives.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "npu/host/ceilings.h"
#include "npu/host/device.h"
#include "npu/host/levels.h"
#include "runtime/bindings_calls.h"
#include "runtime/bindings_plan.h"
#include "runtime/bindings_tensors.h"
#include "runtime/bindings_values.h"
#include "runtime/checksum.h"
#include "runtime/errors.h"
#include "runtime/executor.h"
#include "runtime/memory.h"
#include "runtime/panel_packing.h"
#include "vm/panels.h"

namespace nb = nanobind;

namespace dvm {
namespace {

Storage storage_from_name(const std::string& name) {
  static const char* const names[] = {"input", "output", "constant", "panels", "arena", "vendor"};
  return from_name<Storage>(names, name, "storage");
}

KernelKind kind_from_name(const std::string& name) {
  static const char* const names[] = {"vector", "cube", "mix"};
  return from_name<KernelKind>(names, name, "kernel kind");
}

template <size_t N>
nb::tuple names_of(const char* const (&names)[N]) {
  nb::list list;
  for (const char* name : names) list.append(name);
  return nb::tuple(list);
}

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
           void* context) override {
    const nb::gil_scoped_acquire lock;
    const Partition& partition = partitions_[index];
    nb::list arguments = nb::borrow<nb::list>(checked(PyList_New(0)));
    for (size_t i = 0; i < inputs.size(); i++) {
      arguments.append(partition.opaque_inputs[i] ? value_object(inputs[i], true)
                                                  : array_over(inputs[i]));
    }
    const nb::handle options = context == nullptr ? Py_None : static_cast<PyObject*>(context);
    const nb::object returned = checked(PyObject_CallFunctionObjArgs(
        partition.function.ptr(), arguments.ptr(), options.ptr(), nullptr));
    const nb::list results = nb::cast<nb::list>(returned);
    if (results.size() != outputs.size()) throw ExecutionError("a vendor result is missing");
    for (size_t i = 0; i < outputs.size(); i++) {
      nb::object result = nb::borrow(results[i]);
      if (partition.opaque_outputs[i]) {
        outputs[i] = value_keeping(std::move(result));
        continue;
      }
      ArrayView array;
      if (!array.open(result)) {
        throw ExecutionError("a vendor operator gave no contiguous array");
      }
      outputs[i] = array.tensor(partition.outputs[i]);
      outputs[i].owner = keep_alive(std::move(result));
    }
  }

 private:
  std::vector<Partition> partitions_;
};

// Of a packed panel of this dtype.
int columns_of(nb::handle dtype, const SharedDevice& device) {
  return panel_columns(dtype_from_name(take<std::string>(dtype)), device.device->target());
}

class PyProgram {
 public:
  PyProgram(Model model, std::shared_ptr<SharedDevice> device, std::unique_ptr<PythonVendor> vendor,
            std::vector<nb::object> constants)
      : executor_(
            std::make_shared<Executor>(std::move(model), std::move(device), std::move(vendor))),
        constants_(std::move(constants)) {}

  // To be run by a control-flow operator, which has runners of its own.
  std::shared_ptr<const Executor> body() { return executor_; }

  // None stands for an absent input, or an output wanted fresh. `options` go on to partitions.
  nb::list run(const nb::list& inputs, const nb::list& given, bool profile, const StopFlag* stop,
               nb::handle options) {
    Call call;
    const std::vector<uint32_t>& outputs = executor_->model().outputs;
    std::vector<ArrayView> arrays;
    arrays.reserve(inputs.size() + given.size());
    const std::vector<Tensor> feeds = tensors(inputs, executor_->model().inputs, arrays);
    const std::vector<Tensor> targets = tensors(given, outputs, arrays);
    std::vector<Tensor> results;
    void* const context = options.is_none() ? nullptr : options.ptr();
    try {
      while (!run_once(feeds, targets, {profile, nullptr, context}, stop, results)) continue;
    } catch (...) {
      call.stay_at_exit();
      throw;
    }
    nb::list list = nb::borrow<nb::list>(checked(PyList_New(0)));
    for (size_t i = 0; i < results.size(); i++) {
      const ModelValue& value = executor_->model().values[outputs[i]];
      // Tensors of a sequence may have come out as results of their own.
      const bool shares = value.opaque || value.storage == Storage::vendor;
      const bool was_given = i < targets.size() && !targets[i].absent();
      list.append(was_given ? nb::object(given[i])
                  : shares  ? value_object(results[i], false)
                            : array_over(results[i]));
    }
    return list;
  }

  void forget() { executor_->forget(); }

  std::map<std::string, int64_t> bind(const nb::list& inputs) {
    const Call call;
    std::vector<ArrayView> arrays;
    arrays.reserve(inputs.size());
    const std::vector<Tensor> feeds = tensors(inputs, executor_->model().inputs, arrays);
    const nb::gil_scoped_release unlock;
    return executor_->bind(feeds);
  }

  // Kernel, the text of its programs, why it runs in this form, and the steps to there.
  std::vector<std::tuple<std::string, std::string, std::string, std::string>> disassemble(
      const std::map<std::string, int64_t>& symbols, bool steps, const Target* target) const {
    const Call call;
    const nb::gil_scoped_release unlock;
    std::vector<std::tuple<std::string, std::string, std::string, std::string>> listings;
    for (Listing& listing : executor_->disassemble(symbols, steps, target)) {
      listings.emplace_back(std::move(listing.kernel), std::move(listing.text),
                            std::move(listing.why), std::move(listing.steps));
    }
    return listings;
  }

  // Kernel, and the first, median and least time in nanoseconds.
  std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> compile_times(
      const std::map<std::string, int64_t>& symbols, int repeats) const {
    const Call call;
    const nb::gil_scoped_release unlock;
    std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> times;
    for (const CompileTime& time : executor_->compile_times(symbols, repeats)) {
      times.emplace_back(time.kernel, time.first_ns, time.median_ns, time.least_ns);
    }
    return times;
  }

  SimulatedModel simulate(const std::map<std::string, int64_t>& symbols, const Target& target,
                          const NpuPart& part, const SimulationRequest& request) const {
    const Call call;
    const nb::gil_scoped_release unlock;
    return executor_->simulate(symbols, target, part, request);
  }

  // What a constant holds, panels as they are packed: an array over its memory, or the object.
  nb::object contents(uint32_t index) const {
    const ModelValue& value = executor_->model().values.at(index);
    if (value.contents.absent()) return nb::none();
    return value.opaque ? value_object(value.contents, true) : array_over(value.contents);
  }

  int panel_columns(nb::handle dtype) const { return columns_of(dtype, executor_->device()); }

  RunStatistics statistics() const { return executor_->statistics(); }

  int cores() const { return executor_->device().device->cores(); }
  // Of a simulated part whose flags are audited.
  FlagCounts flags() const {
    const std::shared_ptr<const SimulatedPart>& part = executor_->device().request.part;
    return part == nullptr ? FlagCounts() : part->ledger->counts();
  }
  // Of a simulated part.
  std::vector<std::string> lacking() const {
    if (executor_->device().request.part == nullptr) return {};
    return lacking_products(executor_->model());
  }
  std::string simd() const { return executor_->device().device->table().name; }

 private:
  // False: Ctrl-C ended the run, and its handler has nothing against another one.
  bool run_once(std::span<const Tensor> feeds, std::span<const Tensor> targets, RunRequest request,
                const StopFlag* stop, std::vector<Tensor>& results) {
    RunInterruption interruption(stop);
    request.interruption = &interruption;
    try {
      const nb::gil_scoped_release unlock;
      results = executor_->run(feeds, targets, request);
      return true;
    } catch (const CancelledError&) {
      if (!interruption.by_signal()) throw;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return false;
    }
  }

  std::vector<Tensor> tensors(const nb::list& objects, const std::vector<uint32_t>& values,
                              std::vector<ArrayView>& arrays) const {
    std::vector<Tensor> tensors(values.size());
    for (size_t i = 0; i < std::min(objects.size(), values.size()); i++) {
      const ModelValue& value = executor_->model().values[values[i]];
      nb::object object = nb::borrow(objects[i]);
      if (value.opaque) {
        tensors[i] = value_keeping(std::move(object));
        continue;
      }
      if (object.is_none()) continue;
      ArrayView& array = arrays.emplace_back();
      if (!array.open(object)) {
        throw InputError(value.name + " is no contiguous array of a supported dtype");
      }
      tensors[i] = array.tensor(value.dtype);
    }
    return tensors;
  }

  const std::shared_ptr<Executor> executor_;
  std::vector<nb::object> constants_;  // keep the memory of constants alive
};

// Panels that a builder made, for others of bodies that read the same constant.
struct PackedConstant {
  Tensor contents;
};

class ModelBuilder {
 public:
  ModelBuilder(int cores, nb::handle simd, int64_t local_bytes, const Machine& machine, bool spins)
      : device_(shared_device({cores, take<std::string>(simd), local_bytes, machine, spins, {}})),
        vendor_(std::make_unique<PythonVendor>()) {}

  ModelBuilder(const Target& target, const NpuPart& part, const std::string& queues,
               nb::handle simd, const Machine& machine)
      : device_(shared_device(
            {0, take<std::string>(simd), 0, machine, true,
             std::make_shared<const SimulatedPart>(target, part, queue_run_from_name(queues))})),
        vendor_(std::make_unique<PythonVendor>()) {}

  void set_dims(nb::handle symbols, nb::handle instructions) {
    using Instruction = std::tuple<std::string, int64_t, int64_t>;
    model_.dims.symbols = take<std::vector<std::string>>(symbols);
    for (const auto& [op, a, b] : take<std::vector<Instruction>>(instructions)) {
      model_.dims.instructions.push_back({dim_op_from_name(op), a, b});
    }
  }

  void add_value(nb::handle name, nb::handle dtype, nb::handle storage, nb::handle shape) {
    ModelValue value;
    value.name = take<std::string>(name);
    const auto dtype_name = take<std::string>(dtype);
    value.opaque = dtype_name == "opaque";
    value.dtype = value.opaque ? DType::u8 : dtype_from_name(dtype_name);
    value.storage = storage_from_name(take<std::string>(storage));
    value.shape = take<std::vector<DimSlot>>(shape);
    model_.values.push_back(std::move(value));
  }

  void set_constant(uint32_t index, nb::object array) {
    ModelValue& value = model_.values.at(index);
    value.contents = contiguous(array).tensor(value.dtype);
    constants_.push_back(std::move(array));
  }

  // Contents that only vendor operators and the caller look at.
  void set_object(uint32_t index, nb::object object) {
    model_.values.at(index).contents = tensor_keeping(std::move(object));
  }

  PackedConstant pack(uint32_t index, nb::handle array, nb::handle dtype, nb::handle sizes,
                      nb::handle strides, int64_t offset, bool bundles, bool transforms,
                      bool mapped) {
    using Three = std::tuple<int64_t, int64_t, int64_t>;
    const Call call;
    PanelSource source;
    const ArrayView view = contiguous(array);
    const Tensor constant = view.tensor(dtype_from_name(take<std::string>(dtype)));
    source.data = constant.data;
    source.bytes = view.bytes();
    source.dtype = constant.dtype;
    source.panels = model_.values.at(index).dtype;
    source.bundles = bundles;
    std::tie(source.batch, source.k, source.n) = take<Three>(sizes);
    std::tie(source.batch_stride, source.k_stride, source.n_stride) = take<Three>(strides);
    source.offset = offset;
    source.transforms = transforms;
    source.mapped = mapped;
    const nb::gil_scoped_release unlock;
    Tensor& contents = model_.values.at(index).contents;
    contents = pack_constant(source, device_->device->target(), device_->device->table(), store_);
    return {contents};
  }

  void set_packed(uint32_t index, const PackedConstant& packed) {
    model_.values.at(index).contents = packed.contents;
  }

  uint32_t add_kernel(nb::handle name, nb::handle kind, nb::handle extents, nb::handle nodes,
                      nb::handle accesses, nb::handle matmul_axes, bool weighed,
                      nb::handle origin) {
    ModelKernel& kernel = model_.kernels.emplace_back();
    kernel.origin = take<std::vector<std::string>>(origin);
    KernelPlan& plan = kernel.plan;
    plan.name = take<std::string>(name);
    plan.kind = kind_from_name(take<std::string>(kind));
    plan.extents = take<std::vector<DimSlot>>(extents);
    plan.nodes = take<std::vector<PlanNode>>(nodes);
    plan.accesses = take<std::vector<Access>>(accesses);
    std::tie(plan.m_axis, plan.n_axis, plan.k_axis, plan.inner_k_axis) =
        take<std::tuple<int, int, int, int>>(matmul_axes);
    plan.weighed = weighed;
    return static_cast<uint32_t>(model_.kernels.size() - 1);
  }

  uint32_t add_call(uint32_t kernel, DimSlot guard, nb::handle fallback) {
    auto calls = take<std::vector<uint32_t>>(fallback);
    if (!calls.empty()) model_.kernels.at(kernel).apart = Apart::never;
    model_.calls.push_back({kernel, guard, std::move(calls)});
    return static_cast<uint32_t>(model_.calls.size() - 1);
  }

  // Every kernel is compiled operator by operator.
  void take_apart() {
    for (ModelKernel& kernel : model_.kernels) kernel.apart = Apart::always;
  }

  void add_launch(nb::handle calls, bool follows) {
    model_.steps.emplace_back(LaunchStage{take<std::vector<uint32_t>>(calls), follows});
  }

  void add_vendor(nb::handle name, nb::object function, nb::handle from, nb::handle to) {
    auto inputs = take<std::vector<uint32_t>>(from), outputs = take<std::vector<uint32_t>>(to);
    PythonVendor::Partition partition;
    partition.function = std::move(function);
    for (const uint32_t value : inputs) {
      partition.opaque_inputs.push_back(model_.values.at(value).opaque);
    }
    for (const uint32_t value : outputs) {
      partition.opaque_outputs.push_back(model_.values.at(value).opaque);
      partition.outputs.push_back(model_.values.at(value).dtype);
    }
    vendor_->add(std::move(partition));
    model_.steps.emplace_back(VendorCall{
        {std::move(inputs), std::move(outputs), take<std::string>(name)}, partitions_++});
  }

  // `bodies`: programs, and their symbols with the slots that they equal. `turns`: none where the
  // bodies are branches, else the fields of ControlCall from `counted` on.
  void add_control(nb::handle name, nb::handle bodies, nb::handle from, nb::handle to,
                   nb::handle turns, DimSlot strands) {
    ControlCall call{{take<std::vector<uint32_t>>(from), take<std::vector<uint32_t>>(to),
                      take<std::string>(name)}};
    const Py_ssize_t count = PySequence_Size(bodies.ptr());
    for (Py_ssize_t i = 0; i < count; i++) {
      const nb::object pair = checked(PySequence_GetItem(bodies.ptr(), i));
      nb::object program = checked(PySequence_GetItem(pair.ptr(), 0));
      const nb::object dims = checked(PySequence_GetItem(pair.ptr(), 1));
      call.bodies.push_back({nb::cast<PyProgram&>(program).body(),
                             take<std::vector<std::pair<uint32_t, DimSlot>>>(dims)});
      constants_.push_back(std::move(program));  // which keeps the contents of its constants
    }
    call.branches = turns.is_none();
    if (!call.branches) {
      using Turns =
          std::tuple<bool, int32_t, int32_t, uint32_t, std::vector<bool>, std::vector<bool>>;
      const auto [counted, most_turns, goes_on, states, scanned, collected] = take<Turns>(turns);
      call.counted = counted;
      call.most_turns = most_turns;
      call.goes_on = goes_on;
      call.states = states;
      call.scanned.assign(scanned.begin(), scanned.end());
      call.collected.assign(collected.begin(), collected.end());
      call.strands = strands;
    }
    model_.steps.emplace_back(std::move(call));
  }

  // `given`, `wanted`: of each operand and result of the operator, whether it is among the inputs
  // and outputs.
  void add_host(nb::handle name, nb::handle op, nb::handle arguments, nb::handle from,
                nb::handle to, nb::handle given, nb::handle wanted) {
    HostCall call{{take<std::vector<uint32_t>>(from), take<std::vector<uint32_t>>(to),
                   take<std::string>(name)}};
    call.function = find_host_function(take<std::string>(op));
    call.arguments = take<std::vector<int64_t>>(arguments);
    const auto givens = take<std::vector<bool>>(given), wants = take<std::vector<bool>>(wanted);
    call.given.assign(givens.begin(), givens.end());
    call.wanted.assign(wants.begin(), wants.end());
    model_.steps.emplace_back(std::move(call));
  }

  void add_dims_write(uint32_t value, nb::handle slots) {
    model_.steps.emplace_back(DimsWrite{value, take<std::vector<DimSlot>>(slots)});
  }

  void add_binding(uint32_t symbol, uint32_t value, uint32_t axis, int64_t scale, int64_t shift) {
    model_.bindings.push_back({symbol, value, axis, scale, shift});
  }

  void add_check(DimSlot condition, nb::handle message) {
    model_.checks.push_back({condition, take<std::string>(message)});
  }

  void set_ports(nb::handle inputs, nb::handle outputs) {
    model_.inputs = take<std::vector<uint32_t>>(inputs);
    model_.outputs = take<std::vector<uint32_t>>(outputs);
  }

  // The builder is spent afterwards.
  std::unique_ptr<PyProgram> finish() {
    return std::make_unique<PyProgram>(std::move(model_), device_, std::move(vendor_),
                                       std::move(constants_));
  }

  int cores() const { return device_->device->cores(); }

  int panel_columns(nb::handle dtype) const { return columns_of(dtype, *device_); }

 private:
  static ArrayView contiguous(nb::handle array) {
    ArrayView view;
    if (!view.open(array)) throw CompileError("a constant is no contiguous array");
    return view;
  }

  std::shared_ptr<SharedDevice> device_;
  std::unique_ptr<PythonVendor> vendor_;
  Model model_;
  Store store_;  // of packed weights
  std::vector<nb::object> constants_;
  uint32_t partitions_ = 0;
};

nb::bytes checksums_of(nb::handle contents, size_t block, int threads) {
  ArrayView view;
  if (block == 0 || !view.open(contents)) throw InputError("checksums are of contiguous arrays");
  std::vector<uint32_t> sums;
  {
    const nb::gil_scoped_release unlock;
    sums = checksums(view.raw(), block, threads);
  }
  return nb::bytes(sums.data(), sums.size() * sizeof sums[0]);
}

// Raises the Python namesake of a runtime error.
void translate_error(const std::exception_ptr& exception, void*) {
  const auto raise = [](const char* name, const std::exception& error) {
    const nb::object type = nb::module_::import_("dvm_graph.errors").attr(name);
    PyErr_SetString(type.ptr(), error.what());
  };
  try {
    std::rethrow_exception(exception);
  } catch (const InputError& error) {
    raise("InputError", error);
  } catch (const ContradictionError& error) {
    raise("ContradictionError", error);
  } catch (const ShapeError& error) {
    raise("ShapeError", error);
  } catch (const OutOfMemoryError& error) {
    raise("OutOfMemoryError", error);
  } catch (const std::bad_alloc&) {
    raise("OutOfMemoryError", OutOfMemoryError("memory ran out"));
  } catch (const CancelledError& error) {
    raise("CancelledError", error);
  } catch (const ExecutionError& error) {
    raise("ExecutionError", error);
  } catch (const CompileError& error) {
    raise("CompileError", error);
  }
}

void bind_statistics(nb::module_& module) {
  nb::class_<RunStatistics>(module, "RunStatistics")
      .def_ro("run_ns", &RunStatistics::run_ns)
      .def_ro("compile_ns", &RunStatistics::compile_ns)
      .def_ro("max_compile_ns", &RunStatistics::max_compile_ns)
      .def_ro("kernels_compiled", &RunStatistics::kernels_compiled)
      .def_ro("kernels_launched", &RunStatistics::kernels_launched)
      .def_ro("fallbacks", &RunStatistics::fallbacks)
      .def_ro("arena_bytes", &RunStatistics::arena_bytes)
      .def_prop_ro("profile", [](const RunStatistics& statistics) {
        return statistics.profile ? nb::cast(*statistics.profile) : nb::none();
      });
}

void bind_flags(nb::module_& module) {
  nb::class_<FlagCounts>(module, "FlagCounts", "See npu/simulator/flag_audit.h.")
      .def_ro("waits", &FlagCounts::waits)
      .def_ro("unbalanced", &FlagCounts::unbalanced)
      .def_ro("unordered", &FlagCounts::unordered)
      .def_ro("seen", &FlagCounts::seen)
      .def_ro("mistaken", &FlagCounts::mistaken);
}

void bind_profile(nb::module_& module) {
  nb::class_<InstructionProfile>(module, "InstructionProfile")
      .def_ro("family", &InstructionProfile::family)
      .def_ro("unit", &InstructionProfile::unit)
      .def_ro("count", &InstructionProfile::count)
      .def_ro("ns", &InstructionProfile::ns);
  nb::class_<KernelProfile>(module, "KernelProfile")
      .def_ro("name", &KernelProfile::name)
      .def_ro("kind", &KernelProfile::kind)
      .def_ro("origin", &KernelProfile::origin)
      .def_ro("fallback", &KernelProfile::fallback)
      .def_ro("launches", &KernelProfile::launches)
      .def_ro("programs", &KernelProfile::programs)
      .def_ro("tiles", &KernelProfile::tiles)
      .def_prop_ro("matmul_flops", [](const KernelProfile& k) { return k.work.matmul_flops; })
      .def_prop_ro("vector_flops", [](const KernelProfile& k) { return k.work.vector_flops; })
      .def_prop_ro("read_bytes", [](const KernelProfile& k) { return k.work.read_bytes; })
      .def_prop_ro("written_bytes", [](const KernelProfile& k) { return k.work.written_bytes; })
      .def_ro("instructions", &KernelProfile::instructions);
  nb::class_<KernelSpan>(module, "KernelSpan")
      .def_ro("core", &KernelSpan::core)
      .def_ro("kernel", &KernelSpan::kernel)
      .def_ro("start_ns", &KernelSpan::start_ns)
      .def_ro("end_ns", &KernelSpan::end_ns)
      .def_ro("tiles", &KernelSpan::tiles);
  nb::class_<CompileSpan>(module, "CompileSpan")
      .def_ro("kernel", &CompileSpan::kernel)
      .def_ro("start_ns", &CompileSpan::start_ns)
      .def_ro("end_ns", &CompileSpan::end_ns);
  nb::class_<HostSpan>(module, "HostSpan")
      .def_ro("category", &HostSpan::category)
      .def_ro("name", &HostSpan::name)
      .def_ro("start_ns", &HostSpan::start_ns)
      .def_ro("end_ns", &HostSpan::end_ns);
  nb::class_<RunProfile>(module, "RunProfile")
      .def_ro("run_ns", &RunProfile::run_ns)
      .def_ro("kernels", &RunProfile::kernels)
      .def_ro("spans", &RunProfile::spans)
      .def_ro("compilations", &RunProfile::compilations)
      .def_ro("host", &RunProfile::host);
}

}  // namespace

void bind_runtime(nb::module_& module) {
  nb::register_exception_translator(translate_error);
  bind_profile(module);
  bind_statistics(module);
  bind_flags(module);
  nb::class_<StopFlag>(module, "StopFlag")
      .def(nb::init<>())
      .def_prop_rw(
          "set", [](const StopFlag& flag) { return flag.set.load(); },
          [](StopFlag& flag, bool set) { flag.set.store(set); });
  module.def("end_calls", &end_calls, nb::arg("seconds"),
             "Ends the calls of other threads, before the interpreter shuts down.");
  module.attr("NODE_FIELDS") = names_of(kNodeFields);
  module.attr("ACCESS_FIELDS") = names_of(kAccessFields);
  module.attr("WINDOW_SIZES") = names_of(kWindowFields);
  module.def("available_cores", &available_cores);
  module.def("available_memory", &available_memory);
  module.def("checksums", &checksums_of, nb::arg("contents"), nb::arg("block"), nb::arg("threads"),
             "CRC-32C of each block of an array's bytes, one behind the other.");
  nb::class_<PyProgram>(module, "Program")
      .def("run", &PyProgram::run, nb::arg("inputs"), nb::arg("given"), nb::arg("profile"),
           nb::arg("stop").none() = nb::none(), nb::arg("options").none() = nb::none())
      .def("forget", &PyProgram::forget)
      .def("bind", &PyProgram::bind, nb::arg("inputs"))
      .def("disassemble", &PyProgram::disassemble, nb::arg("symbols"), nb::arg("steps"),
           nb::arg("target").none())
      .def("compile_times", &PyProgram::compile_times, nb::arg("symbols"), nb::arg("repeats"))
      .def(
          "simulate",
          [](const PyProgram& program, const std::map<std::string, int64_t>& symbols,
             const Target& target, const NpuPart& part, bool cold_cache, bool side_by_side,
             bool stacked, int64_t launch_kernels, size_t most_spans, int compile_repeats) {
            return program.simulate(
                symbols, target, part,
                {cold_cache, side_by_side, stacked, launch_kernels, most_spans, compile_repeats});
          },
          nb::arg("symbols"), nb::arg("target"), nb::arg("part"), nb::arg("cold_cache"),
          nb::arg("side_by_side"), nb::arg("stacked"), nb::arg("launch_kernels"),
          nb::arg("most_spans"), nb::arg("compile_repeats"))
      .def("contents", &PyProgram::contents, nb::arg("value"))
      .def("panel_columns", &PyProgram::panel_columns, nb::arg("dtype"))
      .def_prop_ro("statistics", &PyProgram::statistics)
      .def_prop_ro("cores", &PyProgram::cores)
      .def_prop_ro("flags", &PyProgram::flags)
      .def_prop_ro("lacking", &PyProgram::lacking)
      .def_prop_ro("simd", &PyProgram::simd);
  nb::class_<PackedConstant>(module, "PackedConstant");
  nb::class_<ModelBuilder>(module, "ModelBuilder")
      .def(nb::init<int, nb::handle, int64_t, const Machine&, bool>(), nb::arg("cores"),
           nb::arg("simd"), nb::arg("local_bytes"), nb::arg("machine"), nb::arg("spins"))
      .def(
          nb::init<const Target&, const NpuPart&, const std::string&, nb::handle, const Machine&>(),
          nb::arg("target"), nb::arg("part"), nb::arg("queues"), nb::arg("simd"),
          nb::arg("machine"))
      .def_prop_ro("cores", &ModelBuilder::cores)
      .def("panel_columns", &ModelBuilder::panel_columns, nb::arg("dtype"))
      .def("set_dims", &ModelBuilder::set_dims, nb::arg("symbols"), nb::arg("instructions"))
      .def("add_value", &ModelBuilder::add_value, nb::arg("name"), nb::arg("dtype"),
           nb::arg("storage"), nb::arg("shape"))
      .def("set_constant", &ModelBuilder::set_constant, nb::arg("value"), nb::arg("array"))
      .def("set_object", &ModelBuilder::set_object, nb::arg("value"), nb::arg("contents"))
      .def("pack", &ModelBuilder::pack, nb::arg("value"), nb::arg("array"), nb::arg("dtype"),
           nb::arg("sizes"), nb::arg("strides"), nb::arg("offset"), nb::arg("bundles"),
           nb::arg("transforms"), nb::arg("mapped"))
      .def("set_packed", &ModelBuilder::set_packed, nb::arg("value"), nb::arg("packed"))
      .def("add_kernel", &ModelBuilder::add_kernel, nb::arg("name"), nb::arg("kind"),
           nb::arg("extents"), nb::arg("nodes"), nb::arg("accesses"), nb::arg("matmul_axes"),
           nb::arg("weighed"), nb::arg("origin"))
      .def("add_call", &ModelBuilder::add_call, nb::arg("kernel"), nb::arg("guard"),
           nb::arg("fallback"))
      .def("take_apart", &ModelBuilder::take_apart)
      .def("add_launch", &ModelBuilder::add_launch, nb::arg("calls"), nb::arg("follows"))
      .def("add_vendor", &ModelBuilder::add_vendor, nb::arg("name"), nb::arg("function"),
           nb::arg("inputs"), nb::arg("outputs"))
      .def("add_control", &ModelBuilder::add_control, nb::arg("name"), nb::arg("bodies"),
           nb::arg("inputs"), nb::arg("outputs"), nb::arg("turns").none(), nb::arg("strands"))
      .def("add_host", &ModelBuilder::add_host, nb::arg("name"), nb::arg("op"),
           nb::arg("arguments"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("given"),
           nb::arg("wanted"))
      .def("add_dims_write", &ModelBuilder::add_dims_write, nb::arg("value"), nb::arg("slots"))
      .def("add_binding", &ModelBuilder::add_binding, nb::arg("symbol"), nb::arg("value"),
           nb::arg("axis"), nb::arg("scale"), nb::arg("shift"))
      .def("add_check", &ModelBuilder::add_check, nb::arg("condition"), nb::arg("message"))
      .def("set_ports", &ModelBuilder::set_ports, nb::arg("inputs"), nb::arg("outputs"))
      .def("finish", &ModelBuilder::finish);
  module.def(
      "simd_levels",
      [] {
        std::vector<std::string> names;
        for (const Level& level : available_levels()) names.emplace_back(level.table->name);
        return names;
      },
      "Instruction-set levels of the host device on this machine, best first.");
  module.def(
      "built_levels",
      [] { return std::vector<std::string>(built_levels().begin(), built_levels().end()); },
      "Those that this build has code for, whether this machine runs them or not.");
  module.def(
      "bf16_levels",
      [] {
        std::vector<std::string> names;
        for (const Level& level : available_levels()) {
          if (level.table->multiplies_bf16) names.emplace_back(level.table->name);
        }
        return names;
      },
      "Those of them with which this machine multiplies bf16 faster than f32.");
  nb::class_<CeilingMeter>(module, "CeilingMeter", "See npu/host/ceilings.h.")
      .def(
          "__init__",
          [](CeilingMeter* meter, int cores, const std::string& simd) {
            const InstructionTable* const table = table_by_name(simd);
            if (table == nullptr || cores <= 0) {
              throw nb::value_error("cores must be positive, and the level one of simd_levels()");
            }
            new (meter) CeilingMeter(cores, *table);
          },
          nb::arg("cores"), nb::arg("simd"))
      .def(
          "measure",
          [](CeilingMeter& meter) {
            const nb::gil_scoped_release unlock;
            const Ceilings found = meter.measure();
            return std::tuple{found.flops, found.copy_bytes, found.read_bytes};
          },
          "FLOP/s, copied bytes/s and read bytes/s.");
}

}  // namespace dvm
