#include "runtime/bindings_words.h"

#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bindings_tensors.h"
#include "runtime/errors.h"

namespace nb = nanobind;

namespace dvm {
namespace {

nb::handle numpy(const char* name) {
  return nb::object(nb::module_::import_("numpy").attr(name)).release();
}

bool are_objects(const Tensor& value) {
  return value.kind == ValueKind::object && value.data != nullptr;
}

PyObject** objects_in(const Tensor& value) { return reinterpret_cast<PyObject**>(value.data); }

// An array of None's.
Tensor make_objects(std::span<const int64_t> shape) {
  static const nb::handle empty = numpy("empty"), object = nb::str("O").release();
  const nb::object extents = checked(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t axis = 0; axis < shape.size(); axis++) {
    PyTuple_SetItem(extents.ptr(), static_cast<Py_ssize_t>(axis),
                    checked(PyLong_FromLongLong(shape[axis])).release().ptr());
  }
  return value_keeping(
      checked(PyObject_CallFunctionObjArgs(empty.ptr(), extents.ptr(), object.ptr(), nullptr)));
}

// Makes something of what was fed, which may break in any manner.
nb::object made_of(const HostFrame& frame, const std::function<nb::object()>& make) {
  try {
    return make();
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    throw InputError(frame.name + " reads strings, which these are not: " + error.what());
  }
}

// What was fed as strings, an array of objects or of text, or a list, as an array of objects. Bytes
// of an array of such are text in UTF-8, what is none as Python escapes it.
Tensor strings_of(const HostFrame& frame, const Tensor& value) {
  if (are_objects(value)) return value;
  nb::object given = value_object(value, true);
  const bool listed = PyList_Check(given.ptr()) != 0;
  static const nb::handle ndarray = numpy("ndarray"), asarray = numpy("asarray");
  std::string kind;
  if (!listed && PyObject_IsInstance(given.ptr(), ndarray.ptr()) == 1) {
    kind = nb::cast<std::string>(given.attr("dtype").attr("kind"));
  }
  if (!listed && kind != "O" && kind != "U" && kind != "S") {
    throw InputError(frame.name + " reads strings, and not what it was given");
  }
  if (kind == "S") {
    static const nb::handle texts = numpy("char");
    given = made_of(
        frame, [&] { return nb::object(texts.attr("decode")(given, "utf-8", "surrogateescape")); });
  }
  Tensor strings = value_keeping(made_of(frame, [&] { return asarray(given, "O", "C"); }));
  if (!are_objects(strings)) throw InputError(frame.name + " reads strings, which are no array");
  return strings;
}

// As `str` of it: what is None or a number is that text.
nb::object text_of(const HostFrame& frame, PyObject* item) {
  nb::object given = nb::borrow(item);
  if (PyUnicode_CheckExact(item) != 0) return given;
  return made_of(frame, [&] { return checked(PyObject_Str(given.ptr())); });
}

int64_t number_of(const HostFrame& frame, PyObject* item, PyObject* numbers, int64_t other) {
  nb::object text;  // of what is none: others are not counted as held
  if (PyUnicode_CheckExact(item) == 0) {
    text = text_of(frame, item);
    item = text.ptr();
  }
  PyObject* const found = PyDict_GetItemWithError(numbers, item);
  if (found != nullptr) return PyLong_AsLongLong(found);
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return other;
}

nb::handle words_of(const HostFrame& frame) {
  return nb::handle(static_cast<PyObject*>(frame.words().owner.get()));
}

// Strings as they were given, or those at places, which count through several tensors of them one
// behind the other.
class Strings {
 public:
  Strings(const HostFrame& frame, size_t first) : name_(frame.name) {
    for (size_t i = first; i < frame.operands(); i++) {
      parts_.push_back(strings_of(frame, frame.operand(i)));
    }
  }

  const Tensor& part(size_t index) const { return parts_[index]; }

  PyObject* at(int64_t place) const {
    for (const Tensor& part : parts_) {
      const int64_t count = elements_of(part.shape);
      if (place >= 0 && place < count) return objects_in(part)[place];
      place -= count;
    }
    throw ExecutionError(name_ + " reads a string that is not there");
  }

