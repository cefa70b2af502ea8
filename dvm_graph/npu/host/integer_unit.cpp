// Matrix products of bytes, summed in 32 bits, and what packs their operands.
//
//   m_matmul_bundles   A in u8 and B in i8, four steps of k side by side in 32 bits: one
//   instruction
//                      of AVX512-VNNI multiplies all four and adds them to an i32
//   m_matmul_quantize  the same, of whose sums levels are made while they are in registers
//   d_depthwise_bytes, d_depthwise_quantize
//                      four taps of a channel are multiplied likewise (byte_windows.h)
//
// A and panels of B are laid out as those of m_matmul and multiplied by the same loops
// (panel_loops.h), in elements of 32 bits; B always comes packed, padded with zeros. Sums wrap:
// every level gives the same bits. Elsewhere bytes are widened to 16 bits, of which x86 multiplies
// two and adds the products in 32; the instruction that multiplies bytes adds them in 16, which may
// saturate.
//
// This file is compiled once more for AVX-512 with AVX512-VNNI, in a namespace of its own.
#include "npu/host/byte_windows.h"
#include "npu/host/pair_products.h"
#include "npu/host/products.h"
#include "npu/host/rounding.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

using Words = Full<uint32_t>;

constexpr int64_t kSteps = bundle_steps(DType::i8), kNR = Product<Plain<float>>::kColumns;

DVM_INLINE uint32_t word_at(const uint32_t* at) {  // rows of A in place are not aligned to words
  uint32_t word;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
}

// Words of several steps each that lie as they are multiplied.
struct OfWords {
  using A = uint32_t;
  using B = uint32_t;
  using Sum = Words;
  using Column = Words;
  static constexpr bool kEnds = false, kRuns = false;
  DVM_INLINE static Column column(const B* at) { return load<Words>(at); }
  DVM_INLINE static Column column(const B* at, int64_t) { return column(at); }
  DVM_INLINE static Words scalar(const A* at) { return splat<Words>(word_at(at)); }
};

#if defined(DVM_AVX512_VNNI)

struct Bundled : OfWords {
  DVM_INLINE static Words spread(Words a) { return a; }
  DVM_INLINE static Sum multiply_add(Sum sum, Words a, Column b) {
    return bits_as<Sum>(
        _mm512_dpbusd_epi32(bits_as<__m512i>(sum), bits_as<__m512i>(a), bits_as<__m512i>(b)));
  }
};

#else

// The bytes of a word as 16 bits each: the first and third one, the second and fourth one.
struct Halves {
  Words even, odd;
};

// Two steps of 16 bits: half a bundle.
struct Paired : OfWords {
  DVM_INLINE static Sum multiply_add(Sum sum, Words a, Column b) {
    return sum + multiply_pairs(a, b);
  }
};

struct Bundled {
  using A = uint32_t;
  using B = uint32_t;
  using Sum = Words;
  using Column = Halves;
  using Wide = Paired;
  static constexpr int64_t kWideSteps = 2;
  static constexpr bool kEnds = false, kRuns = false;
  DVM_INLINE static Column column(const B* at) {
    using Signed = Full<int16_t>;
    const Words words = load<Words>(at);
    const auto even = bits_as<Signed>(words << 8) >> 8;
    return {bits_as<Words>(even), bits_as<Words>(bits_as<Signed>(words) >> 8)};
  }
  DVM_INLINE static Column column(const B* at, int64_t) { return column(at); }
  DVM_INLINE static Halves spread(Words a) {
    return {a & splat<Words>(0xff00ff), bits_as<Words>(bits_as<Full<uint16_t>>(a) >> 8)};
  }
  DVM_INLINE static Halves scalar(const A* at) {
    Words word = splat<Words>(word_at(at));
#if defined(DVM_AVX2) && !defined(DVM_AVX512)
    asm("" : "+x"(word));  // else halves are made, and moved to vectors, one by one
#endif
    return spread(word);
  }
  DVM_INLINE static Sum multiply_add(Sum sum, Halves a, const Column& b) {
    return sum + multiply_pairs(a.even, b.even) + multiply_pairs(a.odd, b.odd);
  }
  DVM_INLINE static void widen(uint32_t* at, int64_t step, const Column& column) {
    store(at, column.even);
    store(at + step, column.odd);
  }
  DVM_INLINE static void widen_row(uint32_t* to, const A* a, int64_t k) {
    DVM_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < k; i++) {
      const uint32_t word = word_at(a + i);
      to[2 * i] = word & 0xff00ff;
      to[2 * i + 1] = word >> 8 & 0xff00ff;
    }
  }
};

