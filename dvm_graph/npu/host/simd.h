// Vectors of one instruction-set level, through the GCC/Clang vector extensions.
//
// This header and everything that includes it is compiled once per level, with different flags, so
// all of it has internal linkage: an inline function with external linkage (ours or the standard
// library's) compiled for AVX-512 could be the copy the linker keeps for every caller. For the same
// reason no function of the standard library and no inline function of vm/ is called from here.
//
// `Vec<T, L>` has L elements of T; a *full* vector has kVectorBytes. Partial loads fill the missing
// lanes with zeros and never touch memory past the count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__x86_64__) && !defined(DVM_PORTABLE)  // of the build: as on CPUs of other kinds
#define DVM_X86 1
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#if defined(__AMX_INT8__)
#define DVM_LEVEL       x86_64_v4_amx
#define DVM_AMX         1
#define DVM_AVX512_BF16 1
#define DVM_AVX512_VNNI 1
#elif defined(__AVX512BF16__)
#define DVM_LEVEL       x86_64_v4_bf16
#define DVM_AVX512_BF16 1
#elif defined(__AVX512VNNI__)
#define DVM_LEVEL       x86_64_v4_vnni
#define DVM_AVX512_VNNI 1
#else
#define DVM_LEVEL x86_64_v4
#endif
#define DVM_AVX512 1
#define DVM_AVX2   1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define DVM_LEVEL x86_64_v3
#define DVM_AVX2  1
#elif defined(DVM_X86)
#define DVM_LEVEL x86_64
#else
#define DVM_LEVEL portable
#endif

