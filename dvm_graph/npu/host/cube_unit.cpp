// The cube unit: C[m,n] (+)= A[m,k] * B[k,n], or an addend and that, ended in passing, block by
// block (blocks.h).
//
// A row-major B under very few rows is streamed row by row instead: bandwidth is all that counts
// there, and only long contiguous reads get it. A B whose columns are contiguous (k stride 1) is
// read in place, too: elements of C are dot products, for which few rows or columns of C pay.
#include "npu/host/dots.h"
#include "npu/host/products.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

#if defined(DVM_AVX512) || defined(__aarch64__)
constexpr int kStreamScalars = 16;  // elements of A in registers while rows of B stream by
#else
constexpr int kStreamScalars = 8;
#endif
constexpr int kStreamRows = kStreamScalars / 4;

template <class T>
using Matmul = Product<Plain<T>>;

// Rows of C, a row-major B: C += Depth columns of A * Depth rows of B.
template <class T, int Rows, int Depth>
DVM_INLINE void stream_rows(const Matmul<T>& x, int64_t k, int64_t columns) {
  using V = Full<T>;
  V scalar[Rows][Depth];
  for (int i = 0; i < Rows; i++)
    for (int d = 0; d < Depth; d++) scalar[i][d] = splat<V>(x.a[i * x.a_row + k + d]);
  const T* b = x.b + k * x.b_step;
  const bool accumulate = x.accumulate || k > 0;
  const T* from = k > 0 ? x.c : x.from;
  const int64_t from_row = k > 0 ? x.c_row : x.from_row;
  const auto vector = [&](int64_t n, auto load_at, auto store_at) DVM_LAMBDA_INLINE {
    V row[Depth];
    for (int d = 0; d < Depth; d++) row[d] = load_at(b + d * x.b_step + n);
    for (int i = 0; i < Rows; i++) {
      V even = accumulate ? load_at(from + i * from_row + n) : V{}, odd = V{};
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

// Steps of k that pass over C at once.
constexpr int64_t stream_depth(int64_t rows) { return rows <= kStreamScalars / 8 ? 8 : 4; }

// A narrow C is better off in registers than passed over again and again.
template <class T>
DVM_INLINE bool streams_pay(const Matmul<T>& x, int64_t rows, int64_t columns) {
  constexpr int64_t kFewPasses = 2;
  const int64_t depth = stream_depth(rows);
  return columns > x.kColumns || x.k / depth + x.k % depth <= kFewPasses;
}

template <class T, int Rows>
[[gnu::noinline]] void multiply_streamed(const Matmul<T>& x, int64_t columns) {
  constexpr int kDepth = stream_depth(Rows);
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

// So many blocks of rows, one after the other: of A, only pointers move.
template <class T, int Rows>
[[gnu::noinline]] void multiply_dot_rows(Matmul<T> x, int64_t blocks, int64_t columns) {
  const auto take = [&]<int Columns>(std::integral_constant<int, Columns>) DVM_LAMBDA_INLINE {
    Matmul<T> block = x;
    for (int64_t left = blocks; left > 0; left--) {
      multiply_dots<Plain<T>, Rows, Columns>(block);
      block.a += Rows * x.a_row;
      block.c += Rows * x.c_row;
      block.from += Rows * x.from_row;
    }
    x.b += Columns * x.b_column;
    x.c += Columns;
    x.from += Columns;
  };
  for (; columns >= kDots; columns -= kDots) take(std::integral_constant<int, kDots>{});
  if (columns == 3) take(std::integral_constant<int, 3>{});
  if (columns == 2) take(std::integral_constant<int, 2>{});
  if (columns == 1) take(std::integral_constant<int, 1>{});
}

template <class T>
void multiply_columns(Matmul<T> x, int64_t rows, int64_t columns) {
  const int64_t blocks = rows / kDots;
  if (blocks > 0) multiply_dot_rows<T, kDots>(x, blocks, columns);
  x.a += blocks * kDots * x.a_row;
  x.c += blocks * kDots * x.c_row;
  x.from += blocks * kDots * x.from_row;
  rows -= blocks * kDots;
  if (rows == 3) multiply_dot_rows<T, 3>(x, 1, columns);
  if (rows == 2) multiply_dot_rows<T, 2>(x, 1, columns);
  if (rows == 1) multiply_dot_rows<T, 1>(x, 1, columns);
}

// What is no block of C is ended behind the product.
template <class T>
void end_rows(const Product<Ended<T>>& x, int64_t rows, int64_t columns) {
  using V = Full<T>;
  if (!x.ending.any()) return;
  for (int64_t m = 0; m < rows; m++) {
    T* row = x.c + m * x.c_row;
    for (int64_t n = 0; n < columns; n += kLanes<T>) {
      const int64_t lanes = lesser<int64_t>(kLanes<T>, columns - n);
      store_partial(row + n, x.ending.end(load_partial<V>(row + n, lanes)), lanes);
    }
  }
}

// Where columns of B are contiguous, or few rows of C read rows of it. False: neither is so.
template <class T>
bool multiply_in_place(const Matmul<T>& x, bool contiguous_columns, int64_t rows, int64_t columns) {
  constexpr auto kRows = std::make_integer_sequence<int, kStreamRows>{};
  if (contiguous_columns)
    multiply_columns(x, rows, columns);
  else
    return streams_pay(x, rows, columns) && multiply_streamed(x, rows, columns, kRows);
  return true;
}

template <class T>
Matmul<T> without_ending(const Product<Ended<T>>& x) {
  Matmul<T> plain{};
  plain.a = x.a;
  plain.a_row = x.a_row;
  plain.b = x.b;
  plain.b_step = x.b_step;
  plain.b_panel = x.b_panel;
  plain.b_column = x.b_column;
  plain.c = x.c;
  plain.c_row = x.c_row;
  plain.k = x.k;
  plain.accumulate = x.accumulate;
  plain.later = x.later;
  plain.from = x.from;
  plain.from_row = x.from_row;
  plain.chunk_bytes = x.chunk_bytes;
  plain.scratch = x.scratch;
  plain.splitting = x.splitting;
  plain.stream = x.stream;
  return plain;
}
template <class T>
const Matmul<T>& without_ending(const Matmul<T>& x) {
  return x;
}

// Blocks of packed panels take x as it is: short products would wait for a copy of what has just
// been written.
template <class Step>
void multiply(Product<Step>& x, int64_t rows, int64_t columns) {
  using T = typename Step::A;
  const bool contiguous_columns = x.b_step == 1 && (x.b_column != 1 || columns == 1);
  const bool direct = x.direct();
  if (contiguous_columns || (direct && x.k > 0)) {
    if (multiply_in_place<T>(without_ending(x), contiguous_columns, rows, columns)) {
      if constexpr (Step::kEnds) end_rows(x, rows, columns);
      return;
    }
  }
  const int64_t depth = direct ? kDirectDepth : x.k + 1;
  if constexpr (Step::kEnds) {
    if (x.from == x.c && !x.ending.any()) {
      Matmul<T> plain = without_ending(x);
      return multiply_blocks(plain, rows, columns, depth);
    }
  }
  multiply_blocks(x, rows, columns, depth);
}

template <class T, bool Ends>
void matmul_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const uint8_t flags = flags_of(words);
  const Tile<const T> a = tile_at<const T>(core, operand_words(words, 1));
  Product<std::conditional_t<Ends, Ended<T>, Plain<T>>> x{};
  read_operands(x, core, words, 2);
  x.a = a.at;
  x.a_row = a.middle;
  x.k = e.middle;
  if constexpr (Ends) {
    read_ending(x, core, words, Form::matmul_clamp, 3);
  } else {
    x.accumulate =
        (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
  }
  x.chunk_bytes = chunk_bytes(core);
  x.scratch = core.scratch;
  x.splitting = &core.splitting;
  FetchLater later(core, bursts_of(e.outer, e.inner, e.middle, x.kColumns));
  if (later.any()) x.later = &later;
  multiply(x, e.outer, e.inner);
}

struct Cube {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::cube;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    return &matmul_handler<ElementType<D>, Form_ == Form::matmul_clamp>;
  }
};

}  // namespace

void fill_cube(Handler* handlers) { fill_handlers<Cube>(handlers); }

extern const LevelInfo level_info;
const LevelInfo level_info = {kVectorBytes, kPanelVectors * kLanes<float>, kMaxRows, kSplitRows};

}  // namespace dvm::DVM_LEVEL
