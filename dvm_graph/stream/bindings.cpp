// Python's way to streams. A thread that holds the interpreter lock never waits for that of a
// stream, whose holder may need the interpreter's: to drop an array that a flush has let go of.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/bindings_calls.h"
#include "runtime/bindings_tensors.h"
#include "runtime/bindings_values.h"
#include "runtime/errors.h"
#include "stream/stream.h"
#include "stream/unsupported.h"

namespace nb = nanobind;

namespace dvm::stream {
namespace {

// What Python holds of a value: as long as it lives, the value is wanted.
class Handle {
 public:
  Handle(std::shared_ptr<Stream> stream, ValueRef value)
      : stream(std::move(stream)), value(std::move(value)) {
    this->value->handles++;
  }
  Handle(Handle&& other) noexcept = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (value != nullptr) value->handles--;
  }

  std::shared_ptr<Stream> stream;
  ValueRef value;
};

// The lock of a stream, and behind it the end of what flushes let go of meanwhile.
class Locked {
 public:
  explicit Locked(Stream& stream) : stream_(stream) {
    if (stream_.mutex.try_lock()) return;
    const nb::gil_scoped_release unlock;
    stream_.mutex.lock();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() {
    std::vector<ValueRef> dropped;
    stream_.take_dropped(dropped);
    stream_.mutex.unlock();
    if (dropped.empty()) return;
    dropped.clear();  // which may run anything, and use this stream
    if (!stream_.mutex.try_lock()) return;
    stream_.give_capacity(dropped);
    stream_.mutex.unlock();
  }

 private:
  Stream& stream_;
};

void flush(Stream& stream) {
  const Call call;
  const Locked lock(stream);
  const nb::gil_scoped_release unlock;
  stream.flush("flush");
}

void require(const Handle& handle) {
  const Locked lock(*handle.stream);
  const nb::gil_scoped_release unlock;
  handle.stream->require(*handle.value);
}

nb::object array_of(const Handle& handle) {
  const Call call;
  require(handle);
  const Value& value = *handle.value;
  Tensor tensor{
      value.dtype, {value.shape.all().begin(), value.shape.all().end()}, value.data, value.memory};
  if (value.constant) tensor.owner = handle.value;
  return array_over(tensor);
}

nb::tuple shape_of(const Handle& handle) {
  const Shape& shape = handle.value->shape;
  nb::object tuple = checked(PyTuple_New(shape.rank));
  for (int i = 0; i < shape.rank; i++) {
    PyTuple_SetItem(tuple.ptr(), i, checked(PyLong_FromLongLong(shape.extents[i])).release().ptr());
  }
  return nb::borrow<nb::tuple>(tuple);
}

bool is_pending(const Handle& handle) {
  const Locked lock(*handle.stream);
  return handle.value->pending >= 0;
}

Handle given(const std::shared_ptr<Stream>& stream, const Tensor& tensor, nb::object owner) {
  if (tensor.shape.size() > kMaxRank) throw UnsupportedError("a tensor has more than 8 axes");
  auto value = std::make_shared<Value>();
  value->dtype = tensor.dtype;
  value->shape.rank = static_cast<int8_t>(tensor.shape.size());
  std::copy(tensor.shape.begin(), tensor.shape.end(), value->shape.extents);
  value->data = tensor.data;
  value->memory = keep_alive(std::move(owner));
  return {stream, std::move(value)};
}

Handle constant(const std::shared_ptr<Stream>& stream, nb::object array, nb::handle dtype) {
  ArrayView view;
  if (!view.open(array)) throw InputError("a constant of a stream is a C-contiguous array");
  DType expected = DType::f32;
  if (const auto name = take<std::string>(dtype); !name.empty() && !find_dtype(name, expected)) {
    throw InputError("there is no dtype " + name);
  }
  return given(stream, view.tensor(expected), std::move(array));
}

// The same of memory at an address, for owners that have no buffer protocol.
Handle constant_at(const std::shared_ptr<Stream>& stream, uintptr_t address, nb::handle shape,
                   nb::handle dtype, nb::object owner) {
  Tensor tensor;
  const auto name = take<std::string>(dtype);
  if (!find_dtype(name, tensor.dtype)) throw InputError("there is no dtype " + name);
  for (const int64_t extent : take<std::vector<int64_t>>(shape)) tensor.shape.push_back(extent);
  tensor.data = reinterpret_cast<std::byte*>(address);
  return given(stream, tensor, std::move(owner));
}

// A Python number of a dtype.
ValueRef number_of(nb::handle object, DType dtype) {
  auto value = std::make_shared<Value>();
  value->dtype = dtype;
  bool holds = false;
  if (PyFloat_Check(object.ptr())) {
    holds = set_number(*value, PyFloat_AsDouble(object.ptr()));
  } else if (PyLong_Check(object.ptr())) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow == 0) {
      holds = set_number(*value, static_cast<int64_t>(number));
    } else if (is_float(dtype)) {
      const double wide = PyLong_AsDouble(object.ptr());
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      holds = set_number(*value, wide);
    } else if (dtype == DType::u64 && overflow > 0) {
      const unsigned long long bits = PyLong_AsUnsignedLongLong(object.ptr());
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
      } else {
        holds = set_number(*value, static_cast<int64_t>(bits & INT64_MAX));
        value->integer = static_cast<int64_t>(bits);
        std::memcpy(value->number, &bits, sizeof bits);
      }
    }
  } else {
    throw InputError("an operand of a stream is neither a value nor a number");
  }
  if (!holds) {
    throw InputError(take<std::string>(nb::str(object)) + " is no number of " +
                     long_name_of(dtype));
  }
  return value;
}

