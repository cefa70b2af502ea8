// Conversion between storage dtypes (global memory) and register dtypes (local memory).
// f16 and bf16 round to nearest even and keep NaN NaN; narrow integers wrap.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/loops.h"

namespace dvm::DVM_LEVEL {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

// How an element of a storage dtype lies in memory.
template <DType D>
struct StorageOf : ElementOf<D> {};
template <>
struct StorageOf<DType::f16> {
  using type = Half;
};
template <>
struct StorageOf<DType::bf16> {
  using type = BFloat;
};
template <>
struct StorageOf<DType::u8> {
  using type = uint8_t;
};
template <>
struct StorageOf<DType::i16> {
  using type = int16_t;
};
template <>
struct StorageOf<DType::u16> {
  using type = uint16_t;
};
template <>
struct StorageOf<DType::u32> {
  using type = uint32_t;
};
template <>
struct StorageOf<DType::u64> {
  using type = int64_t;  // carried as i64 bits
};
template <DType D>
using StorageType = typename StorageOf<D>::type;
template <DType D>
using RegisterType = ElementType<register_dtype(D)>;

// What a move takes elements for, so that those which it treats alike have one code: words that it
// does not convert are floats, and numbers that it narrows are signed.
template <DType D>
struct Moved {
 private:
  using S = StorageType<D>;
  using R = RegisterType<D>;
  static constexpr bool kConverts = !std::is_same_v<S, R>;
  template <class T>
  using Word = std::conditional_t<std::is_same_v<T, int32_t>, float,
                                  std::conditional_t<std::is_same_v<T, int64_t>, double, T>>;
  template <class T>
  using Signed = std::conditional_t<std::is_same_v<T, uint8_t>, int8_t,
                                    std::conditional_t<std::is_same_v<T, uint16_t>, int16_t, T>>;

 public:
  using Register = std::conditional_t<kConverts, R, Word<R>>;
  using Loaded = std::conditional_t<kConverts, S, Word<S>>;
  using Stored = std::conditional_t<kConverts, Signed<S>, Word<S>>;
};

// The integer or floating type whose vectors hold this storage type.
template <class S>
using LaneType =
    std::conditional_t<std::is_same_v<S, Half> || std::is_same_v<S, BFloat>, uint16_t, S>;

template <int L>
DVM_INLINE Vec<float, L> widen(Vec<uint16_t, L> v, BFloat) {
#if defined(DVM_AVX512)  // GCC widens halves of it and puts them together
  if constexpr (L == 16)
    return bits_as<Vec<float, L>>(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits_as<__m256i>(v)), 16));
#endif
#if defined(DVM_AVX2)
  if constexpr (L == 8)
    return bits_as<Vec<float, L>>(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits_as<__m128i>(v)), 16));
#endif
  return bits_as<Vec<float, L>>(convert<uint32_t>(v) << 16);
}

#if defined(DVM_AVX512)
// The bf16 are the upper halves. (The conversions of AVX512-BF16 take denormals for 0.)
DVM_INLINE __m512i rounded_upper_halves(Full<float> v) {
  const __m512i bits = bits_as<__m512i>(v);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __mmask16 nan = _mm512_cmp_ps_mask(bits_as<__m512>(v), bits_as<__m512>(v), _CMP_UNORD_Q);
  const __m512i below = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_mask_add_epi32(below, odd, below, _mm512_set1_epi32(1));
  return _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
}
#endif

template <int L>
DVM_INLINE Vec<uint16_t, L> narrow(Vec<float, L> v, BFloat) {
#if defined(DVM_AVX512)
  if constexpr (L == 16)
    return bits_as<Vec<uint16_t, L>>(
        _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_upper_halves(v), 16)));
#endif
  using U = Vec<uint32_t, L>;
  const U bits = bits_as<U>(v);
  const U rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const U quiet_nan = (bits >> 16) | 0x40;
  return convert<uint16_t>(v != v ? quiet_nan : rounded);
}

// Exponent and mantissa move down by 13 bits; rescaling by 2^112 corrects the bias and, because the
// multiplication is exact, normalises subnormals.
template <int L>
DVM_INLINE Vec<float, L> widen_half_portably(Vec<uint16_t, L> v) {
  using U = Vec<uint32_t, L>;
  using F = Vec<float, L>;
  const U bits = convert<uint32_t>(v);
  const F scaled = bits_as<F>((bits & 0x7fff) << 13) * 0x1p112f;
  const U infinite = bits_as<U>(scaled) | 0x7f800000u;
  const U magnitude = (bits & 0x7c00) == 0x7c00 ? infinite : bits_as<U>(scaled);
  return bits_as<F>(magnitude | ((bits & 0x8000) << 16));
}

