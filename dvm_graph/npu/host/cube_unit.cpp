// The cube unit: C[m,n] (+)= A[m,k] * B[k,n].
//
// B comes in panels of NR = 2 vectors of columns: packed ([k][NR], padded with zeros) or direct
// from a row-major matrix (panel stride NR, k stride the row length); the last panel may be ragged
// and is then read and written under a mask, never past column n. A is read in place, row by row.
//
// A block of `Rows` x `Vectors` accumulators lives in registers while k runs. Rows are cut into
// blocks of nearly equal size; for each panel of B all row blocks are done before the next panel,
// so that B is read once from memory, and the next panel is fetched into L2 meanwhile. So many rows
// of A pass at a time that they stay in L2. Short blocks split k over several accumulators, which
// hides the latency of the FMAs.
//
// A row-major B under very few rows is streamed row by row instead: bandwidth is all that counts
// there, and only long contiguous reads get it. A B whose columns are contiguous (k stride 1) is
// read in place, too: elements of C are dot products, for which few rows or columns of C pay.
#include "npu/host/loops.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

#if defined(DVM_AVX512)
constexpr int kMaxRows = 14;  // 28 accumulators, 2 of B, 1 of A: 31 of 32 registers
#elif defined(DVM_AVX2)
constexpr int kMaxRows = 6;
#elif defined(__aarch64__)
constexpr int kMaxRows = 12;
#else
constexpr int kMaxRows = 5;
#endif
constexpr int kPanelVectors = 2;
constexpr int kLatencySums = 8;  // accumulators that keep the FMA units busy
// Rows from which the FMAs of a panel leave time to fetch the next one; shorter blocks run at the
// speed of the hardware's own prefetching, which software prefetches only slow down.
constexpr int kAheadRows = 9;
constexpr int64_t kAheadSteps = 16;                  // of k between bursts of prefetches into L2
constexpr int64_t kNearSteps = 32;                   // of k that B comes into L1 before its use
constexpr int64_t kChunkBytes = int64_t{544} << 10;  // of A: stays in L2 beside two panels of B
constexpr int64_t kDirectDepth = 128;                // of k: rows of a direct B stay in L2
// Panels of a direct B whose rows are fetched in one run: those of a panel alone are so short that
// misses of the TLB and of the pages of DRAM would cost more than the reading.
constexpr int64_t kDirectRun = 2;
template <class T>
constexpr int64_t kLineElements = 64 / static_cast<int64_t>(sizeof(T));
#if defined(DVM_AVX512) || defined(__aarch64__)
constexpr int kStreamScalars = 16;  // elements of A in registers while rows of B stream by
#else
constexpr int kStreamScalars = 8;
#endif
constexpr int kStreamRows = kStreamScalars / 4;
constexpr int kDots = 4;  // rows, and columns, of a block of dot products

template <class T>
struct Matmul {
  const T* a;
  int64_t a_row;  // strides, in elements
  const T* b;
  int64_t b_step, b_panel, b_column;
  T* c;
  int64_t c_row;
  int64_t k;
  bool accumulate;
  const T* ahead = nullptr;  // rows of B to fetch into L2 meanwhile
  int64_t ahead_rows = 0;    // per kAheadSteps steps of k
  int64_t ahead_columns = 0;

  static constexpr int64_t kColumns = kPanelVectors * kLanes<T>;

  bool direct() const { return b_panel == kColumns && b_step != kColumns; }
  bool contiguous_columns(int64_t columns) const {
    return b_step == 1 && (b_column != 1 || columns == 1);
  }
};

// C block: Rows rows, one panel. `ragged` (0: none) is the number of valid elements in the last
// vector. All loops over accumulators are unrolled, so that these are registers.
template <class T, int Rows, int Vectors, bool Ragged>
[[gnu::noinline]] void multiply_block(const Matmul<T>& x, int64_t ragged) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  constexpr int kSums = Rows * Vectors >= kLatencySums ? 1 : kLatencySums / (Rows * Vectors);
  constexpr bool kPrefetches = Rows >= kAheadRows || Rows == kMaxRows;
  V sum[kSums * Rows][Vectors];
#pragma GCC unroll 64
  for (int i = 0; i < kSums * Rows; i++)
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; j++) sum[i][j] = V{};
#pragma GCC unroll 64
  for (int i = 0; i < Rows; i++)
    for (int j = 0; j < Vectors; j++) __builtin_prefetch(x.c + i * x.c_row + j * L, 1);
  // One pointer for three rows, which the compiler must not derive from each other: it would run
  // out of registers for the offsets of all rows.
  constexpr int kGroup = 3, kGroups = (Rows + kGroup - 1) / kGroup;
  const T* group[kGroups];
  const int64_t a_row = x.a_row, b_step = x.b_step;
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; g++) {
    group[g] = x.a + g * kGroup * a_row;
    asm("" : "+r"(group[g]));
  }
  const T* b = x.b;
  const auto step = [&](int first) DVM_LAMBDA_INLINE {
    V column[Vectors];
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; j++) {
      const T* at = b + j * L;
      column[j] = Ragged && j == Vectors - 1 ? load_partial<V>(at, ragged) : load<V>(at);
    }
