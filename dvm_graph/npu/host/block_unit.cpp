// Matrix products whose right operand is levels of a few bits, with a scale for each block of k.
//
//   m_matmul_blocks  f32 A times panels of words of levels: a level of 2 or 4 bits, less the middle
//                    one, is looked up in a table, where a register holds one, and multiplied by A
//                    as it is; sums over a block are multiplied by its scale
//
// Few rows read each word once, from memory, and make of it what they need: as fast as that is
// read. More rows would do so again and again: for them a panel is unpacked into the core's scratch
// memory, a part of k at a time, and multiplied by the loops of panel_loops.h.
#include "npu/host/level_blocks.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

// Passes of a few rows over a panel before it is cheaper to unpack it.
constexpr int64_t kMostPasses = 3;

// What the lowest level of each lane stands for, less the middle one.
template <int Bits>
struct Level {
  DVM_INLINE Sum operator()(Words words) const {
    constexpr uint32_t kMask = (1u << Bits) - 1;
    constexpr float kMiddle = middle_level(Bits);
    return convert<float>(bits_as<Full<int32_t>>(words & kMask)) - kMiddle;
  }
};
#if defined(DVM_AVX512)
// The lowest 4 bits of a lane pick a lane of the table.
template <int Bits>
  requires(Bits <= 4)
struct Level<Bits> {
  __m512 table = Bits == 4 ? _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)
                           : _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);

  DVM_INLINE Sum operator()(Words words) const {
    return bits_as<Sum>(_mm512_permutexvar_ps(bits_as<__m512i>(words), table));
  }
};
#endif

// Adds the products of so many levels of a word.
template <int Bits, int Rows, int Sums, bool Zeros, class Partial>
DVM_INLINE void multiply_word(const Level<Bits>& level, const BlockHead<Zeros>& head,
                              const uint32_t* levels, const float* a, int64_t a_row, int count,
                              Partial& partial) {
  Words words[kPanelVectors];
#pragma GCC unroll 2
  for (int j = 0; j < kPanelVectors; j++) words[j] = load<Words>(levels + j * L);
  const auto step = [&](int i, int set) DVM_LAMBDA_INLINE {
    Sum column[kPanelVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kPanelVectors; j++) {
      column[j] = level(words[j] >> (Bits * i));
      if constexpr (Zeros) column[j] -= head.zero[j];
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; r++) {
      const Sum scalar = splat<Sum>(a[r * a_row + i]);
#pragma GCC unroll 2
      for (int j = 0; j < kPanelVectors; j++) partial[set][r][j] += scalar * column[j];
    }
  };
  if (count == kWordLevels<Bits>) {
#pragma GCC unroll 16
    for (int i = 0; i < kWordLevels<Bits>; i++) step(i, i % Sums);
  } else {
    for (int i = 0; i < count; i++) step(i, 0);
  }
}

// A panel of C, of which there are so many columns.
template <int Rows, int Bits, bool Zeros>
[[gnu::noinline]] void multiply_panel_of_blocks(const Blocks& x, const uint32_t* b, float* c,
                                                int64_t columns) {
  constexpr int kSums = Rows == 1 ? 2 : 1;  // hide the latency of the FMAs
  const Level<Bits> level;
  Sum sum[Rows][kPanelVectors] = {};
  for (int64_t first = 0; first < x.k; first += x.block, b += x.block_words) {
    const BlockHead<Zeros> head(b);
    const int64_t steps = lesser(x.block, x.k - first);
    Sum partial[kSums][Rows][kPanelVectors] = {};
    const uint32_t* levels = head.levels;
    const float* a = x.a + first;
    int64_t k = 0;
    for (; k + kWordLevels<Bits> <= steps; k += kWordLevels<Bits>, levels += kNR) {
      fetch_words_ahead(levels);
      multiply_word<Bits, Rows, kSums>(level, head, levels, a + k, x.a_row, kWordLevels<Bits>,
                                       partial);
    }
    if (k < steps) {
      multiply_word<Bits, Rows, kSums>(level, head, levels, a + k, x.a_row,
                                       static_cast<int>(steps - k), partial);
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; r++) {
#pragma GCC unroll 2
      for (int j = 0; j < kPanelVectors; j++) {
        Sum part = partial[0][r][j];
        if constexpr (kSums > 1) part += partial[1][r][j];
        sum[r][j] += part * head.scale[j];
      }
    }
  }
  store_sums(x, sum, c, columns);
}

