#include "runtime/bindings_tensors.h"

#include <utility>

#include "runtime/errors.h"

namespace nb = nanobind;

namespace dvm {
namespace {

using Code = nb::dlpack::dtype_code;

constexpr struct {
  DType dtype;
  Code code;
} kCodes[] = {
    {DType::f32, Code::Float}, {DType::f64, Code::Float}, {DType::i32, Code::Int},
    {DType::i64, Code::Int},   {DType::b8, Code::Bool},   {DType::f16, Code::Float},
    {DType::i8, Code::Int},    {DType::u8, Code::UInt},   {DType::i16, Code::Int},
    {DType::u16, Code::UInt},  {DType::u32, Code::UInt},  {DType::u64, Code::UInt},
};

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  if (dtype == DType::bf16) dtype = DType::u16;
  for (const auto& [known, code] : kCodes) {
    if (known == dtype) {
      return {static_cast<uint8_t>(code), static_cast<uint8_t>(size_of(dtype) * 8), 1};
    }
  }
  throw CompileError("dtype without a numpy counterpart");
}

// numpy arrays of no elements may have no address.
std::byte* address_of(const InputArray& array) {
  alignas(64) static std::byte nothing[64];
  const auto* data = static_cast<const std::byte*>(array.data());
  return data == nullptr ? nothing : const_cast<std::byte*>(data);
}

}  // namespace

Tensor tensor_of(const InputArray& array, DType expected) {
  const nb::dlpack::dtype given = array.dtype();
  for (const auto& [dtype, code] : kCodes) {
    if (given != dlpack_dtype(dtype)) continue;
    const bool bits = expected == DType::bf16 && dtype == DType::u16;
    Tensor tensor{bits ? DType::bf16 : dtype, {}, address_of(array), nullptr};
    for (size_t axis = 0; axis < array.ndim(); axis++) {
      tensor.shape.push_back(static_cast<int64_t>(array.shape(axis)));
    }
    return tensor;
  }
  throw InputError("an array has a dtype that tensors do not have");
}

std::shared_ptr<void> keep_alive(nb::object object) {
  return {object.release().ptr(), [](void* pointer) {
            const nb::gil_scoped_acquire lock;
            nb::steal(static_cast<PyObject*>(pointer));
          }};
}

Tensor tensor_keeping(nb::object object) {
  return {DType::u8, {}, nullptr, keep_alive(std::move(object))};
}

nb::object kept_object(const Tensor& tensor) {
  return nb::borrow(static_cast<PyObject*>(tensor.owner.get()));
}

nb::object array_over(const Tensor& tensor) {
  std::vector<size_t> shape(tensor.shape.begin(), tensor.shape.end());
  nb::object owner;
  if (tensor.owner != nullptr) {
    owner = nb::capsule(new std::shared_ptr<void>(tensor.owner), [](void* pointer) noexcept {
      delete static_cast<std::shared_ptr<void>*>(pointer);
    });
  } else {
    owner = nb::none();
  }
  nb::ndarray<nb::numpy> array(tensor.data, shape.size(), shape.data(), owner, nullptr,
                               dlpack_dtype(tensor.dtype));
  return array.cast(nb::rv_policy::reference);
}

}  // namespace dvm
