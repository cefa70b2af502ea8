// Elements as integers in the order of what they stand for, so that operators that sort or search
// need no case for each type: NaN is equal to NaN and above everything, -0 equal to 0.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/dtype.h"

namespace dvm {

template <class Stored, class Wide, int kMantissa>
struct FloatKeys {
  using Storage = Stored;
  using Key = Wide;
  static constexpr int kUnused = 8 * (sizeof(Wide) - sizeof(Stored));
  static Key key(Storage bits) {
    using Unsigned = std::make_unsigned_t<Wide>;
    const auto wide = static_cast<Unsigned>(static_cast<Unsigned>(bits) << kUnused);
    constexpr auto kMagnitude = static_cast<Unsigned>(std::numeric_limits<Wide>::max());
    // All ones in the exponent, none in the mantissa.
    constexpr auto kInfinity =
        static_cast<Unsigned>(kMagnitude >> (kMantissa + kUnused) << (kMantissa + kUnused));
    const Unsigned magnitude = wide & kMagnitude;
    const Wide ordered = wide > kMagnitude ? static_cast<Wide>(-static_cast<Wide>(magnitude))
                                           : static_cast<Wide>(wide);
    return magnitude > kInfinity ? std::numeric_limits<Wide>::max() : ordered;
  }
};

// Those of the types that processors compare.
template <class Float, class Stored, class Wide, int kMantissa>
struct RealKeys : FloatKeys<Stored, Wide, kMantissa> {
  using Real = Float;
  // An element with this key.
  static Real real(Wide key) {
    constexpr Wide kSign = std::numeric_limits<Wide>::min();
    return std::bit_cast<Real>(key < 0 ? static_cast<Wide>(kSign - key) : key);
  }
};

template <class Stored, class Wide>
struct IntegerKeys {
  using Storage = Stored;
  using Key = Wide;
  static Key key(Storage value) { return static_cast<Key>(value); }
};

// Those of as many bits as a key, whose sign bit is none.
template <class Stored, class Wide>
struct UnsignedKeys {
  using Storage = Stored;
  using Key = Wide;
  static Key key(Storage value) {
    return static_cast<Key>(value ^ (Storage{1} << (8 * sizeof(Storage) - 1)));
  }
};

// Calls `visit` with the keys of a type as a value of one of the classes above.
template <class Visit>
void with_keys(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::f32: return visit(RealKeys<float, uint32_t, int32_t, 23>{});
    case DType::f64: return visit(RealKeys<double, uint64_t, int64_t, 52>{});
    case DType::f16: return visit(FloatKeys<uint16_t, int32_t, 10>{});
    case DType::bf16: return visit(FloatKeys<uint16_t, int32_t, 7>{});
    case DType::i8: return visit(IntegerKeys<int8_t, int32_t>{});
    case DType::i16: return visit(IntegerKeys<int16_t, int32_t>{});
    case DType::i32: return visit(IntegerKeys<int32_t, int32_t>{});
    case DType::i64: return visit(IntegerKeys<int64_t, int64_t>{});
    case DType::b8:
    case DType::u8: return visit(IntegerKeys<uint8_t, int32_t>{});
    case DType::u16: return visit(IntegerKeys<uint16_t, int32_t>{});
    case DType::u32: return visit(UnsignedKeys<uint32_t, int32_t>{});
    case DType::u64: return visit(UnsignedKeys<uint64_t, int64_t>{});
  }
}

}  // namespace dvm