struct Operands {
  std::vector<ValueRef> values;
  std::vector<nb::object> handles;  // which keep values wanted
};

Handle append(const std::shared_ptr<Stream>& stream, nb::handle name, nb::handle operands,
              nb::handle attrs, nb::handle dtype_name) {
  Op op;
  if (const auto text = take<std::string>(name); !find_op(text, op)) {
    throw InputError("there is no operator " + text);
  }
  DType dtype = DType::f32;
  const auto dtype_text = take<std::string>(dtype_name);
  if (!dtype_text.empty() && !find_dtype(dtype_text, dtype)) {
    throw InputError("there is no dtype " + dtype_text);
  }
  const nb::object given = checked(PySequence_Tuple(operands.ptr()));
  const auto count = static_cast<size_t>(PyTuple_Size(given.ptr()));
  ValueRef few[4];
  std::vector<ValueRef> many(count > 4 ? count : 0);
  const std::span<ValueRef> values =
      count > 4 ? std::span<ValueRef>(many) : std::span<ValueRef>(few, count);
  const Value* like = nullptr;
  for (size_t i = 0; i < count; i++) {
    PyObject* const object = PyTuple_GetItem(given.ptr(), static_cast<Py_ssize_t>(i));
    Handle* handle = nullptr;
    if (!nb::try_cast<Handle*>(nb::handle(object), handle, false) || handle == nullptr) continue;
    if (handle->stream != stream) require(*handle);
    values[i] = handle->value;
    if (i > 0 || op != Op::select) like = handle->value.get();
  }
  for (size_t i = 0; i < count; i++) {
    if (values[i] != nullptr) continue;
    PyObject* const object = PyTuple_GetItem(given.ptr(), static_cast<Py_ssize_t>(i));
    const bool takes_numbers = info_of(op).kind == Kind::map || op == Op::broadcast_to;
    if (!takes_numbers) throw InputError(std::string(name_of(op)) + " takes no numbers");
    if (like == nullptr && dtype_text.empty()) {
      throw InputError(std::string(name_of(op)) + " of numbers alone: it needs a dtype");
    }
    const bool condition = op == Op::select && i == 0;
    values[i] = number_of(object, condition ? DType::b8 : like != nullptr ? like->dtype : dtype);
  }
  int64_t few_attrs[32];
  std::vector<int64_t> many_attrs;
  const auto attr_count = PySequence_Size(attrs.ptr());
  if (attr_count < 0) throw nb::python_error();
  if (attr_count > 32) many_attrs.resize(static_cast<size_t>(attr_count));
  const std::span<int64_t> numbers(attr_count > 32 ? many_attrs.data() : few_attrs,
                                   static_cast<size_t>(attr_count));
  for (Py_ssize_t i = 0; i < attr_count; i++) {
    const nb::object item = checked(PySequence_GetItem(attrs.ptr(), i));
    numbers[static_cast<size_t>(i)] = PyLong_AsLongLong(item.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  const Locked lock(*stream);
  if (stream->is_full()) {
    const nb::gil_scoped_release unlock;
    stream->make_room();
  }
  return {stream, stream->append(op, values, numbers, dtype_text.empty() ? nullptr : &dtype)};
}

bool supports(Stream&, nb::handle name, nb::handle dtypes) {
  Op op;
  if (!find_op(take<std::string>(name), op)) return false;
  std::vector<DType> operands;
  for (const std::string& text : take<std::vector<std::string>>(dtypes)) {
    DType dtype = DType::f32;
    if (!find_dtype(text, dtype)) return false;
    operands.push_back(dtype);
  }
  return refusal_of(op, operands).empty();
}

nb::list take_record(Stream& stream) {
  std::vector<FlushRecord> records;
  {
    const Locked lock(stream);
    records = stream.take_record();
  }
  nb::list flushes;
  for (const FlushRecord& record : records) {
    nb::dict flush;
    nb::list kernels, decisions;
    for (const FlushRecord::Kernel& kernel : record.kernels) {
      nb::dict made;
      made["name"] = kernel.name;
      made["kind"] = kernel.kind;
      made["operators"] = kernel.operators;
      kernels.append(made);
    }
    for (const Decision& decision : record.decisions) {
      constexpr const char* verdicts[] = {"pattern", "speculate", "sequence"};
      nb::dict made;
      made["subject"] = decision.subject;
      made["verdict"] = verdicts[static_cast<int>(decision.verdict)];
      made["reason"] = decision.reason;
      decisions.append(made);
    }
    flush["reason"] = record.reason;
    flush["kernels"] = kernels;
    flush["decisions"] = decisions;
    flush["dead"] = record.dead;
    flushes.append(flush);
  }
  return flushes;
}

std::map<std::string, int64_t> statistics_of(Stream& stream) {
  const Locked lock(stream);
  const Statistics& s = stream.statistics();
  return {{"operators", s.operators}, {"dead", s.dead},     {"flushes", s.flushes},
          {"kernels", s.kernels},     {"stored", s.stored}, {"compile_ns", s.compile_ns},
          {"run_ns", s.run_ns}};
}

// Rows of ir/operators.py: name, kind, arity, result, and the dtypes that it takes.
void declare_operators(nb::handle rows) {
  using Row = std::tuple<std::string, std::string, int, std::string, std::vector<std::string>>;
  static const std::map<std::string, Kind> kinds = {
      {"map", Kind::map},   {"reduce", Kind::reduce}, {"matrix", Kind::matrix},
      {"view", Kind::view}, {"gather", Kind::gather}, {"source", Kind::source}};
  for (const auto& [name, kind, arity, result, dtypes] : take<std::vector<Row>>(rows)) {
    for (size_t i = 0; i < static_cast<size_t>(Op::count_); i++) {
      const Op op = static_cast<Op>(i);
      if (name != name_of(op) || !kinds.contains(kind)) continue;
      OpInfo info;
      info.kind = kinds.at(kind);
      info.arity = static_cast<int8_t>(arity);
      info.result = result == "BOOL"   ? Result::boolean
                    : result == "ATTR" ? Result::attr
                    : result == "SUM"  ? Result::sum
                                       : Result::same;
      for (const std::string& text : dtypes) {
        DType dtype = DType::f32;
        if (find_dtype(text, dtype)) info.takes |= 1U << static_cast<int>(dtype);
      }
      declare(op, info);
    }
  }
}

FusionLimits limits_of(nb::handle given) {
  FusionLimits limits;
  const auto read = [&](const char* name, auto& value) {
    value = nb::cast<std::remove_reference_t<decltype(value)>>(nb::object(given.attr(name)));
  };
#define DVM_LIMIT(type, name) read(#name, limits.name);
#include "rules/limits.def"
  return limits;
}

void translate_error(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const UnsupportedError& error) {
    const nb::object type = nb::module_::import_("dvm_graph.errors").attr("UnsupportedError");
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace
}  // namespace dvm::stream

namespace dvm {

void bind_stream(nb::module_& module) {
  using namespace stream;
  nb::register_exception_translator(stream::translate_error);
  module.def("declare_operators", &declare_operators, nb::arg("rows"));
  nb::class_<Handle>(module, "StreamValue", "A tensor of a stream, computed when it is needed.")
      .def_prop_ro("shape", &shape_of)
      .def_prop_ro("rank", [](const Handle& handle) { return int{handle.value->shape.rank}; })
      .def_prop_ro("dtype", [](const Handle& handle) { return long_name_of(handle.value->dtype); })
      .def_prop_ro("pending", &is_pending)
      .def("numpy", &array_of);
  nb::class_<Stream>(module, "Stream", "See stream/stream.h.")
      .def(
          "__init__",
          [](Stream* stream, int cores, nb::handle simd, int64_t local_bytes,
             const Machine& machine, bool spins, nb::handle limits) {
            new (stream) Stream({cores, take<std::string>(simd), local_bytes, machine, spins, {}},
                                limits_of(limits));
          },
          nb::arg("cores"), nb::arg("simd"), nb::arg("local_bytes"), nb::arg("machine"),
          nb::arg("spins"), nb::arg("limits"))
      .def(
          "constant",
          [](std::shared_ptr<Stream> stream, nb::object array, nb::handle dtype) {
            return constant(stream, std::move(array), dtype);
          },
          nb::arg("array"), nb::arg("dtype") = "")
      .def(
          "constant_at",
          [](std::shared_ptr<Stream> stream, uintptr_t address, nb::handle shape, nb::handle dtype,
             nb::object owner) {
            return constant_at(stream, address, shape, dtype, std::move(owner));
          },
          nb::arg("address"), nb::arg("shape"), nb::arg("dtype"), nb::arg("owner"))
      .def(
          "append",
          [](std::shared_ptr<Stream> stream, nb::handle op, nb::handle operands, nb::handle attrs,
             nb::handle dtype) { return append(stream, op, operands, attrs, dtype); },
          nb::arg("op"), nb::arg("operands"), nb::arg("attrs") = nb::tuple(), nb::arg("dtype") = "")
      .def("supports", &supports, nb::arg("op"), nb::arg("dtypes"))
      .def("flush", &flush)
      .def(
          "record",
          [](Stream& stream, bool on) {
            const Locked lock(stream);
            stream.record(on);
          },
          nb::arg("on"))
      .def("take_record", &take_record)
      .def_prop_ro("statistics", &statistics_of);
}

}  // namespace dvm
