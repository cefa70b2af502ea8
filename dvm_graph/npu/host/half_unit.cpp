// Matrix products with operands of 16 bits, and what packs those operands.
//
//   m_matmul_widen  f32 A times panels of f16 or bf16, which are widened on their way to the FMAs:
//                   f32 arithmetic at half the memory traffic of B
//   m_matmul_bundles  A and B in bf16, two steps of k side by side in 32 bits: one instruction of
//                   AVX512-BF16 multiplies both and adds them to an f32
//
// A and panels of B are laid out as those of m_matmul and multiplied by the same loops
// (panel_loops.h), in elements of 16 or, pairs, of 32 bits; B always comes packed, padded with
// zeros.
//
// AVX512-BF16 rounds sums to nearest even, but not as two FMAs do, and takes denormal operands and
// gives denormal results as 0. Elsewhere pairs are widened and multiplied by FMAs.
//
// This file is compiled once more for AVX-512 with AVX512-BF16, in a namespace of its own.
#include "npu/host/products.h"
#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/transpose.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int64_t L = kLanes<float>, kNR = Product<Plain<float>>::kColumns;

using Sum = Full<float>;
using Pairs = Full<uint32_t>;

template <class S>
struct Widened {
  using A = float;
  using B = LaneType<S>;
  using Sum = Full<float>;
  using Column = Sum;
  using Wide = Plain<float>;
  static constexpr int64_t kWideSteps = 1;
  static constexpr bool kEnds = false, kRuns = false;
  static constexpr int kPartsOfB = std::is_same_v<S, BFloat> ? 1 : 2;
  DVM_INLINE static Column column(const B* at) {
    return convert_lanes<float, S, L>(load<Vec<B, L>>(at));
  }
  DVM_INLINE static Column column(const B* at, int64_t) { return column(at); }
  DVM_INLINE static void widen(float* at, int64_t, Column column) { store(at, column); }
  DVM_INLINE static Sum scalar(const A* at) { return splat<Sum>(*at); }
  DVM_INLINE static Sum multiply_add(Sum sum, Sum a, Column b) { return sum + a * b; }
};

struct Paired {
  using A = uint32_t;
  using B = uint32_t;
  using Sum = Full<float>;
  using Column = Pairs;
  static constexpr bool kEnds = false, kRuns = false;
  DVM_INLINE static Column column(const B* at) { return load<Pairs>(at); }
  DVM_INLINE static Column column(const B* at, int64_t) { return column(at); }
  DVM_INLINE static Pairs scalar(const A* at) { return splat<Pairs>(*at); }
  DVM_INLINE static Sum multiply_add(Sum sum, Pairs a, Pairs b) {
#if defined(DVM_AVX512_BF16)
    return bits_as<Sum>(
        _mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(a), bits_as<__m512bh>(b)));
#else
    sum += bits_as<Sum>(a << 16) * bits_as<Sum>(b << 16);
    return sum + bits_as<Sum>(a & 0xffff0000) * bits_as<Sum>(b & 0xffff0000);
#endif
  }
};

// ---- packing

// `count` elements, clamped to the lanes there are; zeros in the others.
template <class S>
DVM_INLINE Sum load_floats(const S* from, int64_t count) {
  using In = Vec<LaneType<S>, L>;
  const auto* at = reinterpret_cast<const LaneType<S>*>(from);
  if (count >= L) return convert_lanes<float, S, L>(load<In>(at));
  if (count <= 0) return Sum{};
  return convert_lanes<float, S, L>(load_partial<In>(at, count));
}

// f32 lanes as bf16 in the upper 16 bits, rounded to nearest even; NaN stays NaN.
DVM_INLINE Pairs rounded(Sum v) {
  const Pairs bits = bits_as<Pairs>(v);
  const Pairs nearest = bits + 0x7fff + ((bits >> 16) & 1);
  return v != v ? bits | 0x400000 : nearest;
}

// Lanes of two steps of k, side by side.
DVM_INLINE Pairs pair_lanes(Sum even, Sum odd) {
  return (rounded(even) >> 16) | (rounded(odd) & 0xffff0000);
}

template <int... I>
DVM_INLINE Pairs pair_neighbours(Sum low, Sum high, std::integer_sequence<int, I...>) {
  return pair_lanes(__builtin_shufflevector(low, high, (2 * I)...),
                    __builtin_shufflevector(low, high, (2 * I + 1)...));
}

// The pairs that `count` neighbouring elements are, at most 2L; 0 behind an odd one.
template <class S>
DVM_INLINE Pairs load_pairs(const S* from, int64_t count) {
  const Sum low = load_floats(from, count), high = load_floats(from + L, count - L);
#if defined(DVM_AVX512_BF16)
  return bits_as<Pairs>(_mm512_cvtne2ps_pbh(bits_as<__m512>(high), bits_as<__m512>(low)));
#else
  return pair_neighbours(low, high, std::make_integer_sequence<int, L>{});
#endif
}

template <class S>
DVM_INLINE uint32_t load_pair(const S* from, int64_t stride, bool both) {
  const uint32_t even = convert_one<BFloat>(convert_one<float>(*from)).bits;
  return both ? even | uint32_t{convert_one<BFloat>(convert_one<float>(from[stride])).bits} << 16
              : even;
}

