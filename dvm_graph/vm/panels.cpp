#include "vm/panels.h"

namespace dvm {

int64_t packed_bytes(int64_t k, int64_t n, int64_t batch, DType dtype, const Target& target) {
  const int64_t columns = panel_columns(dtype, target);
  return batch * k * ((n + columns - 1) / columns * columns) * static_cast<int64_t>(size_of(dtype));
}

}  // namespace dvm
