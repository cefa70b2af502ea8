// Blocks of C in tile registers (AMX), where products have rows enough.
//
// A tile has 16 rows of 64 bytes. One instruction multiplies 16 rows of A, 64 bytes of steps of k
// each, by 16 columns of B, whose steps lie side by side in 32 bits as in panels of bundles, onto
// 16x16 sums. A block of C is 2x2 tiles. Bundles, A and panels of B, are read where they lie.
//
// Floats are split into parts in bf16, which add up to them: what is nearest to the float, what is
// nearest to the rest, and the rest of that, 8 bits each. Of the nine products of parts the six
// above 2^-26 of the whole are summed, so that results are as exact as those of FMAs. A panel of
// bf16 is one part, one of f16 two. Parts lie tile by tile in the core's scratch memory: a chunk of
// A is split once for all panels, a panel once for all rows of the chunk. Chunks with infinite
// elements, or for which parts would be denormals, which tiles take for 0, go by FMAs.
#pragma once

#include "npu/host/lanes.h"
#include "npu/host/panel_loops.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

#if !defined(DVM_AMX)

template <class Step>
constexpr bool kTiled = false;
constexpr int kSplitRows = 0;

#else

constexpr int kTile = 16;  // rows, and columns, of sums
constexpr int64_t kBlockRows = 2 * kTile;
constexpr int64_t kTileRow = 64, kTileBytes = kTile * kTileRow;
constexpr int64_t kBundles = kTileRow / 4, kSplitSteps = kTileRow / 2;  // of k, in a tile of A
constexpr int kPartsOfA = 3;

// Steps of k of a chunk of floats: as many as leave scratch memory room for all rows beside a
// panel, but within these bounds.
constexpr int64_t kLeastDepth = 384, kMostDepth = 1024;

constexpr int kSplitRows = kTile;
// Bundles have no such cost, but of few rows FMA units read panels as fast.
constexpr int64_t kLeastRows = 12;

// Parts are no denormals that count, and products neither overflow nor vanish, where the largest
// elements of both operands are within these bounds.
constexpr float kLargest = 0x1p40F, kSmallest = 0x1p-99F;

// Floats that are split, or bundles, of bf16 or of bytes.
template <class Step>
constexpr bool kSplits = requires { Step::kPartsOfB; };
template <class Step>
constexpr bool kTiled = kSplits<Step> || std::is_same_v<typename Step::B, uint32_t>;
template <class Step>
constexpr bool kOfBytes = std::is_same_v<Element<typename Step::Sum>, uint32_t>;

// Products of parts, small ones first. What the pass before has left in registers is not loaded.
struct Pass {
  int a, b;
};
template <int PartsOfB>
struct Passes {  // one part each
  static constexpr Pass k[] = {{0, 0}};
};
template <>
struct Passes<1> {
  static constexpr Pass k[] = {{2, 0}, {1, 0}, {0, 0}};
};
template <>
struct Passes<2> {
  static constexpr Pass k[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}};
};
template <>
struct Passes<3> {
  static constexpr Pass k[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};
};
template <class Step>
constexpr auto passes_of() {
  if constexpr (kSplits<Step>)
    return Passes<Step::kPartsOfB>{};
  else
    return Passes<0>{};
}

// Tiles in memory. Strides in bytes: of rows in a tile, to the tile below (of A) or beside (of B),
// to that of the next part, to that of the next steps of k, and to the next block.
struct Tiles {
  const std::byte* at = nullptr;
  int64_t row = kTileRow, tile = kTileBytes, part = 2 * kTileBytes, step = 0, block = 0;
};

// Rows of the tiles of a block: 0 to 3 are sums, 4 and 5 of A, 6 and 7 of B.
class TileShape {
 public:
  ~TileShape() {
    if (upper_ > 0) _tile_release();
  }