#if defined(DVM_SANITIZED)  // with every check in every copy, files would compile for many minutes
#define DVM_INLINE inline
#define DVM_LAMBDA_INLINE
#else
#define DVM_INLINE        [[gnu::always_inline]] inline
#define DVM_LAMBDA_INLINE __attribute__((always_inline))
#endif

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // a loop that cannot be vectorised may stay so
#define DVM_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define DVM_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace dvm::DVM_LEVEL {
namespace {

#if defined(DVM_AVX512)
constexpr int kVectorBytes = 64;
#elif defined(DVM_AVX2)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T, int Lanes>
struct VecOf {
  typedef T type __attribute__((vector_size(sizeof(T) * Lanes)));
};
template <class T, int Lanes>
using Vec = typename VecOf<T, Lanes>::type;

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <class T>
using Full = Vec<T, kLanes<T>>;

template <class V>
using Element = std::remove_cvref_t<decltype(std::declval<V>()[0])>;
template <class V>
constexpr int kLanesOf = static_cast<int>(sizeof(V) / sizeof(Element<V>));

template <class T>
struct Integer;
template <>
struct Integer<float> {
  using type = int32_t;
};
template <>
struct Integer<double> {
  using type = int64_t;
};
template <class V>
using IntegerVec = Vec<typename Integer<Element<V>>::type, kLanesOf<V>>;

template <class To, class V>
DVM_INLINE To bits_as(V v) {
  static_assert(sizeof(To) == sizeof(V));
  To result;
  __builtin_memcpy(&result, &v, sizeof result);
  return result;
}

template <class V>
DVM_INLINE V load(const Element<V>* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
DVM_INLINE void store(Element<V>* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

template <class V>
DVM_INLINE V splat(Element<V> x) {
#if defined(__clang__)
  V v;
  for (int i = 0; i < kLanesOf<V>; i++) v[i] = x;
  return v;
#else
  if constexpr (std::is_floating_point_v<Element<V>>) {
    return x - V{};
  } else {
    return x + V{};
  }
#endif
}

template <class To, class V>
DVM_INLINE Vec<To, kLanesOf<V>> convert(V v) {
  using Out [[maybe_unused]] = Vec<To, kLanesOf<V>>;
  [[maybe_unused]] constexpr bool kBytes = sizeof(Element<V>) == 1;
  [[maybe_unused]] constexpr bool kWidensBytes =
      kBytes && sizeof(To) == 4 && std::is_integral_v<To>;
  [[maybe_unused]] constexpr bool kWidensBytesMore =
      kBytes && sizeof(To) == 8 && std::is_integral_v<To>;
  [[maybe_unused]] constexpr bool kWrapsToBytes =
      sizeof(To) == 1 && sizeof(Element<V>) == 4 && std::is_integral_v<Element<V>>;
  if constexpr (std::is_same_v<To, Element<V>>) {
    return v;
#if defined(DVM_AVX2)  // GCC takes bytes that it loads or makes apart one by one
  } else if constexpr (kBytes && std::is_floating_point_v<To>) {
    return convert<To>(convert<int32_t>(v));
#endif
#if defined(DVM_AVX512)
  } else if constexpr (kWrapsToBytes && sizeof(V) == 64) {
    return bits_as<Out>(_mm512_cvtepi32_epi8(bits_as<__m512i>(v)));
  } else if constexpr (kBytes && sizeof(V) == 8 && (kWidensBytes || kWidensBytesMore)) {
    const __m128i bytes = _mm_cvtsi64_si128(bits_as<int64_t>(v));
    if constexpr (kWidensBytesMore)
      return bits_as<Out>(std::is_signed_v<Element<V>> ? _mm512_cvtepi8_epi64(bytes)
                                                       : _mm512_cvtepu8_epi64(bytes));
    else
      return bits_as<Out>(std::is_signed_v<Element<V>> ? _mm256_cvtepi8_epi32(bytes)
                                                       : _mm256_cvtepu8_epi32(bytes));
  } else if constexpr (kWidensBytes && sizeof(V) == 16) {
    return bits_as<Out>(std::is_signed_v<Element<V>> ? _mm512_cvtepi8_epi32(bits_as<__m128i>(v))
                                                     : _mm512_cvtepu8_epi32(bits_as<__m128i>(v)));
#elif defined(DVM_AVX2)
  } else if constexpr (kWrapsToBytes && sizeof(V) == 32) {
    const __m256i low = _mm256_and_si256(bits_as<__m256i>(v), _mm256_set1_epi32(0xff));
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    return bits_as<Out>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
  } else if constexpr (kWidensBytes && sizeof(V) == 8) {
    const __m128i bytes = _mm_cvtsi64_si128(bits_as<int64_t>(v));
    return bits_as<Out>(std::is_signed_v<Element<V>> ? _mm256_cvtepi8_epi32(bytes)
                                                     : _mm256_cvtepu8_epi32(bytes));
  } else if constexpr (kWidensBytesMore && sizeof(V) == 4) {
    const __m128i bytes = _mm_cvtsi32_si128(bits_as<int32_t>(v));
    return bits_as<Out>(std::is_signed_v<Element<V>> ? _mm256_cvtepi8_epi64(bytes)
                                                     : _mm256_cvtepu8_epi64(bytes));
#endif
#if !defined(DVM_X86)
  } else if constexpr (std::is_floating_point_v<Element<V>> && std::is_integral_v<To>) {
    // What does not fit is the least number, as x86 has it; elsewhere an end of the type, or 0.
    static_assert(std::is_signed_v<To> && sizeof(To) >= 4);
    constexpr auto kLeast = static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1));
    constexpr auto kEnd = static_cast<Element<V>>(kLeast);
    const Out fits = __builtin_convertvector((v >= kEnd) & (v < -kEnd), Out);
    return fits != 0 ? __builtin_convertvector(v, Out) : splat<Out>(kLeast);
#endif
  } else {
    return __builtin_convertvector(v, Out);
  }
}

#if defined(DVM_AVX512)
template <int Bits>
DVM_INLINE uint64_t lane_mask(int64_t count) {
  return _bzhi_u64(~uint64_t{0}, static_cast<unsigned>(count));
}
#endif

#if defined(DVM_AVX2) && !defined(DVM_AVX512)
DVM_INLINE __m256i lane_mask_32(int64_t count) {
  alignas(32) static constexpr int32_t kSliding[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                       0,  0,  0,  0,  0,  0,  0,  0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kSliding + 8 - count));
}
DVM_INLINE __m256i lane_mask_64(int64_t count) {
  alignas(32) static constexpr int64_t kSliding[8] = {-1, -1, -1, -1, 0, 0, 0, 0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kSliding + 4 - count));
}
#endif

// Copies `count` < Limit elements in pieces of constant, falling power-of-two size.
template <int Limit, class T>
DVM_INLINE void copy_pieces(T* to, const T* from, int64_t count) {
  if constexpr (Limit > 1) {
    constexpr int kHalf = Limit / 2;
    if (count & kHalf) {
      __builtin_memcpy(to, from, kHalf * sizeof(T));
      to += kHalf;
      from += kHalf;
    }
    copy_pieces<kHalf>(to, from, count);
  }
}

