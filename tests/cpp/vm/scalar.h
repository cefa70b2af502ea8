// Slow, obvious arithmetic on one element: the meaning of instructions and plan operators, shared
// by the reference device and the reference plan. Floats are computed in double and rounded to
// their dtype when written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/plan.h"

namespace dvm::reference {

struct Scalar {
  double real = 0;      // of floating dtypes
  int64_t integer = 0;  // of integer dtypes and b8
};

bool is_floating(DType dtype);
Scalar read(DType storage, const std::byte* from);
void write(DType storage, std::byte* to, Scalar value);

// `value` as it comes back after being written in this dtype.
Scalar rounded(DType dtype, Scalar value);
Scalar convert(DType from, DType to, Scalar value);

// Element k of `count`, rounded to a multiple of 1/127 of the greatest magnitude in its block.
double rounded_in_block(int64_t k, int64_t count, int64_t block,
                        const std::function<double(int64_t)>& element);

// Maps other than access and generator operators; dtype is that of the inputs (select: of the
// values).
Scalar apply(PlanOp op, DType dtype, Scalar a, Scalar b = {}, Scalar c = {});

Scalar identity(PlanOp reduction, DType dtype);
Scalar combine(PlanOp reduction, DType dtype, Scalar a, Scalar b);

}  // namespace dvm::reference