#endif

// ---- sums that are quantised

// An addend and a factor for each column, or (step 0) for all.
struct RoundedColumns {
  const uint32_t* addend;
  const float* factor;
  int64_t addend_step, factor_step;
  Rounding rounding;

  DVM_INLINE void next(int64_t count) {
    addend += count * addend_step;
    factor += count * factor_step;
  }
};

template <class T, class Step>
struct Quantized;

template <class T, class Step>
struct QuantizedOf : Step {};
template <class T, class Step>
  requires kWidens<Step>
struct QuantizedOf<T, Step> : Step {
  using Wide = Quantized<T, typename Step::Wide>;
};

template <class T, class Step = Bundled>
struct Quantized : QuantizedOf<T, Step> {
  using Stored = T;
  using Floats = Full<float>;
  using Columns = RoundedColumns;

  static Columns columns(const Core& core, const uint64_t* words) {
    const auto addend = tile_at<const uint32_t>(core, operand_words(words, 3));
    const auto factor = tile_at<const float>(core, operand_words(words, 4));
    const Levels levels = levels_of(Form::matmul_quantize, words);
    return {addend.at, factor.at, addend.inner, factor.inner, Rounding::to<T>(levels)};
  }

  // Of vector j of a block: those of its columns, of which the last one may have fewer.
  template <class V, int Vectors, bool Ragged>
  DVM_INLINE static V along(const Element<V>* at, int64_t step, int j, int64_t ragged) {
    if (step == 0) return splat<V>(*at);
    at += j * kLanesOf<V>;
    return Ragged && j == Vectors - 1 ? load_partial<V>(at, ragged) : load<V>(at);
  }

  template <int Vectors, bool Ragged>
  DVM_INLINE static Words start(const Product<Quantized>& x, int64_t ragged, int j) {
    const Columns& of = x.of_columns;
    return along<Words, Vectors, Ragged>(of.addend, of.addend_step, j, ragged);
  }

  // What a block's sums are rounded by, read anew for each row: kept, it would be more than there
  // are registers, and the compiler would keep sums in memory already while they are added to.
  template <int Vectors>
  struct OfBlock {
    const Rounding* rounding;
    alignas(kVectorBytes) float factors[Vectors * kLanes<float>];

    DVM_INLINE void read_anew() { asm volatile("" : "+r"(rounding) : : "memory"); }

    DVM_INLINE Full<int32_t> round(Words sum, int j) const {
#if defined(DVM_X86)
      asm volatile("" : "+v"(sum));  // no sooner than the row
#endif
      return rounding->round(bits_as<Full<int32_t>>(sum),
                             load<Floats>(factors + j * kLanes<float>));
    }
  };

  template <int Rows, int Vectors, bool Ragged, class Sums>
  DVM_INLINE static void store_block(const Product<Quantized>& x, int64_t ragged, const Sums& sum) {
    constexpr int64_t L = kLanes<float>;
    const Columns& of = x.of_columns;
    OfBlock<Vectors> block{&of.rounding, {}};
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; j++)
      store(block.factors + j * L,
            along<Floats, Vectors, Ragged>(of.factor, of.factor_step, j, ragged));
    if constexpr (sizeof(T) == 1 && 4 % Vectors == 0)
      store_bytes<Rows, Vectors, Ragged>(x, ragged, sum, block);
    else
      store_rows<Rows, Vectors, Ragged>(x, ragged, sum, block);
  }

  template <int Rows, int Vectors, bool Ragged, class Sums>
  DVM_INLINE static void store_rows(const Product<Quantized>& x, int64_t ragged, const Sums& sum,
                                    OfBlock<Vectors>& block) {
    T* c = x.c;
#pragma GCC unroll 64
    for (int i = 0; i < Rows; i++, c += x.c_row) {
      block.read_anew();
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; j++) {
        const auto levels = block.rounding->template levels<T>(block.round(sum[i][j], j));
        if (Ragged && j == Vectors - 1)
          store_partial(c + j * kLanes<float>, levels, ragged);
        else
          store(c + j * kLanes<float>, levels);
      }
    }
  }

  // Four vectors at a time, which are one or more rows.
  template <int Rows, int Vectors, bool Ragged, class Sums>
  DVM_INLINE static void store_bytes(const Product<Quantized>& x, int64_t ragged, const Sums& sum,
                                     OfBlock<Vectors>& block) {
    constexpr int kTogether = 4 / Vectors, kRow = Vectors * kLanes<float>;
    const int64_t count = ragged + kRow - kLanes<float>;
    T* c = x.c;
#pragma GCC unroll 64
    for (int first = 0; first < Rows; first += kTogether, c += kTogether * x.c_row) {
      block.read_anew();
      Full<int32_t> rounded[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        const int row = first + i / Vectors, j = i % Vectors;
        rounded[i] = row < Rows ? block.round(sum[row][j], j) : rounded[0];
      }
      const Full<uint8_t> levels = one_by_one(block.rounding->levels(rounded));
      each<kTogether>([&](auto index) DVM_LAMBDA_INLINE {
        constexpr int kIndex = decltype(index)::k;
        if (first + kIndex >= Rows) return;
        const auto row = slice<kIndex * kRow>(levels, std::make_integer_sequence<int, kRow>{});
        if constexpr (Ragged)
          store_partial(c + kIndex * x.c_row, row, count);
        else
          store(c + kIndex * x.c_row, row);
      });
    }
  }
};

