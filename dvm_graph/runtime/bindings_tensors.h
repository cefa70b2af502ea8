// Arrays of Python as tensors, and back, through the buffer protocol: what runs out of memory on
// the way raises. Everything here needs the interpreter lock.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/tensor.h"

namespace dvm {

// The memory of a C-contiguous array, borrowed while this lives.
class ArrayView {
 public:
  ArrayView() = default;
  ArrayView(ArrayView&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  ArrayView& operator=(ArrayView&&) = delete;
  ~ArrayView() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }

  // False: the object is no such array.
  bool open(nanobind::handle object);

  // As a tensor that does not own it. numpy has no bfloat16: where `expected` is bf16, the array is
  // its bits as uint16. Throws InputError for dtypes the core does not know.
  Tensor tensor(DType expected) const;
  // Nothing for dtypes the core does not know.
  std::optional<Tensor> known_tensor(DType expected) const;
  int64_t bytes() const { return view_.len; }
  // As an opaque value whose data are Python's objects; nothing where it has others.
  std::optional<Tensor> objects() const;
  std::span<const std::byte> raw() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_ = {};
};

// Whether it is one of numpy's arrays, and of no subclass.
bool is_array(nanobind::handle object);

// Any object, kept alive by the tensor wherever its last copy dies.
Tensor tensor_keeping(nanobind::object object);
std::shared_ptr<void> keep_alive(nanobind::object object);

// An opaque value as it comes. Arrays are tensors that keep them, or what is said of their objects,
// lists of arrays sequences of copies, None is an optional value that holds nothing; anything else
// is the object.
Tensor value_keeping(nanobind::object object);

// The reverse. `lends`: whoever gets it reads it only, and lets go of it soon; else arrays that
// others hold, too, are copies.
nanobind::object value_object(const Tensor& value, bool lends);

// An array of None's, as an opaque value.
Tensor make_objects(std::span<const int64_t> shape);

// Text of UTF-8; bytes that are none as Python escapes them.
nanobind::object text_object(std::string_view text);

// A numpy array over the tensor's memory. It shares ownership, or borrows where there is none.
nanobind::object array_over(const Tensor& tensor);

// A new reference that C gave, or the Python error that it set instead.
nanobind::object checked(PyObject* reference);

}  // namespace dvm