// The first `count` (0 <= count <= lanes) elements; zeros in the other lanes.
template <class V>
DVM_INLINE V load_partial(const Element<V>* from, int64_t count) {
  [[maybe_unused]] constexpr size_t kElement = sizeof(Element<V>);
#if defined(DVM_AVX512)
  if constexpr (sizeof(V) == 64 && kElement == 4)
    return bits_as<V>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(lane_mask<16>(count)), from));
  else if constexpr (sizeof(V) == 64 && kElement == 8)
    return bits_as<V>(_mm512_maskz_loadu_epi64(static_cast<__mmask8>(lane_mask<8>(count)), from));
  else if constexpr (sizeof(V) == 64 && kElement == 2)
    return bits_as<V>(_mm512_maskz_loadu_epi16(static_cast<__mmask32>(lane_mask<32>(count)), from));
  else if constexpr (sizeof(V) == 64 && kElement == 1)
    return bits_as<V>(_mm512_maskz_loadu_epi8(lane_mask<64>(count), from));
  else if constexpr (sizeof(V) == 32 && kElement == 4)
    return bits_as<V>(_mm256_maskz_loadu_epi32(static_cast<__mmask8>(lane_mask<8>(count)), from));
  else if constexpr (sizeof(V) == 32 && kElement == 2)
    return bits_as<V>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(lane_mask<16>(count)), from));
  else if constexpr (sizeof(V) == 16 && kElement == 1)
    return bits_as<V>(_mm_maskz_loadu_epi8(static_cast<__mmask16>(lane_mask<16>(count)), from));
  else if constexpr (sizeof(V) == 16 && kElement == 2)
    return bits_as<V>(_mm_maskz_loadu_epi16(static_cast<__mmask8>(lane_mask<8>(count)), from));
  else
#elif defined(DVM_AVX2)
  if constexpr (sizeof(V) == 32 && kElement == 4)
    return bits_as<V>(
        _mm256_maskload_epi32(reinterpret_cast<const int*>(from), lane_mask_32(count)));
  else if constexpr (sizeof(V) == 32 && kElement == 8)
    return bits_as<V>(
        _mm256_maskload_epi64(reinterpret_cast<const long long*>(from), lane_mask_64(count)));
  else
#endif
  {
    V v{};
    if (count == kLanesOf<V>) return load<V>(from);
    copy_pieces<kLanesOf<V>>(reinterpret_cast<Element<V>*>(&v), from, count);
    return v;
  }
}

template <class V>
DVM_INLINE void store_partial(Element<V>* to, V v, int64_t count) {
  [[maybe_unused]] constexpr size_t kElement = sizeof(Element<V>);
#if defined(DVM_AVX512)
  // GCC may fold the masked store of an upper or lower half into a masked vextract to memory, which
  // faults on masked-out bytes; hiding where the half comes from prevents it.
  if constexpr (sizeof(V) == 16 || sizeof(V) == 32) asm("" : "+v"(v));
  if constexpr (sizeof(V) == 64 && kElement == 4)
    _mm512_mask_storeu_epi32(to, static_cast<__mmask16>(lane_mask<16>(count)), bits_as<__m512i>(v));
  else if constexpr (sizeof(V) == 64 && kElement == 8)
    _mm512_mask_storeu_epi64(to, static_cast<__mmask8>(lane_mask<8>(count)), bits_as<__m512i>(v));
  else if constexpr (sizeof(V) == 64 && kElement == 2)
    _mm512_mask_storeu_epi16(to, static_cast<__mmask32>(lane_mask<32>(count)), bits_as<__m512i>(v));
  else if constexpr (sizeof(V) == 64 && kElement == 1)
    _mm512_mask_storeu_epi8(to, lane_mask<64>(count), bits_as<__m512i>(v));
  else if constexpr (sizeof(V) == 32 && kElement == 4)
    _mm256_mask_storeu_epi32(to, static_cast<__mmask8>(lane_mask<8>(count)), bits_as<__m256i>(v));
  else if constexpr (sizeof(V) == 32 && kElement == 2)
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>(lane_mask<16>(count)), bits_as<__m256i>(v));
  else if constexpr (sizeof(V) == 16 && kElement == 1)
    _mm_mask_storeu_epi8(to, static_cast<__mmask16>(lane_mask<16>(count)), bits_as<__m128i>(v));
  else if constexpr (sizeof(V) == 16 && kElement == 2)
    _mm_mask_storeu_epi16(to, static_cast<__mmask8>(lane_mask<8>(count)), bits_as<__m128i>(v));
  else
#elif defined(DVM_AVX2)
  if constexpr (sizeof(V) == 32 && kElement == 4)
    _mm256_maskstore_epi32(reinterpret_cast<int*>(to), lane_mask_32(count), bits_as<__m256i>(v));
  else if constexpr (sizeof(V) == 32 && kElement == 8)
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(to), lane_mask_64(count),
                           bits_as<__m256i>(v));
  else