  void set(int64_t upper, int64_t lower) {
    if (upper == upper_ && lower == lower_) return;
    upper_ = upper;
    lower_ = lower;
    const auto high = static_cast<uint8_t>(upper), low = static_cast<uint8_t>(lower);
    Configuration shape{};
    shape.palette = 1;
    const uint8_t rows[8] = {high, high, low, low, high, low, kTile, kTile};
    for (int i = 0; i < 8; i++) {
      shape.rows[i] = rows[i];
      shape.row_bytes[i] = rows[i] > 0 ? kTileRow : 0;
    }
    asm volatile("" : "+m"(shape));
    _tile_loadconfig(&shape);
  }

 private:
  struct Configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  int64_t upper_ = 0, lower_ = 0;
};

template <class Step, bool Lower, bool Right>
DVM_INLINE void multiply_tiles() {
  if constexpr (kOfBytes<Step>) {
    _tile_dpbusd(0, 4, 6);
    if constexpr (Right) _tile_dpbusd(1, 4, 7);
    if constexpr (Lower) _tile_dpbusd(2, 5, 6);
    if constexpr (Lower && Right) _tile_dpbusd(3, 5, 7);
  } else {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Right) _tile_dpbf16ps(1, 4, 7);
    if constexpr (Lower) _tile_dpbf16ps(2, 5, 6);
    if constexpr (Lower && Right) _tile_dpbf16ps(3, 5, 7);
  }
}

// All passes over the steps of k of one tile of A.
template <class Step, bool Lower, bool Right, size_t Number = 0>
DVM_INLINE void multiply_passes(const Tiles& a, const Tiles& b) {
  using Of = decltype(passes_of<Step>());
  constexpr size_t kCount = sizeof Of::k / sizeof *Of::k;
  constexpr Pass kPass = Of::k[Number], kBefore = Of::k[Number > 0 ? Number - 1 : 0];
  if constexpr (Number == 0 || kPass.b != kBefore.b) {
    const std::byte* at = b.at + kPass.b * b.part;
    _tile_loadd(6, at, b.row);
    if constexpr (Right) _tile_loadd(7, at + b.tile, b.row);
  }
  if constexpr (Number == 0 || kPass.a != kBefore.a) {
    const std::byte* at = a.at + kPass.a * a.part;
    _tile_loadd(4, at, a.row);
    if constexpr (Lower) _tile_loadd(5, at + a.tile, a.row);
  }
  multiply_tiles<Step, Lower, Right>();
  if constexpr (Number + 1 < kCount) multiply_passes<Step, Lower, Right, Number + 1>(a, b);
}

// Memory to fetch into L2 meanwhile, so many lines with each step: constants may come from afar.
struct NextLines {
  const char* at;
  int64_t lines;

  DVM_INLINE void fetch() {
    for (int64_t i = 0; i < lines; i++, at += kLineBytes) __builtin_prefetch(at, 0, 2);
  }
};

using TileSums = uint32_t[kBlockRows][kBlockRows];

// A panel of B by rows of A, over so many tiles of k, and over one more, of what is left of it.
struct TilePanel {
  Tiles a, b, last_a, last_b;
  int64_t steps = 0;
  bool has_last = false;
  NextLines next = {};
  TileShape* shape = nullptr;

  void next_rows() {
    a.at += a.block;
    last_a.at += last_a.block;
  }
};

// The sums of the next block of rows.
template <class Step, bool Lower, bool Right>
[[gnu::noinline]] void multiply_tile_block(TilePanel& panel, FetchLater* later, TileSums& sums) {
  constexpr int kBursts = 4;      // as many as blocks in registers make
  asm volatile("" ::: "memory");  // tiles are loaded and stored behind the compiler's back
  _tile_zero(0);
  if constexpr (Right) _tile_zero(1);
  if constexpr (Lower) _tile_zero(2);
  if constexpr (Lower && Right) _tile_zero(3);
  Tiles a = panel.a, b = panel.b;
  NextLines next = panel.next;
  for (int64_t step = 0; step < panel.steps; step++) {
    multiply_passes<Step, Lower, Right>(a, b);
    a.at += a.step;
    b.at += b.step;
    next.fetch();
    if (later != nullptr) {
      for (int i = 0; i < kBursts; i++) later->fetch();
    }
  }
  panel.next = next;
  if (panel.has_last) multiply_passes<Step, Lower, Right>(panel.last_a, panel.last_b);
  _tile_stored(0, sums[0], sizeof *sums);
  if constexpr (Right) _tile_stored(1, sums[0] + kTile, sizeof *sums);
  if constexpr (Lower) _tile_stored(2, sums[kTile], sizeof *sums);
  if constexpr (Lower && Right) _tile_stored(3, sums[kTile] + kTile, sizeof *sums);
  asm volatile("" ::: "memory");
}

