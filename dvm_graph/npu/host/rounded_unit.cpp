// Matrix products with levels of a few bits whose other operand is rounded to bytes first.
//
//   m_matmul_rounded_blocks  the steps of a row of A that meet a block of B become levels of a
//                            byte, multiples of 1/127 of the largest magnitude among them; levels
//                            are multiplied by levels and summed in whole numbers, and the sum over
//                            a block by both scales
//
// Rows of A are rounded once for all panels, into the core's scratch memory. A word of B has levels
// in each of its bytes, one of 8 bits or several of fewer: the first ones of all four are
// multiplied together, then the second ones, and in that order levels of A lie. One instruction of
// AVX512-VNNI multiplies four and adds them up; elsewhere sums of 16 bits hold the products of a
// few words, as far as levels are small enough.
//
// This file is compiled once more for AVX-512 with AVX512-VNNI, in a namespace of its own.
#include "npu/host/level_blocks.h"
#include "npu/host/pair_products.h"
#include "npu/host/rounding.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

using Wholes = Full<int32_t>;

constexpr float kMostLevel = 127;
// Blocks of smaller numbers are zeros: 127 by these would be infinite.
constexpr uint32_t kLeastMagnitude = (127 - 119) << 23;  // the bits of 2^-119
constexpr uint32_t kInfinity = 0x7f800000;

// A block of a row of A, and then its levels, a byte each.
struct RoundedBlock {
  float step;       // what a level of 1 stands for; NaN where a number is not finite
  float sum;        // of levels
  int32_t less;     // what levels of B that count from the middle one add too much, with a minus
  uint32_t unused;  // keeps levels aligned
};

DVM_INLINE int64_t rounded_bytes(int64_t k, int64_t block) {
  return ceil_div(k, block) * (int64_t{sizeof(RoundedBlock)} + block);
}

// Sums of products of four levels of a byte each per lane: `add` those of a word, of at most kMost
// words between `begin` and `end`.
#if defined(DVM_AVX512_VNNI)
template <int Bits>
struct Sums {
  static constexpr int64_t kMost = INT64_MAX;
  Wholes part;

  DVM_INLINE void begin(Wholes sum) { part = sum; }
  DVM_INLINE void add(Words levels, Words a) {
    part = bits_as<Wholes>(
        _mm512_dpbusd_epi32(bits_as<__m512i>(part), bits_as<__m512i>(levels), bits_as<__m512i>(a)));
  }
  DVM_INLINE void end(Wholes& sum) const { sum = part; }
};
#else
// Of levels below 16; of four words, whose four levels in a byte are below 4, or two below 16.
template <int Bits>
struct Sums {
  static constexpr int64_t kMost = 4;
  using Bytes = Full<int8_t>;
  using Halves = Full<int16_t>;

#if defined(DVM_AVX2)
  Halves part;

#if defined(DVM_AVX512)
  using V = __m512i;
  DVM_INLINE static V multiply(V a, V b) { return _mm512_maddubs_epi16(a, b); }
  DVM_INLINE static V pairs(V a) { return _mm512_madd_epi16(a, _mm512_set1_epi16(1)); }
#else
  using V = __m256i;
  DVM_INLINE static V multiply(V a, V b) { return _mm256_maddubs_epi16(a, b); }
  DVM_INLINE static V pairs(V a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
#endif

  DVM_INLINE void begin(Wholes) { part = Halves{}; }
  DVM_INLINE void add(Words levels, Words a) {
    part += bits_as<Halves>(multiply(bits_as<V>(levels), bits_as<V>(a)));
  }
  DVM_INLINE void end(Wholes& sum) const { sum += bits_as<Wholes>(pairs(bits_as<V>(part))); }
#else
  Halves low, high;  // a product of each byte

  DVM_INLINE void begin(Wholes) { low = high = Halves{}; }
  DVM_INLINE void add(Words levels, Words a) {
    const auto x = bits_as<Bytes>(levels), y = bits_as<Bytes>(a);
    low += convert<int16_t>(low_half(x)) * convert<int16_t>(low_half(y));
    high += convert<int16_t>(high_half(x)) * convert<int16_t>(high_half(y));
  }
  DVM_INLINE void end(Wholes& sum) const {
    constexpr auto kPairs = std::make_integer_sequence<int, kLanes<int16_t>>{};
    const auto pairs = bits_as<Wholes>(every_other<0>(kPairs) + every_other<1>(kPairs));
    sum += (bits_as<Wholes>(bits_as<Words>(pairs) << 16) >> 16) + (pairs >> 16);
  }

 private:
  template <int First, int... I>
  DVM_INLINE Halves every_other(std::integer_sequence<int, I...>) const {
    return __builtin_shufflevector(low, high, (First + 2 * I)...);
  }
#endif
};

// Of any bytes: products of 16 bits are added in pairs.
template <>
struct Sums<8> {
  static constexpr int64_t kMost = INT64_MAX;
  Wholes part;

