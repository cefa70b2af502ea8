// The builder that takes a plan apart, call by call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/bindings_calls.h"
#include "runtime/bindings_plan.h"
#include "runtime/bindings_program.h"
#include "runtime/bindings_tensors.h"
#include "runtime/bindings_values.h"
#include "runtime/bindings_words.h"
#include "runtime/errors.h"
#include "runtime/memory.h"
#include "runtime/panel_packing.h"
#include "runtime/spaced_rows.h"

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
                      nb::handle strides, int64_t offset, bool bundles, int64_t transformed,
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
    source.transformed = transformed;
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
      using Turns = std::tuple<bool, int32_t, int32_t, uint32_t, std::vector<bool>,
                               std::vector<bool>, uint32_t>;
      const auto [counted, most_turns, goes_on, states, scanned, collected, kept] =
          take<Turns>(turns);
      call.counted = counted;
      call.most_turns = most_turns;
      call.goes_on = goes_on;
      call.states = states;
      call.scanned.assign(scanned.begin(), scanned.end());
      call.collected.assign(collected.begin(), collected.end());
      call.kept = kept;
      call.strands = strands;
      space_rows(call, device_);
    }
    model_.steps.emplace_back(std::move(call));
  }

  // `given`, `wanted`: of each operand and result of the operator, whether it is among the inputs
  // and outputs. `words`: strings that it knows, if it is about such (runtime/bindings_words.h).
  void add_host(nb::handle name, nb::handle op, nb::handle arguments, nb::handle words,
                nb::handle from, nb::handle to, nb::handle given, nb::handle wanted) {
    HostCall call{{take<std::vector<uint32_t>>(from), take<std::vector<uint32_t>>(to),
                   take<std::string>(name)}};
    const auto known = take<std::string>(op);
    call.function = find_host_function(known);
    call.arguments = take<std::vector<int64_t>>(arguments);
    if (call.function != nullptr) {
      call.words = known_by(known, words_in(words), call.arguments);
    } else {
      call.function = find_word_function(known);
      if (call.function != nullptr) call.words = make_words(known, words, call.arguments);
    }
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

}  // namespace

void bind_builder(nb::module_& module) {
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
           nb::arg("transformed"), nb::arg("mapped"))
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
           nb::arg("arguments"), nb::arg("words"), nb::arg("inputs"), nb::arg("outputs"),
           nb::arg("given"), nb::arg("wanted"))
      .def("add_dims_write", &ModelBuilder::add_dims_write, nb::arg("value"), nb::arg("slots"))
      .def("add_binding", &ModelBuilder::add_binding, nb::arg("symbol"), nb::arg("value"),
           nb::arg("axis"), nb::arg("scale"), nb::arg("shift"))
      .def("add_check", &ModelBuilder::add_check, nb::arg("condition"), nb::arg("message"))
      .def("set_ports", &ModelBuilder::set_ports, nb::arg("inputs"), nb::arg("outputs"))
      .def("finish", &ModelBuilder::finish);
}

}  // namespace dvm