template <class S>
void pack_a_bundles_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const auto to = tile_at<uint32_t>(core, operand_words(words, 0));
  const auto from = tile_at<const S>(core, operand_words(words, 1));
  for (int64_t m = 0; m < e.middle; m++) {
    uint32_t* out = to.at + m * to.middle;
    const S* in = from.at + m * from.middle;
    for (int64_t k = 0; k < e.inner;) {
      const int64_t left = e.inner - k;
      if (from.inner == 1) {
        const Pairs pairs = load_pairs(in + k, left);
        if (left >= 2 * L)
          store(out + k / 2, pairs);
        else
          store_partial(out + k / 2, pairs, (left + 1) / 2);
        k += 2 * L;
      } else {
        out[k / 2] = load_pair(in + k * from.inner, from.inner, left > 1);
        k += 2;
      }
    }
  }
}

// A panel of pairs, from rows of neighbouring columns.
template <class S>
DVM_INLINE void pack_pairs_by_rows(uint32_t* to, const S* from, int64_t k_extent, int64_t columns,
                                   int64_t k_stride) {
  for (int64_t k = 0; k < k_extent; k += 2, to += kNR) {
    const S* row = from + k * k_stride;
    for (int64_t n = 0; n < kNR; n += L) {
      const Sum even = load_floats(row + n, columns - n);
      const Sum odd = k + 1 < k_extent ? load_floats(row + k_stride + n, columns - n) : Sum{};
      store(to + n, pair_lanes(even, odd));
    }
  }
}

// A panel of pairs, from columns of neighbouring rows.
template <class S>
DVM_INLINE void pack_pairs_by_columns(uint32_t* to, const S* from, int64_t k_extent,
                                      int64_t columns, int64_t n_stride) {
  for (int64_t k = 0; k < k_extent; k += 2 * L) {
    const int64_t left = k_extent - k, rows = lesser((left + 1) / 2, L);
    for (int64_t n = 0; n < kNR; n += L) {
      Pairs block[L];
#pragma GCC unroll 64
      for (int c = 0; c < L; c++)
        block[c] = n + c < columns ? load_pairs(from + k + (n + c) * n_stride, left) : Pairs{};
      transpose_block(block);
      uint32_t* corner = to + k / 2 * kNR + n;
#pragma GCC unroll 64
      for (int r = 0; r < L; r++)
        if (r < rows) store(corner + r * kNR, block[r]);
    }
  }
}

template <class S>
void pack_b_bundles_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const auto to = tile_at<uint32_t>(core, operand_words(words, 0));
  const auto from = tile_at<const S>(core, operand_words(words, 1));
  uint32_t* out = to.at;
  for (int64_t n = 0; n < e.inner; n += kNR, out += to.outer) {
    const int64_t columns = lesser(e.inner - n, kNR);
    const S* in = from.at + n * from.inner;
    if (from.inner == 1) {
      pack_pairs_by_rows(out, in, e.middle, columns, from.middle);
    } else if (from.middle == 1) {
      pack_pairs_by_columns(out, in, e.middle, columns, from.inner);
    } else {
      for (int64_t k = 0; k < e.middle; k += 2) {
        for (int64_t c = 0; c < kNR; c++) {
          out[k / 2 * kNR + c] = c < columns ? load_pair(in + k * from.middle + c * from.inner,
                                                         from.middle, k + 1 < e.middle)
                                             : 0;
        }
      }
    }
  }
}

// Panels of B in its own storage dtype: packed at load, so short of the fastest.
void pack_b_stored_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const auto to = tile_at<uint16_t>(core, operand_words(words, 0));
  const auto from = tile_at<const uint16_t>(core, operand_words(words, 1));
  uint16_t* panel = to.at;
  for (int64_t n = 0; n < e.inner; n += kNR, panel += to.outer) {
    const int64_t columns = lesser(e.inner - n, kNR);
    const uint16_t* in = from.at + n * from.inner;
    for (int64_t k = 0; k < e.middle; k++, in += from.middle) {
      uint16_t* out = panel + k * kNR;
      for (int64_t c = 0; c < columns; c++) out[c] = in[c * from.inner];
      for (int64_t c = columns; c < kNR; c++) out[c] = 0;
    }
  }
}

struct HalfUnit {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::half;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    using S = StorageType<D>;
    if constexpr (Form_ == Form::matmul_widen)
      return &panels_handler<Widened<S>>;
    else if constexpr (Form_ == Form::matmul_bundles)
      return &panels_handler<Paired>;
    else if constexpr (Form_ == Form::pack_a_bundles)
      return &pack_a_bundles_handler<S>;
    else if constexpr (Form_ == Form::pack_b_bundles)
      return &pack_b_bundles_handler<S>;
    else if constexpr (Form_ == Form::pack_b_stored)
      return &pack_b_stored_handler;
    else
      return nullptr;
  }
};

}  // namespace

void fill_half(Handler* handlers) { fill_handlers<HalfUnit>(handlers); }

}  // namespace dvm::DVM_LEVEL
