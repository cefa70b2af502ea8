#include "vm/panels.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace dvm {
namespace {

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  uint32_t result = 0;
  if (exponent == 31) {
    result = sign | 0x7f800000 | mantissa << 13;
  } else if (exponent != 0) {
    result = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    std::memcpy(&result, &value, sizeof result);
    result |= sign;
  }
  float value;
  std::memcpy(&value, &result, sizeof value);
  return value;
}

float bfloat_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

template <typename Element, typename Source, typename Convert>
void pack(Element* dst, const Source* src, int64_t k, int64_t n, int64_t k_stride, int64_t n_stride,
          int64_t columns, Convert convert) {
  for (int64_t first = 0; first < n; first += columns) {
    const int64_t width = std::min(columns, n - first);
    for (int64_t row = 0; row < k; ++row) {
      const Source* from = src + row * k_stride + first * n_stride;
      for (int64_t column = 0; column < width; ++column) {
        dst[column] = convert(from[column * n_stride]);
      }
      std::fill(dst + width, dst + columns, Element{0});
      dst += columns;
    }
  }
}

}  // namespace

int panel_columns(DType dtype, const Target& target) {
  return dtype == DType::f64 ? std::max(1, target.matmul_nr / 2) : target.matmul_nr;
}

int64_t packed_bytes(int64_t k, int64_t n, int64_t batch, DType dtype, const Target& target) {
  const int64_t columns = panel_columns(dtype, target);
  return batch * k * ((n + columns - 1) / columns * columns) * static_cast<int64_t>(size_of(dtype));
}

void pack_panels(std::byte* dst, const std::byte* src, DType storage, int64_t k, int64_t n,
                 int64_t batch, int64_t batch_stride, int64_t k_stride, int64_t n_stride,
                 const Target& target) {
  const DType dtype = register_dtype(storage);
  const int64_t columns = panel_columns(dtype, target);
  const int64_t entry = packed_bytes(k, n, 1, dtype, target);
  for (int64_t b = 0; b < batch; ++b, dst += entry) {
    const std::byte* from = src + b * batch_stride * static_cast<int64_t>(size_of(storage));
    const auto run = [&]<typename Element, typename Source>(Element*, const Source*, auto convert) {
      pack(reinterpret_cast<Element*>(dst), reinterpret_cast<const Source*>(from), k, n, k_stride,
           n_stride, columns, convert);
    };
    switch (storage) {
      case DType::f32:
        run(static_cast<float*>(nullptr), static_cast<const float*>(nullptr),
            [](float x) { return x; });
        break;
      case DType::f64:
        run(static_cast<double*>(nullptr), static_cast<const double*>(nullptr),
            [](double x) { return x; });
        break;
      case DType::f16:
        run(static_cast<float*>(nullptr), static_cast<const uint16_t*>(nullptr), half_to_float);
        break;
      case DType::bf16:
        run(static_cast<float*>(nullptr), static_cast<const uint16_t*>(nullptr), bfloat_to_float);
        break;
      default: throw std::invalid_argument("panels hold floating types only");
    }
  }
}

}  // namespace dvm