// ---- packing

// Rows of A: their low bytes, one after another, zeros up to a whole bundle.
template <class S>
void pack_a_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const auto to = tile_at<uint32_t>(core, operand_words(words, 0));
  const auto from = tile_at<const S>(core, operand_words(words, 1));
  const int64_t padded = (e.inner + kSteps - 1) / kSteps * kSteps;
  for (int64_t m = 0; m < e.middle; m++) {
    auto* out = reinterpret_cast<uint8_t*>(to.at + m * to.middle);
    const S* in = from.at + m * from.middle;
    if (from.inner == 1) {
      DVM_INDEPENDENT_ITERATIONS
      for (int64_t k = 0; k < e.inner; k++) out[k] = static_cast<uint8_t>(in[k]);
    } else {
      for (int64_t k = 0; k < e.inner; k++) out[k] = static_cast<uint8_t>(in[k * from.inner]);
    }
    for (int64_t k = e.inner; k < padded; k++) out[k] = 0;
  }
}

// A bundle of steps of k from `first` on, `k` behind them are 0.
template <class S>
DVM_INLINE uint32_t bundle_at(const S* first, int64_t stride, int64_t steps) {
  uint32_t bundle = 0;
  for (int64_t i = 0; i < kSteps; i++)
    if (i < steps) bundle |= uint32_t{static_cast<uint8_t>(first[i * stride])} << 8 * i;
  return bundle;
}

template <class S>
void pack_b_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const auto to = tile_at<uint32_t>(core, operand_words(words, 0));
  const auto from = tile_at<const S>(core, operand_words(words, 1));
  uint32_t* panel = to.at;
  for (int64_t n = 0; n < e.inner; n += kNR, panel += to.outer) {
    const int64_t columns = lesser(e.inner - n, kNR);
    const S* in = from.at + n * from.inner;
    for (int64_t k = 0; k < e.middle; k += kSteps) {
      uint32_t* out = panel + k / kSteps * kNR;
      const S* row = in + k * from.middle;
      const int64_t steps = lesser(e.middle - k, kSteps);
      if (steps == kSteps && columns == kNR && from.inner == 1) {
        DVM_INDEPENDENT_ITERATIONS
        for (int64_t c = 0; c < kNR; c++) out[c] = bundle_at(row + c, from.middle, kSteps);
        continue;
      }
      for (int64_t c = 0; c < kNR; c++)
        out[c] = c < columns ? bundle_at(row + c * from.inner, from.middle, steps) : 0;
    }
  }
}

template <DType D>
struct ByteOf {
  using type = uint8_t;
};
template <>
struct ByteOf<DType::i32> {
  using type = int32_t;
};

struct IntegerUnit {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::integer;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    using S = typename ByteOf<D>::type;
    if constexpr (Form_ == Form::matmul_bundles)
      return &panels_handler<Bundled>;
    else if constexpr (Form_ == Form::depthwise_bytes)
      return &depthwise_bytes_handler<Bundled>;
    else if constexpr (Form_ == Form::depthwise_quantize)
      return &depthwise_quantize_handler<Bundled, S>;
    else if constexpr (Form_ == Form::matmul_quantize)  // bytes of both signs wrap alike
      return &panels_handler<Quantized<S>>;
    else if constexpr (Form_ == Form::pack_a_bundles)
      return &pack_a_handler<S>;
    else if constexpr (Form_ == Form::pack_b_bundles)
      return &pack_b_handler<S>;
    else
      return nullptr;
  }
};

}  // namespace

void fill_integer(Handler* handlers) { fill_handlers<IntegerUnit>(handlers); }

}  // namespace dvm::DVM_LEVEL