// ---- splitting

// The part of v that is `Number` of so many, in the upper half of its lanes, which is taken off v.
// The second one is cut off, for the sign of the rest is as good as random then; the last one is
// all that is left.
template <int Number, int Parts>
DVM_INLINE Full<uint32_t> take_part(Full<float>& v) {
  const auto bits = bits_as<Full<uint32_t>>(v);
  if constexpr (Number == Parts - 1) return bits;
  const Full<uint32_t> part = (Number == 0 ? bits + 0x8000 : bits) & 0xffff0000;
  v -= bits_as<Full<float>>(part);
  return part;
}

// The largest magnitudes. NaN does not count: it stays NaN in one of its parts.
DVM_INLINE Full<float> larger(Full<float> largest, Full<float> v) {
  constexpr int kMagnitudes = 0b1011;  // the larger one, of absolute values, without sign
  return bits_as<Full<float>>(
      _mm512_range_ps(bits_as<__m512>(largest), bits_as<__m512>(v), kMagnitudes));
}
DVM_INLINE bool is_split_exactly(Full<float> largest) {
  const float most = _mm512_reduce_max_ps(bits_as<__m512>(largest));
  return most == 0 || (most >= kSmallest && most <= kLargest);
}

// Upper halves of the lanes of both, one after the other.
DVM_INLINE Full<uint32_t> upper_halves(Full<uint32_t> low, Full<uint32_t> high) {
  alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                      23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                      45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return bits_as<Full<uint32_t>>(_mm512_permutex2var_epi16(
      bits_as<__m512i>(low), _mm512_load_si512(kUpper), bits_as<__m512i>(high)));
}

// Rows of A, k steps each: tiles of kSplitSteps steps, padded with zeros to whole ones.
DVM_INLINE bool split_rows(const float* a, int64_t a_row, int64_t rows, int64_t k,
                           const Tiles& to) {
  constexpr int64_t L = kLanes<float>;
  using F = Full<float>;
  F largest{};
  for (int64_t m = 0; m < rows; m++, a += a_row) {
    auto* out = const_cast<std::byte*>(to.at) + m / kBlockRows * to.block +
                m % kBlockRows / kTile * to.tile + m % kTile * to.row;
    const auto put = [&](F low, F high) DVM_LAMBDA_INLINE {
      largest = larger(larger(largest, low), high);
      each<kPartsOfA>([&]<int Part>(Index<Part>) DVM_LAMBDA_INLINE {
        const auto first = take_part<Part, kPartsOfA>(low);
        const auto second = take_part<Part, kPartsOfA>(high);
        store(reinterpret_cast<uint32_t*>(out + Part * to.part), upper_halves(first, second));
      });
      out += to.step;
    };
    const float* in = a;
    int64_t left = k;
    for (; left >= kSplitSteps; left -= kSplitSteps, in += kSplitSteps)
      put(load<F>(in), load<F>(in + L));
    if (left > L)
      put(load<F>(in), load_partial<F>(in + L, left - L));
    else if (left > 0)
      put(load_partial<F>(in, left), F{});
  }
  return is_split_exactly(largest);
}