#pragma GCC unroll 64
    for (int i = 0; i < Rows; i++) {
      const V scalar = splat<V>(group[i / kGroup][i % kGroup * a_row]);
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; j++) sum[first + i][j] += scalar * column[j];
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; g++) group[g]++;
    if constexpr (kPrefetches) {
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; j++) __builtin_prefetch(b + kNearSteps * b_step + j * L);
    }
    b += b_step;
  };
  if constexpr (kSums > 1) {
    int64_t k = 0;
    for (; k + kSums <= x.k; k += kSums) {
#pragma GCC unroll 8
      for (int u = 0; u < kSums; u++) step(u * Rows);
    }
    for (; k < x.k; k++) step(0);
#pragma GCC unroll 64
    for (int i = Rows; i < kSums * Rows; i++)
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; j++) sum[i % Rows][j] += sum[i][j];
  } else {
    const T* ahead = x.ahead;
    const int64_t ahead_rows = x.ahead_rows, ahead_columns = x.ahead_columns;
    for (int64_t k = 0; k < x.k; k += kAheadSteps) {
      if constexpr (kPrefetches) {
#pragma GCC unroll 64
        for (int i = 0; i < Rows; i++)
          __builtin_prefetch(group[i / kGroup] + (i % kGroup + Rows) * a_row, 0, 2);
        // By the last element of every line's worth: a B that is not aligned to lines lies in one
        // more, the first, which came with the columns before.
        for (int64_t row = 0; row < ahead_rows; row++, ahead += b_step)
          for (int64_t n = kLineElements<T> - 1; n < ahead_columns; n += kLineElements<T>)
            __builtin_prefetch(ahead + n, 0, 2);
      }
      for (int64_t left = lesser(x.k - k, kAheadSteps); left > 0; left--) step(0);
    }
  }
  T* c = x.c;
  const int64_t c_row = x.c_row;
  const bool accumulate = x.accumulate;
#pragma GCC unroll 64
  for (int i = 0; i < Rows; i++, c += c_row) {
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; j++) {
      T* at = c + j * L;
      V result = sum[i][j];
      if (Ragged && j == Vectors - 1) {
        if (accumulate) result += load_partial<V>(at, ragged);
        store_partial(at, result, ragged);
      } else {
        if (accumulate) result += load<V>(at);
        store(at, result);
      }
    }
  }
}

template <class T>
using Block = void (*)(const Matmul<T>&, int64_t);

// By rows - 1.
template <class T, int Vectors, bool Ragged, int... Rows>
constexpr Block<T> block_of(int rows, std::integer_sequence<int, Rows...>) {
  constexpr Block<T> kBlocks[] = {&multiply_block<T, Rows + 1, Vectors, Ragged>...};
  return kBlocks[rows - 1];
}
template <class T, int Vectors, bool Ragged>
DVM_INLINE Block<T> block_of(int64_t rows) {
  return block_of<T, Vectors, Ragged>(static_cast<int>(rows),
                                      std::make_integer_sequence<int, kMaxRows>{});
}

// Rows as blocks of nearly equal size.
struct RowBlocks {
  int64_t rows, count, step, last;

  DVM_INLINE RowBlocks(int64_t all, int64_t most)
      : rows(all),
        count((all + most - 1) / most),
        step((all + count - 1) / count),
        last(all - (all - 1) / step * step) {}
};

// One panel of B, or the `Vectors` vectors of a ragged one.
template <class T, int Vectors, bool Ragged>
DVM_INLINE void multiply_panel(const Matmul<T>& panel, const RowBlocks& rows, int64_t ragged) {
  const Block<T> block = block_of<T, Vectors, Ragged>(rows.step);
  const Block<T> last = block_of<T, Vectors, Ragged>(rows.last);
  const int64_t ahead_rows = (panel.k + kAheadSteps - 1) / kAheadSteps * panel.ahead_rows;
  Matmul<T> x = panel;
  for (int64_t m = 0; m < rows.rows; m += rows.step) {
    (m + rows.step <= rows.rows ? block : last)(x, ragged);
    x.a += rows.step * x.a_row;
    x.c += rows.step * x.c_row;
    x.ahead += ahead_rows * x.b_step;
  }
}

