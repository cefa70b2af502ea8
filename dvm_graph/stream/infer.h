// What an operator on these operands gives: its dtype and shape, or why it cannot be.
#pragma once

#include <span>
#include <string>

#include "stream/value.h"

namespace dvm::stream {

// Throws InputError for wrong numbers, dtypes or attributes, ShapeError for shapes that do not fit,
// UnsupportedError for what kernels cannot compute. `dtype`: of casts.
void infer(Op op, std::span<const ValueRef> operands, std::span<const int64_t> attrs,
           const DType* dtype, DType& result, Shape& shape);

// Why kernels cannot compute it with operands of these dtypes; empty: they can.
std::string refusal_of(Op op, std::span<const DType> operands);

}  // namespace dvm::stream
