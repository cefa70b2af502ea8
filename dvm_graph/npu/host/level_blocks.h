// What products with levels of 2, 4 or 8 bits share: operands, and how panels of their blocks
// begin. Compiled per level: see simd.h.
#pragma once

#include "npu/host/products.h"

namespace dvm::DVM_LEVEL {
namespace {

using Sum = Full<float>;
using Words = Full<uint32_t>;

constexpr int64_t L = kLanes<float>, kNR = Product<Plain<float>>::kColumns;
// Rows whose sums, and those of a block, are in registers; what a panel is fetched before its use.
constexpr int kFewRows = kMaxRows > 8 ? 6 : 2;
constexpr int64_t kAheadBytes = 2048;
template <int Bits>
constexpr int kWordLevels = word_levels(Bits);

// Of a product: where A, panels and C lie.
struct Blocks {
  const float* a;
  int64_t a_row;
  const uint32_t* b;
  int64_t panel, block_words;  // words from panel to panel, and from block to block
  int64_t block, bits;         // steps of k, and of a level
  bool zeros;
  float* c;
  int64_t c_row;
  int64_t k;
  bool accumulate;
};

// What a block of two vectors of columns begins with.
template <bool Zeros>
struct BlockHead {
  Sum scale[kPanelVectors], zero[kPanelVectors];
  const uint32_t* levels;

  DVM_INLINE explicit BlockHead(const uint32_t* block) : levels(block + (Zeros ? 2 : 1) * kNR) {
    const auto* numbers = reinterpret_cast<const float*>(block);
#pragma GCC unroll 2
    for (int j = 0; j < kPanelVectors; j++) {
      scale[j] = load<Sum>(numbers + j * L);
      if constexpr (Zeros) zero[j] = load<Sum>(numbers + kNR + j * L);
    }
  }
};

// A row of words is read: what comes behind it is fetched.
DVM_INLINE void fetch_words_ahead(const uint32_t* words) {
#pragma GCC unroll 4
  for (int64_t byte = 0; byte < kNR * 4; byte += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const char*>(words) + kAheadBytes + byte);
}

// Sums of rows of a panel of C, of which there are so many columns.
template <int Rows>
DVM_INLINE void store_sums(const Blocks& x, const Sum (&sum)[Rows][kPanelVectors], float* c,
                           int64_t columns) {
  for (int r = 0; r < Rows; r++, c += x.c_row) {
    for (int j = 0; j < kPanelVectors && j * L < columns; j++) {
      const int64_t lanes = lesser<int64_t>(L, columns - j * L);
      Sum result = sum[r][j];
      if (x.accumulate) result += load_partial<Sum>(c + j * L, lanes);
      store_partial(c + j * L, result, lanes);
    }
  }
}

inline void clear(const Blocks& x, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t n = 0; n < columns; n++) x.c[m * x.c_row + n] = 0;
}

// Of<Rows, Bits, Zeros>::function for so many rows, the bits of levels and whether there are zeros.
template <template <int, int, bool> class Of, int Bits, bool Zeros, int... Rows>
auto function_of_rows(int64_t rows, std::integer_sequence<int, Rows...>) {
  constexpr decltype(Of<1, Bits, Zeros>::function) kFunctions[] = {
      Of<Rows + 1, Bits, Zeros>::function...};
  return kFunctions[rows - 1];
}
template <template <int, int, bool> class Of, int Bits>
auto function_of_zeros(const Blocks& x, int64_t rows) {
  constexpr auto kCounts = std::make_integer_sequence<int, kFewRows>{};
  return x.zeros ? function_of_rows<Of, Bits, true>(rows, kCounts)
                 : function_of_rows<Of, Bits, false>(rows, kCounts);
}
template <template <int, int, bool> class Of>
auto function_of(const Blocks& x, int64_t rows) {
  return x.bits == 2   ? function_of_zeros<Of, 2>(x, rows)
         : x.bits == 4 ? function_of_zeros<Of, 4>(x, rows)
                       : function_of_zeros<Of, 8>(x, rows);
}

// Calls multiply(blocks, rows, columns); a product without steps of k is 0.
template <class Multiply>
DVM_INLINE void multiply_levels(Core& core, const uint64_t* words, Multiply multiply) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const uint8_t flags = flags_of(words);
  const auto c = tile_at<float>(core, operand_words(words, 0));
  const auto a = tile_at<const float>(core, operand_words(words, 1));
  const auto b = tile_at<const uint32_t>(core, operand_words(words, 2));
  const uint64_t* const extra = extra_words(Form::matmul_blocks, words);
  const auto block = static_cast<int64_t>(extra[0]), bits = static_cast<int64_t>(extra[1]);
  const bool zeros = b.middle > (block / word_levels(bits) + 1) * kNR;
  const bool accumulate =
      (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
  core.laters = 0;
  const Blocks x{a.at, a.middle, b.at, b.outer,  b.middle, block,
                 bits, zeros,    c.at, c.middle, e.middle, accumulate};
  if (x.k > 0)
    multiply(x, e.outer, e.inner);
  else if (!accumulate)
    clear(x, e.outer, e.inner);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
