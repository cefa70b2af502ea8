// Arrays of Python as tensors, and back. Everything here needs the interpreter lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "runtime/tensor.h"

namespace dvm {

using InputArray = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;

// A contiguous array as a tensor that does not own it. numpy has no bfloat16: where `expected` is
// bf16, the array is its bits as uint16. Throws InputError for dtypes the core does not know.
Tensor tensor_of(const InputArray& array, DType expected);

// Any object, kept alive by the tensor wherever its last copy dies.
Tensor tensor_keeping(nanobind::object object);
std::shared_ptr<void> keep_alive(nanobind::object object);
nanobind::object kept_object(const Tensor& tensor);

// A numpy array over the tensor's memory. It shares ownership, or borrows where there is none.
nanobind::object array_over(const Tensor& tensor);

}  // namespace dvm
