#include "runtime/bindings_tensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/errors.h"
#include "runtime/memory.h"
#include "runtime/sequence.h"
#include "runtime/texts.h"
#include "runtime/value_sizes.h"

namespace nb = nanobind;

namespace dvm {
namespace {

// A dtype by its format in the buffer protocol.
struct Format {
  DType dtype;
  char code;
};

constexpr Format kFormats[] = {
    {DType::f32, 'f'}, {DType::f64, 'd'}, {DType::i32, 'i'}, {DType::i64, 'l'},
    {DType::b8, '?'},  {DType::f16, 'e'}, {DType::i8, 'b'},  {DType::u8, 'B'},
    {DType::i16, 'h'}, {DType::u16, 'H'}, {DType::u32, 'I'}, {DType::u64, 'L'},
};
static_assert(sizeof(int) == 4 && sizeof(long) == 8);

const char* format_of(DType dtype) {
  if (dtype == DType::bf16) dtype = DType::u16;
  static constexpr char codes[][2] = {"f", "d", "i", "l", "?", "e", "b", "B", "h", "H", "I", "L"};
  for (size_t i = 0; i < std::size(kFormats); i++) {
    if (kFormats[i].dtype == dtype) return codes[i];
  }
  throw CompileError("dtype without a numpy counterpart");
}

Tensor copy_of(const Tensor& tensor) {
  Tensor copy{tensor.dtype, tensor.shape, nullptr, allocate(bytes_of(tensor), "a sequence")};
  copy.data = static_cast<std::byte*>(copy.owner.get());
  std::memcpy(copy.data, tensor.data, static_cast<size_t>(bytes_of(tensor)));
  return copy;
}

// numpy arrays of no elements may have no address.
std::byte* address_of(const Py_buffer& view) {
  alignas(64) static std::byte nothing[64];
  return view.buf == nullptr ? nothing : static_cast<std::byte*>(view.buf);
}

// What numpy asks for a tensor's memory.
struct Exporter {
  PyObject_HEAD Tensor* tensor;
  Py_ssize_t* strides;  // in bytes
};

int export_buffer(PyObject* self, Py_buffer* view, int) {
  auto* const exporter = reinterpret_cast<Exporter*>(self);
  Tensor& tensor = *exporter->tensor;
  *view = Py_buffer{};
  view->buf = tensor.data;
  view->itemsize = size_of(tensor.dtype);
  view->len = bytes_of(tensor);
  view->format = const_cast<char*>(format_of(tensor.dtype));
  view->ndim = static_cast<int>(tensor.shape.size());
  view->shape = tensor.shape.data();
  view->strides = exporter->strides;
  view->obj = self;
  Py_INCREF(self);
  return 0;
}

void drop_exporter(PyObject* self) {
  auto* const exporter = reinterpret_cast<Exporter*>(self);
  PyTypeObject* const type = Py_TYPE(self);
  delete exporter->tensor;
  delete[] exporter->strides;
  PyObject_Free(self);
  Py_DECREF(type);
}

PyTypeObject* exporter_type() {
  static PyTypeObject* const type = [] {
    PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(drop_exporter)},
                           {Py_bf_getbuffer, reinterpret_cast<void*>(export_buffer)},
                           {0, nullptr}};
    PyType_Spec spec = {"dvm_graph._core.TensorMemory", sizeof(Exporter), 0, Py_TPFLAGS_DEFAULT,
                        slots};
    return reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)).release().ptr());
  }();
  return type;
}

PyTypeObject* array_type() {
  static PyObject* const type =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  return reinterpret_cast<PyTypeObject*>(type);
}

nb::handle asarray() {
  static PyObject* const function =
      nb::object(nb::module_::import_("numpy").attr("asarray")).release().ptr();
  return function;
}

nb::object strings_object(const Tensor& value) {
  const Tensor strings = make_objects(value.shape);
  auto** const objects = reinterpret_cast<PyObject**>(strings.data);
  const std::vector<std::string_view>& views = texts_in(value)->views;
  for (size_t i = 0; i < views.size(); i++) {
    Py_DECREF(std::exchange(objects[i], text_object(views[i]).release().ptr()));
  }
  return nb::borrow(static_cast<PyObject*>(strings.owner.get()));
}

}  // namespace

nb::object checked(PyObject* reference) {
  if (reference == nullptr) throw nb::python_error();
  return nb::steal(reference);
}

bool is_array(nb::handle object) { return Py_TYPE(object.ptr()) == array_type(); }

bool ArrayView::open(nb::handle object) {
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) return true;
  view_ = {};
  if (PyErr_ExceptionMatches(PyExc_MemoryError)) throw nb::python_error();
  PyErr_Clear();
  return false;
}

Tensor ArrayView::tensor(DType expected) const {
  std::optional<Tensor> known = known_tensor(expected);
  if (known) return *std::move(known);
  throw InputError("an array has a dtype that tensors do not have");
}