// A panel of B, or so many columns of it, k steps: two of them side by side in 32 bits.
template <class Step, bool Ragged>
DVM_INLINE bool split_panel(const Product<Step>& x, int64_t columns, const Tiles& to) {
  constexpr int64_t L = kLanes<float>;
  constexpr int kParts = Step::kPartsOfB;
  using F = Full<float>;
  F largest{};
  auto* out = const_cast<std::byte*>(to.at);
  const auto* in = x.b;
  const auto column = [&](const auto* at, int64_t n) DVM_LAMBDA_INLINE -> F {
    if constexpr (!Ragged) {
      return Step::column(at + n);
    } else {
      const int64_t count = columns - n;
      return count >= L ? Step::column(at + n) : count > 0 ? Step::column(at + n, count) : F{};
    }
  };
  const auto put = [&](F even, F odd, std::byte* to_column) DVM_LAMBDA_INLINE {
    largest = larger(larger(largest, even), odd);
    each<kParts>([&]<int Part>(Index<Part>) DVM_LAMBDA_INLINE {
      const auto low = take_part<Part, kParts>(even), high = take_part<Part, kParts>(odd);
      store(reinterpret_cast<uint32_t*>(to_column + Part * to.part),
            (low >> 16) | (high & 0xffff0000));
    });
  };
  const auto next_row = [&](int64_t k) DVM_LAMBDA_INLINE {
    out += to.row;
    if ((k + 2) % kSplitSteps == 0) out += to.step - kTile * to.row;
  };
  int64_t k = 0;
  for (; k < x.k; next_row(k), k += 2, in += 2 * x.b_step) {
    const bool both = k + 1 < x.k;
    for (int64_t n = 0; n < 2 * L; n += L)
      put(column(in, n), both ? column(in + x.b_step, n) : F{}, out + n * 4);
  }
  // To a whole tile: what is left there from before might be NaN, times the zeros of A.
  for (; k % kSplitSteps != 0; next_row(k), k += 2) {
    for (int part = 0; part < kParts; part++)
      for (int64_t n = 0; n < 2 * L; n += L)
        store(reinterpret_cast<uint32_t*>(out + part * to.part) + n, Full<uint32_t>{});
  }
  return is_split_exactly(largest);
}

// ---- panels

// Rows of a block, whose sums are in memory, as blocks in registers store them.
template <class Step, int Rows, int Vectors, bool Ragged>
DVM_INLINE void store_tile_rows(Product<Step>& x, int64_t ragged,
                                const uint32_t (*sums)[kBlockRows], bool stream) {
  using V = typename Step::Sum;
  V sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; i++)
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; j++)
      sum[i][j] = bits_as<V>(load<Full<uint32_t>>(&sums[i][j * kTile]));
  if constexpr (kStores<Step>) {
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; j++) {
      const V start = Step::template start<Vectors, Ragged>(x, ragged, j);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; i++) sum[i][j] += start;
    }
    Step::template store_block<Rows, Vectors, Ragged>(x, ragged, sum);
  } else {
    store_block<Step, Rows, Vectors, Ragged>(x, ragged, sum, stream);
  }
  x.c += Rows * x.c_row;
  if (Step::kEnds) x.from += Rows * x.from_row;
}

// Rows of a chunk; x is where C is. The last panel has so many columns in its last vector.
template <class Step, int Vectors, bool Ragged>
[[gnu::noinline]] void multiply_tile_panel(Product<Step>& x, int64_t rows, int64_t ragged,
                                           const TilePanel& whole) {
  constexpr bool kRight = Vectors > 1;
  constexpr int kTogether = 4;
  const bool stream = streams_to_c<Step, Vectors>(x);
  auto* const c = x.c;
  const auto* const from = x.from;
  alignas(kLineBytes) TileSums sums;
  TilePanel panel = whole;
  for (int64_t m = 0; m < rows; m += kBlockRows, panel.next_rows()) {
    const int64_t count = lesser(rows - m, kBlockRows);
    if (count > kTile) {
      panel.shape->set(kTile, count - kTile);
      multiply_tile_block<Step, true, kRight>(panel, x.later, sums);
    } else {
      panel.shape->set(count, 0);
      multiply_tile_block<Step, false, kRight>(panel, x.later, sums);
    }
    int64_t i = 0;
    for (; i + kTogether <= count; i += kTogether)
      store_tile_rows<Step, kTogether, Vectors, Ragged>(x, ragged, sums + i, stream);
    for (; i < count; i++) store_tile_rows<Step, 1, Vectors, Ragged>(x, ragged, sums + i, stream);
  }
  x.c = c;
  x.from = from;
}

