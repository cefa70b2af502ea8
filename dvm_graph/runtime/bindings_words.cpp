#include "runtime/bindings_words.h"

#include <algorithm>
#include <forward_list>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bindings_tensors.h"
#include "runtime/errors.h"
#include "runtime/texts.h"
#include "runtime/vocabulary.h"

namespace nb = nanobind;

namespace dvm {
namespace {

nb::handle numpy(const char* name) {
  return nb::object(nb::module_::import_("numpy").attr(name)).release();
}

constexpr size_t kMostOperands = size_t{1} << 20;  // which only a damaged file names

bool are_objects(const Tensor& value) {
  return value.kind == ValueKind::object && value.data != nullptr;
}

PyObject** objects_in(const Tensor& value) { return reinterpret_cast<PyObject**>(value.data); }

// Makes something of what was fed, which may break in any manner.
nb::object made_of(const HostFrame& frame, const std::function<nb::object()>& make) {
  try {
    return make();
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw;
    std::string told = error.what();
    told.erase(0, told.find_last_of('\n') + 1);  // behind a traceback
    throw InputError(frame.name + " reads strings, which these are not: " + told);
  }
}

// What was fed as strings, an array of objects or of text, or a list, as an array of objects. Bytes
// of an array of such are text in UTF-8, what is none as Python escapes it.
Tensor strings_of(const HostFrame& frame, const Tensor& value) {
  if (are_objects(value) || texts_in(value) != nullptr) return value;
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

nb::handle words_of(const HostFrame& frame) {
  return nb::handle(static_cast<PyObject*>(frame.words().owner.get()));
}

// The bytes of strings of Python, one after the other.
class Reader {
 public:
  explicit Reader(const HostFrame& frame) : frame_(frame) {}

  // Until the next is read. What no UTF-8 holds are the bytes that it was made of.
  std::string_view bytes_of(PyObject* item) {
    if (PyUnicode_CheckExact(item) == 0) {
      text_ = text_of(frame_, item);
      item = text_.ptr();
    }
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(item, &size);
    if (bytes != nullptr) return {bytes, static_cast<size_t>(size)};
    for (const char* const way : {"surrogateescape", "surrogatepass"}) {
      if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
      PyErr_Clear();
      escaped_ = nb::steal(PyUnicode_AsEncodedString(item, "utf-8", way));
      if (escaped_.is_valid()) break;
    }
    if (!escaped_.is_valid()) throw nb::python_error();
    char* found = nullptr;
    if (PyBytes_AsStringAndSize(escaped_.ptr(), &found, &size) != 0) throw nb::python_error();
    return {found, static_cast<size_t>(size)};
  }

 private:
  const HostFrame& frame_;
  nb::object text_, escaped_;
};

// Strings as they were given, or those at places, which count through several tensors of them one
// behind the other. Those of Python are looked at under the interpreter's lock.
class Strings {
 public:
  // Of operands from `first` to `end`; the lock is taken where it is needed.
  Strings(const HostFrame& frame, size_t first, size_t end,
          std::optional<nb::gil_scoped_acquire>& lock)
      : frame_(frame), reader_(frame) {
    for (size_t i = first; i < end; i++) {
      const Tensor& given = frame.operand(i);
      if (texts_in(given) == nullptr && !lock) lock.emplace();
      const bool as_is = are_objects(given) || texts_in(given) != nullptr;
      parts_.push_back(as_is ? &given : &made_.emplace_front(strings_of(frame, given)));
    }
  }

  const std::vector<int64_t>& shape() const { return parts_.at(0)->shape; }

  std::string_view bytes(int64_t place) {
    const Tensor& part = part_of(place);
    const Texts* const texts = texts_in(part);
    return texts != nullptr ? texts->views[static_cast<size_t>(place)]
                            : reader_.bytes_of(objects_in(part)[place]);
  }

  nb::object text(int64_t place) {
    const Tensor& part = part_of(place);
    const Texts* const texts = texts_in(part);
    return texts != nullptr ? text_object(texts->views[static_cast<size_t>(place)])
                            : text_of(frame_, objects_in(part)[place]);
  }

 private:
  // And the place in it.
  const Tensor& part_of(int64_t& place) const {
    for (const Tensor* const part : parts_) {
      const int64_t count = elements_of(part->shape);
      if (place >= 0 && place < count) return *part;
      place -= count;
    }
    throw ExecutionError(frame_.name + " reads a string that is not there");
  }

  const HostFrame& frame_;
  Reader reader_;
  std::forward_list<Tensor> made_;
  std::vector<const Tensor*> parts_;
};

// Words and their numbers, and in which operands strings are looked up.
struct Lookup {
  size_t first, operands;
  int64_t start, columns, extent;  // of the last axis; no columns: one, without the axis; -1: all
  Vocabulary known;
  int64_t other;
  bool refuses;
};

// The columns that are looked up: of rows of `width` strings `count` from `start` on.
struct Columns {
  std::vector<int64_t> shape;  // of the numbers
  int64_t width = 1, start = 0, count = 1;
};

Columns columns_of(const HostFrame& frame, const Lookup& lookup, std::vector<int64_t> shape) {
  if (lookup.columns < 0) return {std::move(shape)};
  const int64_t width = shape.empty() ? 0 : shape.back(),
                count = std::max<int64_t>(lookup.columns, 1);
  if (lookup.extent >= 0 && width != lookup.extent) {
    throw ContradictionError(frame.name + " has " + std::to_string(width) +
                             " columns of strings, but the model wants " +
                             std::to_string(lookup.extent));
  }
  if (count > width || lookup.start > width - count) {
    throw ExecutionError(frame.name + " reads a string that is not there");
  }
  shape.pop_back();
  if (lookup.columns > 0) shape.push_back(count);
  return {std::move(shape), width, lookup.start, count};
}

void look_up(HostFrame& frame, const Lookup& lookup, size_t result, Strings& strings) {
  const bool picks = lookup.operands > 1;
  const auto* const place = picks ? frame.data<int64_t>(lookup.first) : nullptr;
  const Columns columns =
      columns_of(frame, lookup, picks ? frame.operand(lookup.first).shape : strings.shape());
  auto* numbers = frame.give<int64_t>(result, DType::i64, columns.shape);
  const int64_t rows = elements_of(columns.shape) / columns.count;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t i = row * columns.width + columns.start, left = columns.count; left > 0;
         i++, left--) {
      const std::string_view word = strings.bytes(picks ? place[i] : i);
      const int64_t number = lookup.known.number_of(word, lookup.other);
      if (lookup.refuses && number == lookup.other) {
        throw ExecutionError(frame.name + ": a string is not known");
      }
      if (numbers != nullptr) *numbers++ = number;
    }
  }
}

void string_places(HostFrame& frame) {
  const auto& lookups = frame.known<std::vector<Lookup>>();
  std::optional<nb::gil_scoped_acquire> lock;
  for (size_t result = 0; result < lookups.size(); result++) {
    const Lookup& lookup = lookups[result];
    const size_t first = lookup.first + (lookup.operands > 1 ? 1 : 0);
    Strings strings(frame, first, lookup.first + lookup.operands, lock);
    look_up(frame, lookup, result, strings);
  }
}

void texts(HostFrame& frame) {
  std::optional<nb::gil_scoped_acquire> lock;
  Strings strings(frame, 0, 1, lock);
  const int64_t count = elements_of(strings.shape());
  TextWriter writer;
  writer.reserve(static_cast<size_t>(count), 0);
  for (int64_t i = 0; i < count; i++) {
    writer.bytes().append(strings.bytes(i));
    writer.end();
  }
  frame.give_value(0, tensor_of(strings.shape(), writer.finish()));
}

void string_numbers(HostFrame& frame) {
  const Tensor& given = frame.operand(0);
  std::vector<int64_t> shape = given.shape;
  if (!are_objects(given) && texts_in(given) == nullptr) {
    const nb::gil_scoped_acquire lock;
    shape = strings_of(frame, given).shape;
  }
  auto* const numbers = frame.give<int64_t>(0, DType::i64, shape);
  if (numbers != nullptr) std::iota(numbers, numbers + elements_of(shape), int64_t{0});
}

void strings_at(HostFrame& frame) {
  if (!frame.wants(0)) return;
  const auto* const place = frame.data<int64_t>(0);
  std::optional<nb::gil_scoped_acquire> lock(std::in_place);
  Strings sources(frame, 1, frame.operands(), lock);
  const nb::handle words = words_of(frame);
  const Py_ssize_t count = PyTuple_Size(words.ptr());
  Tensor strings = make_objects(frame.operand(0).shape);
  for (int64_t i = 0; i < elements_of(strings.shape); i++) {
    nb::object word =
        place[i] >= 0 && place[i] < count
            ? nb::borrow(PyTuple_GetItem(words.ptr(), static_cast<Py_ssize_t>(place[i])))
            : sources.text(place[i] - count);
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
  if (op == "Texts") return texts;
  return op == "Maps" ? maps : nullptr;
}

std::vector<std::string> words_in(nb::handle words) {
  const nb::object given = checked(PySequence_Tuple(words.ptr()));
  std::vector<std::string> texts;
  for (Py_ssize_t i = 0; i < PyTuple_Size(given.ptr()); i++) {
    Py_ssize_t size = 0;
    PyObject* const word = PyTuple_GetItem(given.ptr(), i);
    const char* const bytes =
        PyUnicode_Check(word) == 0 ? nullptr : PyUnicode_AsUTF8AndSize(word, &size);
    PyErr_Clear();
    if (bytes == nullptr) throw CompileError("words of an operator are no text");
    texts.emplace_back(bytes, static_cast<size_t>(size));
  }
  return texts;
}

namespace {

std::vector<Lookup> lookups_of(const std::vector<std::string>& words,
                               std::span<const int64_t> arguments) {
  std::vector<Lookup> lookups;
  size_t operand = 0;
  std::span<const std::string> left = words;
  while (!arguments.empty()) {
    const auto count = static_cast<size_t>(arguments[arguments.size() < 5 ? 0 : 4]);
    const auto operands = static_cast<size_t>(arguments[0]);
    if (arguments.size() < 7 || count > left.size() || arguments.size() - 7 < count ||
        operands == 0 || operands > kMostOperands || arguments[1] < 0 ||
        (operands > 1 && arguments[2] >= 0)) {
      throw CompileError("words and arguments of an operator do not fit");
    }
    const auto numbers = arguments.subspan(5, count);
    lookups.push_back({operand, operands, arguments[1], arguments[2], arguments[3],
                       Vocabulary(left.first(count), numbers), arguments[5 + count],
                       arguments[6 + count] != 0});
    operand += operands;
    left = left.subspan(count);
    arguments = arguments.subspan(7 + count);
  }
  return lookups;
}

template <class T>
Tensor known_of(T known) {
  return {DType::u8, {}, nullptr, std::make_shared<T>(std::move(known)), ValueKind::object};
}

}  // namespace

Tensor make_words(std::string_view op, nb::handle words, std::span<const int64_t> arguments) {
  const auto require = [](bool holds) {
    if (!holds) throw CompileError("words and arguments of an operator do not fit");
  };
  if (op == "StringPlaces") return known_of(lookups_of(words_in(words), arguments));
  nb::object keys = checked(PySequence_Tuple(words.ptr()));
  const Py_ssize_t count = PyTuple_Size(keys.ptr());
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* const word = PyTuple_GetItem(keys.ptr(), i);
    require(PyUnicode_Check(word) != 0 || (op == "Maps" && PyLong_Check(word) != 0));
  }
  if (op == "Maps") {
    require(static_cast<Py_ssize_t>(arguments.size()) == count + 1);
    for (const int64_t column : arguments.subspan(1)) {
      require(column >= 0 && column < arguments[0]);
    }
  }
  return tensor_keeping(std::move(keys));
}

}  // namespace dvm
