// NonZero: no arguments. The coordinates of elements that are not 0, a row for each axis; a scalar
// has one axis of one element.
#include <cstring>

#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

constexpr int64_t kBlock = 4096;  // whose count fits 32 bits, of which a vector holds more

// `mask` drops the sign of floats: -0 is 0.
template <class T>
int64_t count_set(const T* x, int64_t count, T mask) {
  int64_t set = 0;
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t end = std::min(count, at + kBlock);
    int32_t part = 0;
    for (int64_t i = at; i < end; i++) part += (x[i] & mask) != 0;
    set += part;
  }
  return set;
}

template <class T>
void find(HostFrame& frame, T mask) {
  const Tensor& x = frame.operand(0);
  std::vector<int64_t> shape = x.shape;
  if (shape.empty()) shape.push_back(1);
  const int64_t elements = elements_of(shape), last = shape.back();
  const T* data = frame.data<T>(0);
  const int64_t found = count_set(data, elements, mask);
  const size_t inner = shape.size() - 1;
  // Each position is written before it is known to count: the last one behind all that do.
  std::byte* const memory =
      frame.give(0, DType::i64, {static_cast<int64_t>(shape.size()), found}, sizeof(int64_t));
  if (memory == nullptr) return;
  auto* const out = reinterpret_cast<int64_t*>(memory);
  int64_t* const positions = out + static_cast<int64_t>(inner) * found;
  std::vector<int64_t> at(inner, 0);
  int64_t done = 0;
  for (int64_t row = 0; row < elements; row += last) {
    const int64_t begin = done;
    for (int64_t i = 0; i < last; i++) {
      positions[done] = i;
      done += (data[row + i] & mask) != 0;
    }
    for (size_t axis = 0; done > begin && axis < inner; axis++) {
      int64_t* const coordinates = out + static_cast<int64_t>(axis) * found;
      std::fill(coordinates + begin, coordinates + done, at[axis]);
    }
    for (size_t axis = inner; axis-- > 0;) {
      if (++at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
}

}  // namespace

void non_zero(HostFrame& frame) {
  switch (frame.operand(0).dtype) {
    case DType::f16:
    case DType::bf16: return find<uint16_t>(frame, 0x7fff);
    case DType::f32: return find<uint32_t>(frame, 0x7fffffffu);
    case DType::f64: return find<uint64_t>(frame, 0x7fffffffffffffffu);
    case DType::b8:
    case DType::i8:
    case DType::u8: return find<uint8_t>(frame, 0xff);
    case DType::i16:
    case DType::u16: return find<uint16_t>(frame, 0xffff);
    case DType::i32:
    case DType::u32: return find<uint32_t>(frame, ~uint32_t{0});
    case DType::i64:
    case DType::u64: return find<uint64_t>(frame, ~uint64_t{0});
  }
}

}  // namespace dvm
