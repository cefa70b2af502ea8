// The cube unit: C[m,n] (+)= A[m,k] * B[k,n].
//
// B comes in panels of NR = 2 vectors of columns: packed ([k][NR], padded with zeros) or direct
// from a row-major matrix (panel stride NR, k stride the row length); the last panel may be ragged
// and is then read and written under a mask, never past column n. A is read in place, row by row.
//
// A block of `Rows` x `Vectors` accumulators lives in registers while k runs. Rows are cut into
// blocks of nearly equal size; for each panel of B all row blocks are done before the next panel,
// so that B is read once. With few rows the FMAs of one panel are too few to hide their latency
// and the loads of B are the limit: such blocks take several panels at once.
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
// Steps of k ahead of the FMAs; with few rows a step is short.
constexpr int64_t prefetch_b(int rows) { return rows < 8 ? 64 : 32; }
constexpr int64_t kPrefetchA = 4;  // vectors of k ahead: the rows of A are many streams

template <class T>
struct Matmul {
  const T* a;
  int64_t a_row;  // strides, in elements
  const T* b;
  int64_t b_step, b_panel;
  T* c;
  int64_t c_row;
  int64_t k;
  bool accumulate;
};

// C block: Rows rows, Panels panels. `ragged` (0: none) is the number of valid elements in the last
// of Vectors vectors per panel.
template <class T, int Rows, int Vectors, int Panels, bool Ragged>
[[gnu::noinline]] void multiply_block(const Matmul<T>& x, int64_t ragged) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  constexpr int N = Vectors * Panels;
  V sum[Rows][N];
  for (int i = 0; i < Rows; i++)
    for (int j = 0; j < N; j++) sum[i][j] = V{};

  const auto c_at = [&](int i, int j) {
    return x.c + i * x.c_row + (j / Vectors) * kPanelVectors * L + (j % Vectors) * L;
  };
  for (int i = 0; i < Rows; i++)
    for (int j = 0; j < N; j++) __builtin_prefetch(c_at(i, j), 1);
  const T* a = x.a;
  const T* b = x.b;
  for (int64_t k = 0; k < x.k; k++, b += x.b_step) {
    if (k % L == 0) {
      for (int i = 0; i < Rows; i++) __builtin_prefetch(a + i * x.a_row + k + kPrefetchA * L);
    }
    V column[N];
    for (int j = 0; j < N; j++) {
      const T* at = b + (j / Vectors) * x.b_panel + (j % Vectors) * L;
      column[j] = Ragged && j == N - 1 ? load_partial<V>(at, ragged) : load<V>(at);
      if constexpr (!Ragged) __builtin_prefetch(at + prefetch_b(Rows) * x.b_step);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; i++) {
      const V scalar = splat<V>(a[i * x.a_row + k]);
      for (int j = 0; j < N; j++) sum[i][j] += scalar * column[j];
    }
  }
  for (int i = 0; i < Rows; i++) {
    for (int j = 0; j < N; j++) {
      T* at = c_at(i, j);
      if (Ragged && j == N - 1) {
        if (x.accumulate) sum[i][j] += load_partial<V>(at, ragged);
        store_partial(at, sum[i][j], ragged);
      } else {
        if (x.accumulate) sum[i][j] += load<V>(at);
        store(at, sum[i][j]);
      }
    }
  }
}

template <class T>
using Block = void (*)(const Matmul<T>&, int64_t);

// By rows - 1.
template <class T, int Vectors, int Panels, bool Ragged, int... Rows>
constexpr Block<T> block_of(int rows, std::integer_sequence<int, Rows...>) {
  constexpr Block<T> kBlocks[] = {&multiply_block<T, Rows + 1, Vectors, Panels, Ragged>...};
  return kBlocks[rows - 1];
}
template <class T, int Vectors, int Panels, bool Ragged, int MaxRows = kMaxRows>
DVM_INLINE Block<T> block_of(int64_t rows) {
  return block_of<T, Vectors, Panels, Ragged>(static_cast<int>(rows),
                                              std::make_integer_sequence<int, MaxRows>{});
}

// Panels that a block of so many rows takes at once: about 8 accumulators.
constexpr int64_t panels_at_once(int64_t rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

template <class T>
DVM_INLINE Block<T> block_for(int64_t rows, int64_t panels) {
  if (panels == 4) return block_of<T, kPanelVectors, 4, false, 1>(rows);
  if (panels == 2) return block_of<T, kPanelVectors, 2, false, 2>(rows);
  return block_of<T, kPanelVectors, 1, false>(rows);
}

template <class T>
DVM_INLINE void multiply_rows(const Matmul<T>& whole, int64_t rows, int64_t step, Block<T> block,
                              Block<T> last_block, int64_t ragged) {
  Matmul<T> x = whole;
  for (int64_t m = 0; m < rows; m += step) {
    (m + step <= rows ? block : last_block)(x, ragged);
    x.a += step * x.a_row;
    x.c += step * x.c_row;
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
void multiply(Matmul<T> x, int64_t rows, int64_t columns) {
  constexpr int64_t L = kLanes<T>, kNR = kPanelVectors * L;
  const int64_t most = most_rows<T>(x.a_row);
  const int64_t blocks = (rows + most - 1) / most, step = (rows + blocks - 1) / blocks;
  const int64_t last = rows - (rows - 1) / step * step;
  int64_t whole_panels = columns / kNR;
  const auto advance = [&](int64_t panels) {
    x.b += panels * x.b_panel;
    x.c += panels * kNR;
    whole_panels -= panels;
  };
  for (int64_t panels = panels_at_once(rows); panels > 1; panels /= 2) {
    const Block<T> block = block_for<T>(rows, panels);
    while (whole_panels >= panels) {
      block(x, 0);
      advance(panels);
    }
  }
  const Block<T> block = block_for<T>(step, 1), last_block = block_for<T>(last, 1);
  while (whole_panels > 0) {
    multiply_rows(x, rows, step, block, last_block, 0);
    advance(1);
  }
  const int64_t left = columns % kNR;
  if (left > L) {
    multiply_rows(x, rows, step, block_of<T, 2, 1, true>(step), block_of<T, 2, 1, true>(last),
                  left - L);
  } else if (left > 0) {
    multiply_rows(x, rows, step, block_of<T, 1, 1, true>(step), block_of<T, 1, 1, true>(last),
                  left);
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