 private:
  const std::string& name_;
  std::vector<Tensor> parts_;
};

void string_places(HostFrame& frame) {
  const bool picks = frame.operand(0).kind == ValueKind::tensor && frame.operands() > 1;
  const auto* const place = picks ? frame.data<int64_t>(0) : nullptr;
  const nb::gil_scoped_acquire lock;
  const Strings strings(frame, picks ? 1 : 0);
  const int64_t other = frame.argument(frame.arguments() - 2);
  const bool refuses = frame.argument(frame.arguments() - 1) != 0;
  const std::vector<int64_t>& shape = (picks ? frame.operand(0) : strings.part(0)).shape;
  auto* const numbers = frame.give<int64_t>(0, DType::i64, shape);
  PyObject* const known = words_of(frame).ptr();
  for (int64_t i = 0; i < elements_of(shape); i++) {
    PyObject* const item = picks ? strings.at(place[i]) : objects_in(strings.part(0))[i];
    const int64_t number = number_of(frame, item, known, other);
    if (refuses && number == other) throw ExecutionError(frame.name + ": a string is not known");
    if (numbers != nullptr) numbers[i] = number;
  }
}

void string_numbers(HostFrame& frame) {
  std::vector<int64_t> shape = frame.operand(0).shape;
  if (!are_objects(frame.operand(0))) {
    const nb::gil_scoped_acquire lock;
    shape = strings_of(frame, frame.operand(0)).shape;
  }
  auto* const numbers = frame.give<int64_t>(0, DType::i64, shape);
  if (numbers != nullptr) std::iota(numbers, numbers + elements_of(shape), int64_t{0});
}

void strings_at(HostFrame& frame) {
  if (!frame.wants(0)) return;
  const auto* const place = frame.data<int64_t>(0);
  const nb::gil_scoped_acquire lock;
  const Strings sources(frame, 1);
  const nb::handle words = words_of(frame);
  const Py_ssize_t count = PyTuple_Size(words.ptr());
  Tensor strings = make_objects(frame.operand(0).shape);
  for (int64_t i = 0; i < elements_of(strings.shape); i++) {
    nb::object word =
        place[i] >= 0 && place[i] < count
            ? nb::borrow(PyTuple_GetItem(words.ptr(), static_cast<Py_ssize_t>(place[i])))
            : text_of(frame, sources.at(place[i] - count));
    Py_DECREF(std::exchange(objects_in(strings)[i], word.release().ptr()));
  }
  frame.give_value(0, std::move(strings));
}

void maps(HostFrame& frame) {
  if (!frame.wants(0)) return;
  const std::vector<int64_t>& shape = frame.operand(0).shape;
  const auto* row = frame.data<float>(0);
  const nb::gil_scoped_acquire lock;
  const nb::handle keys = words_of(frame);
  const Py_ssize_t entries = PyTuple_Size(keys.ptr());
  const int64_t width = frame.argument(0);
  const int64_t rows = shape.size() == 1 ? 1 : shape[0];
  if (shape.empty() || shape.size() > 2 || shape.back() != width) {
    throw ShapeError(frame.name + " has " + std::to_string(width) + " keys for rows of " +
                     shape_text(shape));
  }
  const nb::object list = checked(PyList_New(rows));
  for (int64_t i = 0; i < rows; i++, row += width) {
    nb::object map = checked(PyDict_New());
    for (Py_ssize_t entry = 0; entry < entries; entry++) {
      const int64_t column = frame.argument(static_cast<size_t>(entry) + 1);
      const nb::object number = checked(PyFloat_FromDouble(static_cast<double>(row[column])));
      if (PyDict_SetItem(map.ptr(), PyTuple_GetItem(keys.ptr(), entry), number.ptr()) != 0) {
        throw nb::python_error();
      }
    }
    PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), map.release().ptr());
  }
  frame.give_value(0, tensor_keeping(list));
}

}  // namespace

HostFunction find_word_function(std::string_view op) {
  if (op == "StringPlaces") return string_places;
  if (op == "StringsAt") return strings_at;
  if (op == "StringNumbers") return string_numbers;
  return op == "Maps" ? maps : nullptr;
}

Tensor make_words(std::string_view op, nb::handle words, std::span<const int64_t> arguments) {
  const auto require = [](bool holds) {
    if (!holds) throw CompileError("words and arguments of an operator do not fit");
  };
  nb::object keys = checked(PySequence_Tuple(words.ptr()));
  const Py_ssize_t count = PyTuple_Size(keys.ptr());
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* const word = PyTuple_GetItem(keys.ptr(), i);
    require(PyUnicode_Check(word) != 0 || (op == "Maps" && PyLong_Check(word) != 0));
  }
  const auto numbers = static_cast<Py_ssize_t>(arguments.size());
  if (op == "StringsAt" || op == "StringNumbers") return tensor_keeping(std::move(keys));
  if (op == "Maps") {
    require(numbers == count + 1);
    for (const int64_t column : arguments.subspan(1)) {
      require(column >= 0 && column < arguments[0]);
    }
    return tensor_keeping(std::move(keys));
  }
  require(numbers == count + 2);
  nb::object table = checked(PyDict_New());
  for (Py_ssize_t i = 0; i < count; i++) {
    const nb::object number = checked(PyLong_FromLongLong(arguments[static_cast<size_t>(i)]));
    if (PyDict_SetItem(table.ptr(), PyTuple_GetItem(keys.ptr(), i), number.ptr()) != 0) {
      throw nb::python_error();
    }
  }
  return tensor_keeping(std::move(table));
}

}  // namespace dvm