constexpr int64_t kRowBytes = kBlockRows * 4;           // of a panel, as tiles read it
constexpr int64_t kLastPanelBytes = kTile * kRowBytes;  // of what is left of k

// What is left of k behind whole tiles, as a tile padded with zeros for each 16 rows of A.
DVM_INLINE void copy_last_bundles(const uint32_t* a, int64_t a_row, int64_t rows, int64_t bundles,
                                  std::byte* to) {
  auto* out = reinterpret_cast<uint32_t*>(to);
  for (int64_t m = 0; m < rows; m++, a += a_row, out += kBundles)
    store(out, load_partial<Full<uint32_t>>(a, bundles));
}

// Rows of C, by whichever vectors the columns at hand take.
template <class Step>
DVM_INLINE void multiply_tile_panel(Product<Step>& x, int64_t rows, int64_t columns,
                                    const TilePanel& panel) {
  constexpr int64_t L = kLanes<float>;
  if (columns >= Product<Step>::kColumns)
    multiply_tile_panel<Step, 2, false>(x, rows, 0, panel);
  else if (columns > L)
    multiply_tile_panel<Step, 2, true>(x, rows, columns - L, panel);
  else
    multiply_tile_panel<Step, 1, true>(x, rows, columns, panel);
}

// All panels of B by so many rows of A: what scratch memory has to hold of them fits. Leaves x as
// it was.
template <class Step>
void multiply_tile_panels(Product<Step>& x, int64_t rows, int64_t columns, TileShape& shape) {
  constexpr int64_t kNR = Product<Step>::kColumns;
  const auto* const b = x.b;
  auto* const c = x.c;
  const auto* const from = x.from;
  const auto of_columns = x.of_columns;
  const bool direct = x.direct();
  std::byte* const scratch = x.scratch;
  TilePanel panel;
  panel.shape = &shape;
  panel.b.row = panel.last_b.row = kRowBytes;
  panel.b.tile = panel.last_b.tile = kTileRow;
  int64_t rest = 0;
  [[maybe_unused]] bool split = true;
  if constexpr (kSplits<Step>) {
    panel.steps = ceil_div(x.k, kSplitSteps);
    panel.b.at = scratch;
    panel.b.step = Step::kPartsOfB * panel.b.part;
    panel.a.at = scratch + panel.steps * panel.b.step;
    panel.a.step = kPartsOfA * panel.a.part;
    panel.a.block = panel.steps * panel.a.step;
    split = split_rows(x.a, x.a_row, rows, x.k, panel.a);
  } else {
    panel.steps = x.k / kBundles;
    rest = x.k % kBundles;
    panel.has_last = rest > 0;
    panel.a.at = reinterpret_cast<const std::byte*>(x.a);
    panel.a.row = x.a_row * 4;
    panel.a.tile = kTile * panel.a.row;
    panel.a.block = 2 * panel.a.tile;
    panel.a.step = kTileRow;
    panel.b.step = kLastPanelBytes;
    panel.last_b.at = scratch;
    panel.last_a.at = scratch + kLastPanelBytes;
    panel.last_a.block = 2 * kTileBytes;
    if (rest > 0)
      copy_last_bundles(x.a + x.k - rest, x.a_row, rows, rest, scratch + kLastPanelBytes);
  }
  // Packed panels lie one behind the other; behind the last one come the next steps of k.
  const int64_t lines = direct ? 0 : ceil_div(x.k * x.kStepBytes, kLineBytes);
  panel.next.lines = ceil_div(lines, ceil_div(rows, kBlockRows) * panel.steps);
  while (columns > 0) {
    const auto* const next = columns > kNR ? x.b + x.b_panel : b + x.k * x.b_step;
    panel.next.at = reinterpret_cast<const char*>(next);
    const int64_t count = lesser(columns, kNR);
    if constexpr (kSplits<Step>) {
      const bool exact =
          split && (count < kNR && direct ? split_panel<Step, true>(x, count, panel.b)
                                          : split_panel<Step, false>(x, kNR, panel.b));
      if (exact)
        multiply_tile_panel(x, rows, count, panel);
      else
        multiply_panels(x, rows, count, false, kMaxRows);
    } else {
      panel.b.at = reinterpret_cast<const std::byte*>(x.b);
      if (rest > 0) {
        const auto* in = x.b + (x.k - rest) * x.b_step;
        __builtin_memcpy(scratch, in, static_cast<size_t>(rest * kRowBytes));
        __builtin_memset(scratch + rest * kRowBytes, 0,
                         static_cast<size_t>(kLastPanelBytes - rest * kRowBytes));
      }
      multiply_tile_panel(x, rows, count, panel);
    }
    columns -= kNR;
    x.b += x.b_panel;
    x.next_columns(kNR);
  }
  x.b = b;
  x.c = c;
  x.from = from;
  x.of_columns = of_columns;
}