// Rows of A a multiple of a cache way apart all fall into one set of L1: a block then takes no more
// rows than the set has room for beside B.
template <class T>
DVM_INLINE int64_t most_rows(int64_t a_row) {
  constexpr int64_t kWayBytes = 4096;
  constexpr int kRowsPerSet = kMaxRows < 11 ? kMaxRows : 11;
  return a_row * static_cast<int64_t>(sizeof(T)) % kWayBytes == 0 ? kRowsPerSet : kMaxRows;
}

template <class T>
DVM_INLINE void multiply_panels(Matmul<T> x, const RowBlocks& rows, int64_t columns) {
  constexpr int64_t L = kLanes<T>, kNR = Matmul<T>::kColumns;
  // Behind the last panel come the next steps of k, of the first one.
  const T* next_depth = x.b + x.k * x.b_step;
  // Panels of a run take turns: each fetches a share of the next run's rows.
  const int64_t run = x.direct() ? kDirectRun : 1;
  x.ahead_rows = (kAheadSteps + rows.count * run - 1) / (rows.count * run);
  x.ahead_columns = run * kNR;
  const int64_t share = (x.k + kAheadSteps - 1) / kAheadSteps * rows.count * x.ahead_rows;
  int64_t left = columns, turn = 0;
  for (; left >= kNR; left -= kNR) {
    const int64_t panels = run - turn;  // to the next run
    x.ahead =
        (left > panels * kNR ? x.b + panels * x.b_panel : next_depth) + turn * share * x.b_step;
    turn = panels > 1 ? turn + 1 : 0;
    multiply_panel<T, 2, false>(x, rows, 0);
    x.b += x.b_panel;
    x.c += kNR;
  }
  x.ahead_rows = 0;
  if (left > L) {
    multiply_panel<T, 2, true>(x, rows, left - L);
  } else if (left > 0) {
    multiply_panel<T, 1, true>(x, rows, left);
  }
}

// Rows of C, a row-major B: C += Depth columns of A * Depth rows of B.
template <class T, int Rows, int Depth>
DVM_INLINE void stream_rows(const Matmul<T>& x, int64_t k, int64_t columns) {
  using V = Full<T>;
  V scalar[Rows][Depth];
  for (int i = 0; i < Rows; i++)
    for (int d = 0; d < Depth; d++) scalar[i][d] = splat<V>(x.a[i * x.a_row + k + d]);
  const T* b = x.b + k * x.b_step;
  const bool accumulate = x.accumulate || k > 0;
  const auto vector = [&](int64_t n, auto load_at, auto store_at) DVM_LAMBDA_INLINE {
    V row[Depth];
    for (int d = 0; d < Depth; d++) row[d] = load_at(b + d * x.b_step + n);
    for (int i = 0; i < Rows; i++) {
      V even = accumulate ? load_at(x.c + i * x.c_row + n) : V{}, odd = V{};
      for (int d = 0; d < Depth; d++) (d % 2 == 0 ? even : odd) += scalar[i][d] * row[d];
      store_at(x.c + i * x.c_row + n, even + odd);
    }
  };
  int64_t n = 0;
  for (; n + kLanes<T> <= columns; n += kLanes<T>) {
    vector(
        n, [](const T* at) DVM_LAMBDA_INLINE { return load<V>(at); },
        [](T* at, V v) DVM_LAMBDA_INLINE { store(at, v); });
  }
  if (n < columns) {
    vector(
        n, [&](const T* at) DVM_LAMBDA_INLINE { return load_partial<V>(at, columns - n); },
        [&](T* at, V v) DVM_LAMBDA_INLINE { store_partial(at, v, columns - n); });
  }
}

template <class T, int Rows>
[[gnu::noinline]] void multiply_streamed(const Matmul<T>& x, int64_t columns) {
  constexpr int kDepth = Rows <= kStreamScalars / 8 ? 8 : 4;
  int64_t k = 0;
  for (; k + kDepth <= x.k; k += kDepth) stream_rows<T, Rows, kDepth>(x, k, columns);
  for (; k < x.k; k++) stream_rows<T, Rows, 1>(x, k, columns);
}

// False: not that few rows.
template <class T, int... Rows>
DVM_INLINE bool multiply_streamed(const Matmul<T>& x, int64_t rows, int64_t columns,
                                  std::integer_sequence<int, Rows...>) {
  return ((rows == Rows + 1 && (multiply_streamed<T, Rows + 1>(x, columns), true)) || ...);
}

template <class V>
DVM_INLINE Element<V> sum_lanes(V v) {
  if constexpr (sizeof(V) > 16) {
    return sum_lanes(low_half(v) + high_half(v));
  } else if constexpr (kLanesOf<V> == 4) {
    return (v[0] + v[2]) + (v[1] + v[3]);
  } else {
    return v[0] + v[1];
  }
}

