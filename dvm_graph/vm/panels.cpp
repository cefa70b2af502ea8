#include "vm/panels.h"

#include <algorithm>

namespace dvm {
int panel_columns(DType dtype, const Target& target) {
  return dtype == DType::f64 ? std::max(1, target.matmul_nr / 2) : target.matmul_nr;
}

int64_t packed_bytes(int64_t k, int64_t n, int64_t batch, DType dtype, const Target& target) {
  const int64_t columns = panel_columns(dtype, target);
  return batch * k * ((n + columns - 1) / columns * columns) * static_cast<int64_t>(size_of(dtype));
}

}  // namespace dvm