#endif
  {
    if (count == kLanesOf<V>) return store(to, v);
    copy_pieces<kLanesOf<V>>(to, reinterpret_cast<const Element<V>*>(&v), count);
  }
}

// A store around the caches, where the level has one; `to` is aligned to the vector. Other cores
// may read it once this one has left the stage (device.cpp).
template <class V>
DVM_INLINE void store_stream(Element<V>* to, V v) {
#if defined(DVM_AVX512)
  if constexpr (sizeof(V) == 64)
    return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits_as<__m512i>(v));
#elif defined(DVM_AVX2)
  if constexpr (sizeof(V) == 32)
    return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits_as<__m256i>(v));
#elif defined(DVM_X86)
  if constexpr (sizeof(V) == 16)
    return _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits_as<__m128i>(v));
#endif
  store(to, v);
}

// Elements from `at` to the next whole vector in memory, at most n.
template <class T>
DVM_INLINE int64_t to_alignment(const T* at, int64_t n) {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) % kVectorBytes);
  const int64_t missing = (kVectorBytes - past) % kVectorBytes / static_cast<int64_t>(sizeof(T));
  return missing < n ? missing : n;
}

template <class T>
DVM_INLINE T lesser(T a, T b) {
  return b < a ? b : a;
}
template <class T>
DVM_INLINE T greater(T a, T b) {
  return a < b ? b : a;
}

// a < b ? a : b, and so b where either is NaN: one instruction where the compiler would take two.
template <class V>
DVM_INLINE V lesser_lanes(V a, V b) {
#if defined(DVM_AVX512)
  if constexpr (std::is_same_v<V, Full<float>>)
    return bits_as<V>(_mm512_min_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
  if constexpr (std::is_same_v<V, Full<double>>)
    return bits_as<V>(_mm512_min_pd(bits_as<__m512d>(a), bits_as<__m512d>(b)));
#endif
  return a < b ? a : b;
}
template <class V>
DVM_INLINE V greater_lanes(V a, V b) {
#if defined(DVM_AVX512)
  if constexpr (std::is_same_v<V, Full<float>>)
    return bits_as<V>(_mm512_max_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
  if constexpr (std::is_same_v<V, Full<double>>)
    return bits_as<V>(_mm512_max_pd(bits_as<__m512d>(a), bits_as<__m512d>(b)));
  if constexpr (std::is_same_v<V, Vec<float, 8>>)
    return bits_as<V>(_mm256_max_ps(bits_as<__m256>(a), bits_as<__m256>(b)));
  if constexpr (std::is_same_v<V, Vec<float, 4>>)
    return bits_as<V>(_mm_max_ps(bits_as<__m128>(a), bits_as<__m128>(b)));
#endif
  return a > b ? a : b;
}

// Whether an instruction shuffles any lanes, or each is moved by itself.
#if defined(__x86_64__) && !defined(DVM_AVX2)
constexpr bool kShufflesAtOnce = false;
#else
constexpr bool kShufflesAtOnce = true;
#endif

// The lanes of a vector, or of two, that the lanes of `from` number.
template <class V>
DVM_INLINE V shuffled(V x, IntegerVec<V> from) {
#if defined(__clang__)
  V result;
  for (int i = 0; i < kLanesOf<V>; i++) result[i] = x[from[i] & (kLanesOf<V> - 1)];
  return result;
#else
  return __builtin_shuffle(x, from);
#endif
}
template <class V>
DVM_INLINE V shuffled(V low, V high, IntegerVec<V> from) {
#if defined(__clang__)
  V result;
  for (int i = 0; i < kLanesOf<V>; i++) {
    const auto lane = from[i] & (kLanesOf<V> - 1);
    result[i] = (from[i] & kLanesOf<V>) != 0 ? high[lane] : low[lane];
  }
  return result;
#else
  return __builtin_shuffle(low, high, from);
#endif
}

template <int First, class V, int... I>
DVM_INLINE auto slice(V v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, (First + I)...);
}
template <class V>
DVM_INLINE auto low_half(V v) {
  return slice<0>(v, std::make_integer_sequence<int, kLanesOf<V> / 2>{});
}
template <class V>
DVM_INLINE auto high_half(V v) {
  return slice<kLanesOf<V> / 2>(v, std::make_integer_sequence<int, kLanesOf<V> / 2>{});
}
template <class V, int... I>
DVM_INLINE auto join(V low, V high, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(low, high, I...);
}
template <class V>
DVM_INLINE auto join(V low, V high) {
  return join(low, high, std::make_integer_sequence<int, kLanesOf<V> * 2>{});
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