template <int Rows, int Bits, bool Zeros>
struct FewRows {
  static constexpr auto function = &multiply_panel_of_blocks<Rows, Bits, Zeros>;
};

// Each panel by all rows, a few at a time.
void multiply_packed(Blocks x, int64_t rows, int64_t columns) {
  const EvenRows groups(rows, kFewRows);
  const auto group = function_of<FewRows>(x, groups.step);
  const auto last = function_of<FewRows>(x, groups.last);
  const float* const a = x.a;
  for (int64_t n = 0; n < columns; n += kNR) {
    for (int64_t m = 0; m < rows; m += groups.step) {
      x.a = a + m * x.a_row;
      (m + groups.step <= rows ? group : last)(x, x.b + n / kNR * x.panel, x.c + m * x.c_row + n,
                                               columns - n);
    }
  }
}

// Steps [first, first + count) of a panel as f32; `first` begins a word.
template <int Bits, bool Zeros>
void unpack(const Blocks& x, const uint32_t* panel, int64_t first, int64_t count, float* to) {
  const Level<Bits> level_of;
  for (int64_t done = 0; done < count;) {
    const int64_t at = (first + done) % x.block;
    const BlockHead<Zeros> head(panel + (first + done) / x.block * x.block_words);
    const int64_t steps = lesser(x.block - at, count - done);
    for (int64_t k = 0; k < steps; k += kWordLevels<Bits>) {
      Words words[kPanelVectors];
      for (int j = 0; j < kPanelVectors; j++)
        words[j] = load<Words>(head.levels + (at + k) / kWordLevels<Bits> * kNR + j * L);
      const int64_t levels = lesser<int64_t>(kWordLevels<Bits>, steps - k);
      for (int64_t i = 0; i < levels; i++, to += kNR) {
        for (int j = 0; j < kPanelVectors; j++) {
          Sum level = level_of(words[j]);
          if constexpr (Zeros) level -= head.zero[j];
          store(to + j * L, level * head.scale[j]);
          words[j] >>= Bits;
        }
      }
    }
    done += steps;
  }
}

template <int, int Bits, bool Zeros>
struct Unpacking {
  static constexpr auto function = &unpack<Bits, Zeros>;
};

void multiply_unpacked(const Blocks& x, float* room, int64_t rows, int64_t columns,
                       int64_t chunk_bytes) {
  constexpr int64_t kDepth = kWidenedBytes / (kNR * int64_t{sizeof(float)});
  const auto unpack_panel = function_of<Unpacking>(x, 1);
  for (int64_t k = 0; k < x.k; k += kDepth) {
    const int64_t depth = lesser(kDepth, x.k - k);
    for (int64_t n = 0; n < columns; n += kNR) {
      const uint32_t* panel = x.b + n / kNR * x.panel;
      unpack_panel(x, panel, k, depth, room);
      Product<Plain<float>> wide{};
      wide.a = x.a + k;
      wide.a_row = x.a_row;
      wide.b = room;
      wide.b_step = wide.b_panel = kNR;
      wide.c = x.c + n;
      wide.from = wide.c;
      wide.c_row = x.c_row;
      wide.from_row = x.c_row;
      wide.k = depth;
      wide.accumulate = x.accumulate || k > 0;
      wide.chunk_bytes = chunk_bytes;
      multiply_blocks(wide, rows, lesser(kNR, columns - n), depth + 1);
    }
  }
}

void blocks_handler(Core& core, const uint64_t* words) {
  multiply_levels(core, words, [&core](const Blocks& x, int64_t rows, int64_t columns) {
    if (rows <= kMostPasses * kFewRows || core.scratch == nullptr)
      return multiply_packed(x, rows, columns);
    multiply_unpacked(x, reinterpret_cast<float*>(core.scratch), rows, columns, chunk_bytes(core));
  });
}

struct BlockUnit {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::block;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    return &blocks_handler;
  }
};

}  // namespace

void fill_block(Handler* handlers) { fill_handlers<BlockUnit>(handlers); }

}  // namespace dvm::DVM_LEVEL