// A block of C: rows of A by columns of B, both contiguous along k.
template <class T, int Rows, int Columns>
DVM_INLINE void multiply_dots(const Matmul<T>& x) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  V sum[Rows][Columns] = {};
  const auto step = [&](auto load_at) DVM_LAMBDA_INLINE {
    V column[Columns];
#pragma GCC unroll 4
    for (int j = 0; j < Columns; j++) column[j] = load_at(x.b + j * x.b_column);
#pragma GCC unroll 4
    for (int i = 0; i < Rows; i++) {
      const V row = load_at(x.a + i * x.a_row);
#pragma GCC unroll 4
      for (int j = 0; j < Columns; j++) sum[i][j] += row * column[j];
    }
  };
  int64_t k = 0;
  for (; k + L <= x.k; k += L) step([k](const T* at) DVM_LAMBDA_INLINE { return load<V>(at + k); });
  if (k < x.k) {
    step([k, n = x.k - k](const T* at) DVM_LAMBDA_INLINE { return load_partial<V>(at + k, n); });
  }
#pragma GCC unroll 4
  for (int i = 0; i < Rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < Columns; j++) {
      T& c = x.c[i * x.c_row + j];
      c = sum_lanes(sum[i][j]) + (x.accumulate ? c : T{0});
    }
  }
}

template <class T, int Rows>
[[gnu::noinline]] void multiply_dot_rows(Matmul<T> x, int64_t columns) {
  for (; columns >= kDots; columns -= kDots) {
    multiply_dots<T, Rows, kDots>(x);
    x.b += kDots * x.b_column;
    x.c += kDots;
  }
  for (; columns > 0; columns--) {
    multiply_dots<T, Rows, 1>(x);
    x.b += x.b_column;
    x.c++;
  }
}

template <class T>
void multiply_columns(Matmul<T> x, int64_t rows, int64_t columns) {
  for (; rows >= kDots; rows -= kDots) {
    multiply_dot_rows<T, kDots>(x, columns);
    x.a += kDots * x.a_row;
    x.c += kDots * x.c_row;
  }
  if (rows == 3) multiply_dot_rows<T, 3>(x, columns);
  if (rows == 2) multiply_dot_rows<T, 2>(x, columns);
  if (rows == 1) multiply_dot_rows<T, 1>(x, columns);
}

template <class T>
void multiply(Matmul<T> x, int64_t rows, int64_t columns) {
  if (x.contiguous_columns(columns)) return multiply_columns(x, rows, columns);
  if (x.direct() && x.k > 0 &&
      multiply_streamed(x, rows, columns, std::make_integer_sequence<int, kStreamRows>{})) {
    return;
  }
  const int64_t most = most_rows<T>(x.a_row);
  const int64_t row_bytes = (x.k + 1) * static_cast<int64_t>(sizeof(T));
  const int64_t resident = kChunkBytes / row_bytes;
  const RowBlocks chunks(rows, resident > most ? resident : most);
  const int64_t depth = x.direct() ? kDirectDepth : x.k + 1;
  for (int64_t m = 0; m < rows; m += chunks.step) {
    const RowBlocks chunk(lesser(rows - m, chunks.step), most);
    Matmul<T> part = x;
    for (int64_t k = 0; k == 0 || k < x.k; k += depth) {
      part.k = lesser(x.k - k, depth);
      multiply_panels(part, chunk, columns);
      part.accumulate = true;
      part.a += depth;
      part.b += depth * x.b_step;
    }
    x.a += chunks.step * x.a_row;
    x.c += chunks.step * x.c_row;
  }
}

template <class T>
void matmul_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const uint8_t flags = flags_of(words);
  const Tile<T> c = tile_at<T>(core, words + 1);
  const Tile<const T> a = tile_at<const T>(core, words + 3), b = tile_at<const T>(core, words + 5);
  Matmul<T> x;
  x.a = a.at;
  x.a_row = a.middle;
  x.b = b.at;
  x.b_step = b.middle;
  x.b_panel = b.outer;
  x.b_column = b.inner;
  x.c = c.at;
  x.c_row = c.middle;
  x.k = e.middle;
  x.accumulate =
      (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
  multiply(x, e.outer, e.inner);
}

struct Cube {
  static constexpr bool accepts(Family family, Form form) {
    return part_of(family, form) == Part::cube;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    return &matmul_handler<ElementType<D>>;
  }
};

}  // namespace

void fill_cube(Handler* handlers) { fill_handlers<Cube>(handlers); }

extern const LevelInfo level_info;
const LevelInfo level_info = {kVectorBytes, kPanelVectors * kLanes<float>, kMaxRows};

}  // namespace dvm::DVM_LEVEL
