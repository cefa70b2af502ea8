// Sizes of values in bytes, for given dims.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model.h"

namespace dvm {

int64_t bytes_of(const Tensor& tensor);
bool overlap(const Tensor& a, const Tensor& b);  // in memory

// Size of every value's buffer; -1 where it cannot be said (a dim is unknown, or the size does not
// fit 64 bits).
void measure_values(const Model& model, const Dims& dims, std::vector<ValueInfo>& infos);

// Why measure_values gave -1: throws ShapeError or OutOfMemoryError naming the value.
[[noreturn]] void throw_bad_size(const Model& model, uint32_t value, const Dims& dims);

}  // namespace dvm