  DVM_INLINE void begin(Wholes sum) { part = sum; }
  DVM_INLINE void add(Words levels, Words a) {
    using Signed = Full<int16_t>;
    const auto first = bits_as<Words>(bits_as<Signed>(a << 8) >> 8);
    const auto second = bits_as<Words>(bits_as<Signed>(a) >> 8);
    part += bits_as<Wholes>(multiply_pairs(levels & 0xff00ff, first));
    part += bits_as<Wholes>(multiply_pairs(levels >> 8 & 0xff00ff, second));
  }
  DVM_INLINE void end(Wholes& sum) const { sum = part; }
};
#endif

DVM_INLINE int32_t greatest_lane(Wholes v) {
  int32_t greatest = 0;
  for (int i = 0; i < kLanesOf<Wholes>; i++) greatest = greater(greatest, v[i]);
  return greatest;
}

DVM_INLINE int32_t sum_of_lanes(Wholes v) {
  int32_t sum = 0;
  for (int i = 0; i < kLanesOf<Wholes>; i++) sum += v[i];
  return sum;
}

// Lanes [i, i + lanes) of so many numbers; zeros behind them.
DVM_INLINE Sum numbers_at(const float* from, int64_t i, int64_t count) {
  if (i + L <= count) return load<Sum>(from + i);
  return i < count ? load_partial<Sum>(from + i, count - i) : Sum{};
}

template <int First, int Count>
DVM_INLINE auto bytes_of(const Wholes (&levels)[16 / L]) {
  if constexpr (Count == 1)
    return convert<int8_t>(levels[First]);
  else
    return join(bytes_of<First, Count / 2>(levels), bytes_of<First + Count / 2, Count / 2>(levels));
}

// 16 levels in the order in which a word has those of `bits`.
DVM_INLINE void store_sorted(int8_t* to, const Wholes (&levels)[16 / L], int64_t bits) {
  using Bytes = Vec<int8_t, 16>;
  Bytes bytes = bytes_of<0, 16 / L>(levels);
  if (bits == 4) {
    bytes = __builtin_shufflevector(bytes, bytes, 0, 2, 4, 6, 1, 3, 5, 7,  //
                                    8, 10, 12, 14, 9, 11, 13, 15);
  } else if (bits == 2) {
    bytes = __builtin_shufflevector(bytes, bytes, 0, 4, 8, 12, 1, 5, 9, 13,  //
                                    2, 6, 10, 14, 3, 7, 11, 15);
  }
  store(to, bytes);
}

// Writes in pieces of 16 bytes, which may be more than a block is.
void round_block(const float* from, int64_t count, int64_t block, int64_t bits, std::byte* to) {
  Wholes magnitudes{};
  for (int64_t i = 0; i < count; i += L) {
    const auto bits = bits_as<Wholes>(numbers_at(from, i, count)) & INT32_MAX;
    magnitudes = greater_lanes(magnitudes, bits);
  }
  const auto greatest = static_cast<uint32_t>(greatest_lane(magnitudes));
  float most, inverse = 0;
  __builtin_memcpy(&most, &greatest, sizeof most);
  RoundedBlock head{};
  if (greatest >= kInfinity) {
    head.step = __builtin_nanf("");
  } else if (greatest >= kLeastMagnitude) {
    head.step = most / kMostLevel;
    inverse = kMostLevel / most;
  }
  auto* levels = reinterpret_cast<int8_t*>(to + sizeof head);
  if (inverse == 0) {
    __builtin_memset(levels, 0, static_cast<size_t>(block));
  } else {
    Wholes sum{};
    for (int64_t i = 0; i < block; i += 16) {
      Wholes rounded[16 / L];
#pragma GCC unroll 4
      for (int64_t part = 0; part < 16 / L; part++) {
        rounded[part] = to_nearest(numbers_at(from, i + part * L, count) * inverse);
        sum += rounded[part];
      }
      store_sorted(levels + i, rounded, bits);
    }
    const int32_t all = sum_of_lanes(sum);
    head.sum = static_cast<float>(all);
    head.less = -all * static_cast<int32_t>(middle_level(bits));
  }
  __builtin_memcpy(to, &head, sizeof head);
}

void round_rows(const Blocks& x, int64_t rows, std::byte* to, int64_t row_bytes) {
  const int64_t bytes = int64_t{sizeof(RoundedBlock)} + x.block;
  for (int64_t m = 0; m < rows; m++, to += row_bytes) {
    const float* from = x.a + m * x.a_row;
    for (int64_t k = 0, at = 0; k < x.k; k += x.block, at += bytes)
      round_block(from + k, lesser(x.block, x.k - k), x.block, x.bits, to + at);
  }
}

DVM_INLINE uint32_t word_at(const std::byte* at) {
  uint32_t word;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
}

// A panel of C, of which there are so many columns.
template <int Rows, int Bits, bool Zeros>
[[gnu::noinline]] void multiply_rounded_panel(const Blocks& x, const std::byte* a,
                                              int64_t row_bytes, const uint32_t* b, float* c,
                                              int64_t columns) {
  constexpr int kInByte = 8 / Bits;
  constexpr uint32_t kMask = ((1u << Bits) - 1) * 0x01010101u;
  const int64_t words = x.block / kWordLevels<Bits>;
  Sum sum[Rows][kPanelVectors] = {};
  for (int64_t first = 0; first < x.k; first += x.block, b += x.block_words) {
    const BlockHead<Zeros> head(b);
    const uint32_t* levels = head.levels;
    Wholes whole[Rows][kPanelVectors];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      const auto less =
          static_cast<int32_t>(word_at(a + r * row_bytes + offsetof(RoundedBlock, less)));
#pragma GCC unroll 2
      for (int j = 0; j < kPanelVectors; j++) whole[r][j] = splat<Wholes>(less);
    }
    const std::byte* of_word = a + sizeof(RoundedBlock);
    for (int64_t word = 0; word < words;) {
      const int64_t end = words - word > Sums<Bits>::kMost ? word + Sums<Bits>::kMost : words;
      Sums<Bits> part[Rows][kPanelVectors];
#pragma GCC unroll 8
      for (int r = 0; r < Rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < kPanelVectors; j++) part[r][j].begin(whole[r][j]);
      for (; word < end; word++, levels += kNR, of_word += kWordLevels<Bits>) {
        fetch_words_ahead(levels);
        Words left[kPanelVectors];
#pragma GCC unroll 2
        for (int j = 0; j < kPanelVectors; j++) left[j] = load<Words>(levels + j * L);
#pragma GCC unroll 4
        for (int i = 0; i < kInByte; i++) {
          Words own[kPanelVectors];
#pragma GCC unroll 2
          for (int j = 0; j < kPanelVectors; j++) own[j] = left[j] >> (Bits * i) & kMask;
#pragma GCC unroll 8
          for (int r = 0; r < Rows; r++) {
            const Words of_row = splat<Words>(word_at(of_word + r * row_bytes + 4 * i));
#pragma GCC unroll 2
            for (int j = 0; j < kPanelVectors; j++) part[r][j].add(own[j], of_row);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < kPanelVectors; j++) part[r][j].end(whole[r][j]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; r++) {
      RoundedBlock of_row;
      __builtin_memcpy(&of_row, a + r * row_bytes, sizeof of_row);
#pragma GCC unroll 2
      for (int j = 0; j < kPanelVectors; j++) {
        Sum part = convert<float>(whole[r][j]);
        if constexpr (Zeros) part -= of_row.sum * head.zero[j];
        sum[r][j] += part * (of_row.step * head.scale[j]);
      }
    }
    a += int64_t{sizeof(RoundedBlock)} + x.block;
  }
  store_sums(x, sum, c, columns);
}

template <int Rows, int Bits, bool Zeros>
struct RoundedPanel {
  static constexpr auto function = &multiply_rounded_panel<Rows, Bits, Zeros>;
};

// Rows of A that there is room for, by so many steps of k.
void multiply_rounded_part(const Blocks& x, std::byte* room, int64_t rows, int64_t columns) {
  const int64_t row_bytes = rounded_bytes(x.k, x.block);
  round_rows(x, rows, room, row_bytes);
  const EvenRows groups(rows, kFewRows);
  const auto group = function_of<RoundedPanel>(x, groups.step);
  const auto last = function_of<RoundedPanel>(x, groups.last);
  for (int64_t n = 0; n < columns; n += kNR) {
    const uint32_t* panel = x.b + n / kNR * x.panel;
    for (int64_t m = 0; m < rows; m += groups.step)
      (m + groups.step <= rows ? group : last)(x, room + m * row_bytes, row_bytes, panel,
                                               x.c + m * x.c_row + n, columns - n);
  }
}

// As many steps of k that a panel of B stays in a first-level cache while groups of rows read it,
// and as many rows as there is room for.
void multiply_rounded(Blocks x, std::byte* room, int64_t room_bytes, int64_t rows,
                      int64_t columns) {
  constexpr int64_t kPanelBytes = int64_t{16} << 10;
  room_bytes -= 16;  // behind the last block (round_block)
  const int64_t all = x.k, block_bytes = x.block_words * int64_t{sizeof(*x.b)};
  const int64_t row_blocks = room_bytes / rounded_bytes(x.block, x.block);
  int64_t blocks = lesser(ceil_div(all, x.block), row_blocks);
  if (rows > kFewRows) blocks = lesser(blocks, greater<int64_t>(kPanelBytes / block_bytes, 1));
  const float* const a = x.a;
  float* const c = x.c;
  for (int64_t k = 0; k < all; k += blocks * x.block) {
    x.k = lesser(blocks * x.block, all - k);
    const int64_t most = room_bytes / rounded_bytes(x.k, x.block);
    for (int64_t m = 0; m < rows; m += most) {
      x.a = a + m * x.a_row + k;
      x.c = c + m * x.c_row;
      multiply_rounded_part(x, room, lesser(most, rows - m), columns);
    }
    x.b += blocks * x.block_words;
    x.accumulate = true;
  }
}

void rounded_handler(Core& core, const uint64_t* words) {
  multiply_levels(core, words, [&core](const Blocks& x, int64_t rows, int64_t columns) {
    if (core.scratch != nullptr) {
      const int64_t room = lesser(greater(chunk_bytes(core), kMostBlock + 64), kScratchBytes);
      return multiply_rounded(x, core.scratch, room, rows, columns);
    }
    alignas(kVectorBytes) std::byte room[kMostBlock + 64];
    multiply_rounded(x, room, sizeof room, rows, columns);
  });
}

struct RoundedUnit {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::rounded;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    return &rounded_handler;
  }
};

}  // namespace

void fill_rounded(Handler* handlers) { fill_handlers<RoundedUnit>(handlers); }

}  // namespace dvm::DVM_LEVEL