DVM_INLINE int64_t whole_tiles(int64_t extent, int64_t tile) {
  return ceil_div(extent, tile) * tile;
}

// Whether tiles multiply so much faster than blocks in registers do. Whoever reads the parts pays
// for the splitting: many columns for A, many rows for B.
template <class Step>
DVM_INLINE bool tiles_pay(const Product<Step>& x, int64_t rows, int64_t columns) {
  if constexpr (!kSplits<Step>) return rows >= kLeastRows && x.k >= kBundles;
  const Splitting& of = *x.splitting;
  const auto m = static_cast<double>(rows), n = static_cast<double>(whole_tiles(columns, kTile));
  const double whole_m = static_cast<double>(whole_tiles(rows, kTile));
  const double share =
      static_cast<double>(whole_tiles(x.k, kSplitSteps)) / static_cast<double>(x.k);
  return of.rows > 0 && whole_m * n * share * of.multiply + m * of.a + n * of.b < m * n;
}

// C[rows, columns] (+)= A * B by way of tiles. Bundles pass in such chunks as blocks do, but no
// more rows than scratch memory has room for the last steps of; floats in as many rows and steps of
// k as it holds.
template <class Step>
void multiply_by_tiles(Product<Step>& x, int64_t rows, int64_t columns, int64_t chunk,
                       int64_t depth) {
  if constexpr (kSplits<Step>) {
    constexpr auto kHalf = static_cast<int64_t>(sizeof(uint16_t));
    constexpr int64_t kPanel = Step::kPartsOfB * kBlockRows;
    const int64_t room =
        kScratchBytes / (kHalf * (kPartsOfA * whole_tiles(rows, kBlockRows) + kPanel));
    const int64_t most = room < kLeastDepth ? kLeastDepth : lesser(room, kMostDepth);
    depth =
        whole_tiles(ceil_div(x.k, ceil_div(x.k, most / kSplitSteps * kSplitSteps)), kSplitSteps);
    chunk = (kScratchBytes / (kHalf * depth) - kPanel) / (kPartsOfA * kBlockRows) * kBlockRows;
  } else {
    chunk = lesser(chunk, (kScratchBytes - kLastPanelBytes) / kTileRow);
  }
  TileShape shape;
  multiply_chunks(x, rows, chunk, depth, [&](int64_t count) DVM_LAMBDA_INLINE {
    multiply_tile_panels(x, count, columns, shape);
  });
}
#endif

}  // namespace
}  // namespace dvm::DVM_LEVEL
