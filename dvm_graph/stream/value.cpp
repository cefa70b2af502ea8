#include "stream/value.h"

#include <cstring>

#include "kernels/half.h"
#include "runtime/tensor.h"

namespace dvm::stream {
namespace {

template <typename T>
void put(Value& value, T number) {
  std::memcpy(value.number, &number, sizeof number);
}

template <typename T>
bool put_integer(Value& value, int64_t number) {
  if (static_cast<int64_t>(static_cast<T>(number)) != number) return false;
  if (sizeof(T) == 8 && std::is_unsigned_v<T> && number < 0) return false;
  put(value, static_cast<T>(number));
  return true;
}

}  // namespace

std::string text_of(const Value& value) {
  return std::string(long_name_of(value.dtype)) + " " + shape_text(value.shape.all());
}

bool set_number(Value& value, double number) {
  value.constant = true;
  value.data = value.number;
  switch (value.dtype) {
    case DType::f64: put(value, number); break;
    case DType::f32:
      put(value, static_cast<float>(number));
      number = static_cast<float>(number);
      break;
    case DType::f16: {
      const uint16_t bits = half_of_double(number);
      put(value, bits);
      number = float_of_half(bits);
      break;
    }
    case DType::bf16: {
      const uint16_t bits = bfloat_of_float(static_cast<float>(number));
      put(value, bits);
      number = float_of_bfloat(bits);
      break;
    }
    default: return false;
  }
  value.scalar = number;
  return true;
}

bool set_number(Value& value, int64_t number) {
  if (is_float(value.dtype)) return set_number(value, static_cast<double>(number));
  value.constant = true;
  value.data = value.number;
  value.integer = number;
  switch (value.dtype) {
    case DType::b8:
      if (number != 0 && number != 1) return false;
      put(value, static_cast<uint8_t>(number));
      return true;
    case DType::i8: return put_integer<int8_t>(value, number);
    case DType::i16: return put_integer<int16_t>(value, number);
    case DType::i32: return put_integer<int32_t>(value, number);
    case DType::i64: return put_integer<int64_t>(value, number);
    case DType::u8: return put_integer<uint8_t>(value, number);
    case DType::u16: return put_integer<uint16_t>(value, number);
    case DType::u32: return put_integer<uint32_t>(value, number);
    case DType::u64: return put_integer<uint64_t>(value, number);
    default: return false;
  }
}

}  // namespace dvm::stream
