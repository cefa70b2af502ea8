// What Python asks of a program, and what it gets back.
#include "runtime/bindings_program.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "runtime/bindings_calls.h"
#include "runtime/bindings_plan.h"
#include "runtime/errors.h"
#include "vm/panels.h"

namespace dvm {
namespace {

void bind_statistics(nb::module_& module) {
  nb::class_<RunStatistics>(module, "RunStatistics")
      .def(nb::init<>())
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

// A tensor where an array lies.
Tensor tensor_over(nb::handle object, const ModelValue& value, std::vector<ArrayView>& arrays) {
  ArrayView& array = arrays.emplace_back();
  if (!array.open(object)) {
    throw InputError(value.name + " is no contiguous array of a supported dtype");
  }
  return array.tensor(value.dtype);
}

// As keys are, which most dicts find by where they lie.
nb::object interned(const std::string& name) {
  const auto bytes = static_cast<Py_ssize_t>(name.size());
  PyObject* key = checked(PyUnicode_FromStringAndSize(name.data(), bytes)).release().ptr();
  PyUnicode_InternInPlace(&key);
  return nb::steal(key);
}

// An array of objects, of text or of bytes, of a rank, or of any if that is below 0.
bool are_strings(nb::handle feed, const Tensor& tensor, int rank) {
  if (tensor.kind != ValueKind::object) return false;
  if (tensor.data != nullptr) return rank < 0 || tensor.shape.size() == static_cast<size_t>(rank);
  if (!is_array(feed)) return false;
  const auto kind = nb::cast<std::string>(feed.attr("dtype").attr("kind"));
  if (kind != "O" && kind != "U" && kind != "S") return false;
  return rank < 0 || nb::cast<int>(feed.attr("ndim")) == rank;
}

}  // namespace

void PythonVendor::run(uint32_t index, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                       void* context) {
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

int columns_of(nb::handle dtype, const SharedDevice& device) {
  return panel_columns(dtype_from_name(take<std::string>(dtype)), device.device->target());
}

PyProgram::PyProgram(Model model, std::shared_ptr<SharedDevice> device,
                     std::unique_ptr<PythonVendor> vendor, std::vector<nb::object> constants)
    : executor_(std::make_shared<Executor>(std::move(model), std::move(device), std::move(vendor))),
      constants_(std::move(constants)) {
  for (const uint32_t input : executor_->model().inputs) {
    const std::string& name = executor_->model().values[input].name;
    names_.push_back(interned(name));
  }
  as_they_come_.resize(names_.size());
  strings_.resize(names_.size(), -2);
}

nb::list PyProgram::run(const nb::list& inputs, const nb::list& given, RunStatistics* record,
                        const StopFlag* stop, nb::handle options) {
  std::vector<ArrayView> arrays;
  arrays.reserve(inputs.size());
  const std::vector<Tensor> feeds = feeds_of(inputs, arrays);
  return run_tensors(feeds, given, record, stop, options);
}

nb::object PyProgram::run_on(nb::handle feeds, const nb::list& given, RunStatistics* record,
                             const StopFlag* stop, nb::handle options) {
  std::vector<ArrayView> arrays;
  std::vector<Tensor> tensors;
  if (!take(feeds, arrays, tensors)) return nb::none();
  return run_tensors(tensors, given, record, stop, options);
}

bool PyProgram::take(nb::handle feeds, std::vector<ArrayView>& arrays,
                     std::vector<Tensor>& tensors) const {
  if (!PyDict_CheckExact(feeds.ptr())) return false;
  if (static_cast<size_t>(PyDict_Size(feeds.ptr())) != names_.size()) return false;
  arrays.reserve(names_.size());
  tensors.reserve(names_.size());
  for (size_t i = 0; i < names_.size(); i++) {
    const ModelValue& value = executor_->model().values[executor_->model().inputs[i]];
    const nb::handle feed = PyDict_GetItemWithError(feeds.ptr(), names_[i].ptr());
    if (!feed.is_valid() && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (!feed.is_valid()) return false;
    if (as_they_come_[i]) {
      tensors.push_back(value_keeping(nb::borrow(feed)));
      if (strings_[i] >= -1 && !are_strings(feed, tensors.back(), strings_[i])) return false;
      continue;
    }
    if (value.opaque || !is_array(feed)) return false;
    ArrayView& array = arrays.emplace_back();
    std::optional<Tensor> tensor;
    if (array.open(feed)) tensor = array.known_tensor(value.dtype);
    if (!tensor || tensor->dtype != value.dtype || value.dtype == DType::bf16) return false;
    if (reinterpret_cast<uintptr_t>(tensor->data) % size_of(value.dtype) != 0) return false;
    tensors.push_back(*std::move(tensor));
  }
  return true;
}

nb::list PyProgram::run_tensors(std::span<const Tensor> feeds, const nb::list& given,
                                RunStatistics* record, const StopFlag* stop, nb::handle options) {
  Call call;
  const std::vector<uint32_t>& outputs = executor_->model().outputs;
  std::vector<ArrayView> arrays;
  arrays.reserve(given.size());
  const std::vector<Tensor> targets = targets_of(given, arrays);
  std::vector<Tensor> results;
  void* const context = options.is_none() ? nullptr : options.ptr();
  try {
    while (!run_once(feeds, targets, {record != nullptr, nullptr, context}, record, stop, results))
      continue;
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

std::map<std::string, int64_t> PyProgram::bind(const nb::list& inputs) {
  const Call call;
  std::vector<ArrayView> arrays;
  arrays.reserve(inputs.size());
  const std::vector<Tensor> feeds = feeds_of(inputs, arrays);
  const nb::gil_scoped_release unlock;
  return executor_->bind(feeds);
}

std::vector<std::tuple<std::string, std::string, std::string, std::string>> PyProgram::disassemble(
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

std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> PyProgram::compile_times(
    const std::map<std::string, int64_t>& symbols, int repeats) const {
  const Call call;
  const nb::gil_scoped_release unlock;
  std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> times;
  for (const CompileTime& time : executor_->compile_times(symbols, repeats)) {
    times.emplace_back(time.kernel, time.first_ns, time.median_ns, time.least_ns);
  }
  return times;
}

SimulatedModel PyProgram::simulate(const std::map<std::string, int64_t>& symbols,
                                   const Target& target, const NpuPart& part,
                                   const SimulationRequest& request) const {
  const Call call;
  const nb::gil_scoped_release unlock;
  return executor_->simulate(symbols, target, part, request);
}

nb::object PyProgram::contents(uint32_t index) const {
  const ModelValue& value = executor_->model().values.at(index);
  if (value.contents.absent()) return nb::none();
  return value.opaque ? value_object(value.contents, true) : array_over(value.contents);
}

FlagCounts PyProgram::flags() const {
  const std::shared_ptr<const SimulatedPart>& part = executor_->device().request.part;
  return part == nullptr ? FlagCounts() : part->ledger->counts();
}

std::vector<std::string> PyProgram::lacking() const {
  if (executor_->device().request.part == nullptr) return {};
  return lacking_products(executor_->model());
}

bool PyProgram::run_once(std::span<const Tensor> feeds, std::span<const Tensor> targets,
                         RunRequest request, RunStatistics* record, const StopFlag* stop,
                         std::vector<Tensor>& results) {
  RunInterruption interruption(stop);
  request.interruption = &interruption;
  try {
    const nb::gil_scoped_release unlock;
    results = executor_->run(feeds, targets, request, record);
    return true;
  } catch (const CancelledError&) {
    if (!interruption.by_signal()) throw;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return false;
  }
}

std::vector<Tensor> PyProgram::feeds_of(const nb::list& objects,
                                        std::vector<ArrayView>& arrays) const {
  const Model& model = executor_->model();
  std::vector<Tensor> feeds(model.inputs.size());
  for (size_t i = 0; i < std::min(objects.size(), feeds.size()); i++) {
    const ModelValue& value = model.values[model.inputs[i]];
    nb::object object = nb::borrow(objects[i]);
    if (value.opaque) {  // of which None is one
      feeds[i] = value_keeping(std::move(object));
    } else if (!object.is_none()) {
      feeds[i] = tensor_over(object, value, arrays);
    }
  }
  return feeds;
}

std::vector<Tensor> PyProgram::targets_of(const nb::list& objects,
                                          std::vector<ArrayView>& arrays) const {
  const Model& model = executor_->model();
  std::vector<Tensor> targets(model.outputs.size());
  for (size_t i = 0; i < std::min(objects.size(), targets.size()); i++) {
    const nb::object object = nb::borrow(objects[i]);
    if (object.is_none()) continue;
    targets[i] = tensor_over(object, model.values[model.outputs[i]], arrays);
  }
  return targets;
}

void bind_program(nb::module_& module) {
  bind_profile(module);
  bind_statistics(module);
  bind_flags(module);
  nb::class_<PyProgram>(module, "Program")
      .def("run", &PyProgram::run, nb::arg("inputs"), nb::arg("given"), nb::arg("record").none(),
           nb::arg("stop").none() = nb::none(), nb::arg("options").none() = nb::none())
      .def("run_on", &PyProgram::run_on, nb::arg("feeds").none(), nb::arg("given"),
           nb::arg("record").none(), nb::arg("stop").none(), nb::arg("options").none())
      .def("take_as_they_come", &PyProgram::take_as_they_come, nb::arg("inputs"),
           nb::arg("strings"))
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
}

}  // namespace dvm