std::optional<Tensor> ArrayView::known_tensor(DType expected) const {
  // "q" and "Q" are what "l" and "L" are.
  const char code = view_.format[0] == 'q' ? 'l' : view_.format[0] == 'Q' ? 'L' : view_.format[0];
  for (const auto& [dtype, known] : kFormats) {
    if (code != known || view_.format[1] != 0) continue;
    const bool bits = expected == DType::bf16 && dtype == DType::u16;
    return Tensor{bits ? DType::bf16 : dtype,
                  {view_.shape, view_.shape + view_.ndim},
                  address_of(view_),
                  nullptr};
  }
  return std::nullopt;
}

std::optional<Tensor> ArrayView::objects() const {
  if (std::strcmp(view_.format, "O") != 0) return std::nullopt;
  return Tensor{DType::u8,
                {view_.shape, view_.shape + view_.ndim},
                address_of(view_),
                nullptr,
                ValueKind::object};
}

std::shared_ptr<void> keep_alive(nb::object object) {
  return {object.release().ptr(), [](void* pointer) {
            const nb::gil_scoped_acquire lock;
            nb::steal(static_cast<PyObject*>(pointer));
          }};
}

Tensor tensor_keeping(nb::object object) {
  return {DType::u8, {}, nullptr, keep_alive(std::move(object)), ValueKind::object};
}

Tensor value_keeping(nb::object object) {
  if (object.is_none()) return no_value();
  if (PyList_CheckExact(object.ptr())) {
    Sequence sequence;
    for (const nb::handle item : nb::borrow<nb::list>(object)) {
      ArrayView array;
      if (!array.open(item)) return tensor_keeping(std::move(object));
      const std::optional<Tensor> given = array.known_tensor(DType::u8);
      if (!given) return tensor_keeping(std::move(object));
      sequence.push_back(std::make_shared<const Tensor>(copy_of(*given)));
    }
    return tensor_of(std::move(sequence));
  }
  ArrayView array;
  if (!array.open(object)) return tensor_keeping(std::move(object));
  std::optional<Tensor> given = array.known_tensor(DType::u8);
  if (!given) given = array.objects();
  if (!given) return tensor_keeping(std::move(object));
  given->owner = keep_alive(std::move(object));
  return *std::move(given);
}

Tensor make_objects(std::span<const int64_t> shape) {
  static const nb::handle empty = nb::object(nb::module_::import_("numpy").attr("empty")).release();
  static const nb::handle object = nb::str("O").release();
  const nb::object extents = checked(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t axis = 0; axis < shape.size(); axis++) {
    PyTuple_SetItem(extents.ptr(), static_cast<Py_ssize_t>(axis),
                    checked(PyLong_FromLongLong(shape[axis])).release().ptr());
  }
  return value_keeping(
      checked(PyObject_CallFunctionObjArgs(empty.ptr(), extents.ptr(), object.ptr(), nullptr)));
}

nb::object text_object(std::string_view text) {
  return checked(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}

nb::object value_object(const Tensor& value, bool lends) {
  switch (value.kind) {
    case ValueKind::tensor:
      return array_over(lends || value.owner.use_count() <= 1 ? value : copy_of(value));
    case ValueKind::none: return nb::none();
    case ValueKind::object: return nb::borrow(static_cast<PyObject*>(value.owner.get()));
    case ValueKind::texts: return strings_object(value);
    case ValueKind::sequence: break;
  }
  nb::list list = nb::borrow<nb::list>(checked(PyList_New(0)));
  const bool shared = value.owner.use_count() > 1;
  for (const auto& part : *sequence_in(value)) {
    const bool own = !shared && part.use_count() == 1 && part->owner.use_count() == 1;
    list.append(array_over(own || lends ? *part : copy_of(*part)));
  }
  return list;
}

nb::object array_over(const Tensor& tensor) {
  auto kept = std::make_unique<Tensor>(tensor);
  auto strides = std::make_unique<Py_ssize_t[]>(tensor.shape.size());
  Py_ssize_t stride = size_of(tensor.dtype);
  for (size_t axis = tensor.shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    const Py_ssize_t extent = std::max<Py_ssize_t>(tensor.shape[axis], 1);
    if (__builtin_mul_overflow(stride, extent, &stride)) {
      throw ShapeError("numpy has no array of shape " + shape_text(tensor.shape) +
                       ", though it has no elements");
    }
  }
  nb::object memory = checked(reinterpret_cast<PyObject*>(PyObject_New(Exporter, exporter_type())));
  auto* const exporter = reinterpret_cast<Exporter*>(memory.ptr());
  exporter->tensor = kept.release();
  exporter->strides = strides.release();
  return checked(PyObject_CallFunctionObjArgs(asarray().ptr(), memory.ptr(), nullptr));
}

}  // namespace dvm
