// Compress: arguments (axis), or none for the elements of the tensor in a row. Keeps the entries
// whose condition holds; those beyond the conditions are left out.
#include <algorithm>
#include <cstring>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

template <class T>
void gather(const T* in, T* out, std::span<const int64_t> kept) {
  for (const int64_t from : kept) *out++ = in[from];
}

}  // namespace

void compress(HostFrame& frame) {
  const Tensor& x = frame.operand(0);
  const Tensor& condition = frame.operand(1);
  std::vector<int64_t> shape = x.shape;
  if (frame.arguments() == 0) shape = {elements_of(shape)};
  const size_t axis = frame.arguments() == 0 ? 0 : frame.axis(0, shape.size());
  const AroundAxis around(shape, axis);
  const auto* const flags = frame.data<uint8_t>(1);
  const int64_t conditions = std::min(elements_of(condition.shape), around.extent);

  // Each position is written before it is known to count.
  auto* const kept = reinterpret_cast<int64_t*>(
      frame.scratch((conditions + 1) * static_cast<int64_t>(sizeof(int64_t))));
  int64_t count = 0;
  for (int64_t i = 0; i < conditions; i++) {
    kept[count] = i;
    count += flags[i] != 0;
  }

  shape[axis] = count;
  std::byte* out = frame.give(0, x.dtype, shape);
  if (out == nullptr || count == 0) return;
  const auto bytes = static_cast<int64_t>(size_of(x.dtype)) * around.behind;
  const std::byte* in = x.data;
  const std::span<const int64_t> rows(kept, static_cast<size_t>(count));
  for (int64_t before = 0; before < around.before; before++, in += around.extent * bytes) {
    switch (bytes) {
      case 1:
        gather(reinterpret_cast<const uint8_t*>(in), reinterpret_cast<uint8_t*>(out), rows);
        break;
      case 2:
        gather(reinterpret_cast<const uint16_t*>(in), reinterpret_cast<uint16_t*>(out), rows);
        break;
      case 4:
        gather(reinterpret_cast<const uint32_t*>(in), reinterpret_cast<uint32_t*>(out), rows);
        break;
      case 8:
        gather(reinterpret_cast<const uint64_t*>(in), reinterpret_cast<uint64_t*>(out), rows);
        break;
      default:
        for (size_t i = 0; i < rows.size(); i++) {
          std::memcpy(out + static_cast<int64_t>(i) * bytes, in + rows[i] * bytes,
                      static_cast<size_t>(bytes));
        }
    }
    out += count * bytes;
  }
}

}  // namespace dvm