template <int L>
DVM_INLINE Vec<uint16_t, L> narrow_half_portably(Vec<float, L> v) {
  using U = Vec<uint32_t, L>;
  using F = Vec<float, L>;
  const U all = bits_as<U>(v);
  const U bits = all & 0x7fffffff;
  const U normal = (bits - 0x38000000 + 0xfff + ((bits >> 13) & 1)) >> 13;
  // Adding 0.5 puts a subnormal half's last bit at the float's last bit; the addition rounds.
  const U subnormal = bits_as<U>(bits_as<F>(bits) + 0.5f) - 0x3f000000;
  U half = bits < 0x38800000 ? subnormal : normal;
  half = bits >= 0x477ff000 ? U{} + 0x7c00 : half;
  half = bits > 0x7f800000 ? ((bits >> 13) & 0x3ff) | 0x7e00 : half;
  return convert<uint16_t>(half | ((all >> 16) & 0x8000));
}

template <int L>
DVM_INLINE Vec<float, L> widen(Vec<uint16_t, L> v, Half) {
#if defined(DVM_AVX512)
  if constexpr (L == 16) return bits_as<Vec<float, L>>(_mm512_cvtph_ps(bits_as<__m256i>(v)));
#endif
#if defined(DVM_AVX2)
  if constexpr (L == 8) return bits_as<Vec<float, L>>(_mm256_cvtph_ps(bits_as<__m128i>(v)));
#endif
  return widen_half_portably<L>(v);
}

template <int L>
DVM_INLINE Vec<uint16_t, L> narrow(Vec<float, L> v, Half) {
#if defined(DVM_AVX512)
  if constexpr (L == 16)
    return bits_as<Vec<uint16_t, L>>(
        _mm512_cvtps_ph(bits_as<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(DVM_AVX2)
  if constexpr (L == 8)
    return bits_as<Vec<uint16_t, L>>(
        _mm256_cvtps_ph(bits_as<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#endif
  return narrow_half_portably<L>(v);
}

// Two full vectors of f32 as one of 16-bit elements.
template <class S>
DVM_INLINE Full<uint16_t> narrow_two(Full<float> low, Full<float> high) {
#if defined(DVM_AVX512)
  if constexpr (std::is_same_v<S, BFloat>) {
    alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                        23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                        45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return bits_as<Full<uint16_t>>(_mm512_permutex2var_epi16(
        rounded_upper_halves(low), _mm512_load_si512(kUpper), rounded_upper_halves(high)));
  }
#endif
  constexpr int L = kLanes<float>;
  return join(narrow<L>(low, S{}), narrow<L>(high, S{}));
}

// Lanes of a storage type as lanes of another type, and back.
template <class To, class From, int L>
DVM_INLINE Vec<LaneType<To>, L> convert_lanes(Vec<LaneType<From>, L> v) {
  if constexpr (std::is_same_v<To, From>)
    return v;
  else if constexpr (!std::is_arithmetic_v<From>)
    return widen<L>(v, From{});
  else if constexpr (!std::is_arithmetic_v<To>)
    return narrow<L>(v, To{});
  else
    return convert<To>(v);
}

template <class To, class From>
DVM_INLINE To convert_one(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else {
    Vec<LaneType<From>, 4> v{};
    __builtin_memcpy(&v, &x, sizeof x);
    const auto converted = convert_lanes<To, From, 4>(v);
    To result;
    __builtin_memcpy(&result, &converted, sizeof result);
    return result;
  }
}

// Lanes per step: a full vector of the wider of the two types.
template <class To, class From>
constexpr int kConvertLanes =
    kLanes<LaneType<std::conditional_t<(sizeof(To) > sizeof(From)), To, From>>>;

template <class To, class From>
DVM_INLINE void convert_row(To* to, const From* from, int64_t n, bool stream = false) {
  constexpr int L = kConvertLanes<To, From>;
  using In = Vec<LaneType<From>, L>;
  const auto* in = reinterpret_cast<const LaneType<From>*>(from);
  auto* out = reinterpret_cast<LaneType<To>*>(to);
  const auto whole = [=](int64_t i)
                         DVM_LAMBDA_INLINE { return convert_lanes<To, From, L>(load<In>(in + i)); };
  const auto part = [=](int64_t i, int64_t count) DVM_LAMBDA_INLINE {
    return convert_lanes<To, From, L>(load_partial<In>(in + i, count));
  };
  if constexpr (L == kLanes<LaneType<To>>) {
    store_row(out, n, stream, whole, part);
  } else {
    int64_t i = 0;
    const auto convert_until = [&](int64_t end) DVM_LAMBDA_INLINE {
      for (; i + L <= end; i += L) store(out + i, whole(i));
      if (i < end) store_partial(out + i, part(i, end - i), end - i);
      i = end;
    };
    if constexpr (2 * L == kLanes<LaneType<To>>) {  // two make one vector to go around the caches
      if (stream) {
        convert_until(to_alignment(out, n));
        for (; i + 2 * L <= n; i += 2 * L) store_stream(out + i, join(whole(i), whole(i + L)));
      }
    }
    convert_until(n);
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
