// Reductions: xn[M, size, N] to xd[M, 1, N].
//
// Rows (N = 1, contiguous along size) use four vector accumulators; columns (contiguous along N)
// accumulate whole vectors. Long folds are split pairwise, but for columns of wide rows, which add
// up eight rows at a time. The order depends on the extents and strides only: the same input gives
// the same bits.
#include "npu/host/folds.h"
#include "npu/host/loops.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class Op, class T>
DVM_INLINE Full<T> load_or_identity(const T* from, int64_t count) {
  using V = Full<T>;
  using Lane = std::conditional_t<sizeof(T) == 8, int64_t,
                                  std::conditional_t<sizeof(T) == 4, int32_t, int8_t>>;
  constexpr T kIdentity = Op::template kIdentity<T>;
  const V v = load_partial<V>(from, count);
  if constexpr (kIdentity == 0 && !std::is_same_v<T, uint8_t>) {
    return v;
  } else {
    Vec<Lane, kLanes<T>> lane;
    for (int i = 0; i < kLanes<T>; i++) lane[i] = static_cast<Lane>(i);
    return lane < static_cast<Lane>(count) ? v : splat<V>(kIdentity);
  }
}

// Longer folds are split in halves, so that the error of a sum grows with the logarithm.
constexpr int64_t kRowBlock = 64, kColumnBlock = 32;  // vectors

// A number of elements to the left of the split that is a multiple of `unit` and about half of n.
DVM_INLINE int64_t half_of(int64_t n, int64_t unit) { return (n / 2 + unit - 1) / unit * unit; }

// Folds `n` contiguous whole vectors, 0 < n <= kRowBlock.
template <class Op, class T>
DVM_INLINE Full<T> fold_row_block(const T* from, int64_t n) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  V total = load<V>(from);
  int64_t i = 1;
  if (n >= 4) {
    V b = load<V>(from + L), c = load<V>(from + 2 * L), d = load<V>(from + 3 * L);
    for (i = 4; i + 4 <= n; i += 4) {
      const T* at = from + i * L;
      total = Op::combine(total, load<V>(at));
      b = Op::combine(b, load<V>(at + L));
      c = Op::combine(c, load<V>(at + 2 * L));
      d = Op::combine(d, load<V>(at + 3 * L));
    }
    total = Op::combine(Op::combine(total, b), Op::combine(c, d));
  }
  for (; i < n; i++) total = Op::combine(total, load<V>(from + i * L));
  return total;
}

template <class Op, class T>
Full<T> fold_vectors(const T* from, int64_t n) {
  if (n <= kRowBlock) return fold_row_block<Op>(from, n);
  const int64_t half = half_of(n, 4);
  const Full<T> left = fold_vectors<Op>(from, half);  // first: memory is fetched ahead upwards
  return Op::combine(left, fold_vectors<Op>(from + half * kLanes<T>, n - half));
}

// Folds n contiguous elements, n > 0, to a vector whose lanes are left to fold.
template <class Op, class T>
DVM_INLINE Full<T> fold_row(const T* from, int64_t n) {
  constexpr int64_t L = kLanes<T>;
  const int64_t whole = n / L, tail = n % L;
  if (whole == 0) return load_or_identity<Op>(from, n);
  const Full<T> total =
      whole <= kRowBlock ? fold_row_block<Op>(from, whole) : fold_vectors<Op>(from, whole);
  if (tail == 0) return total;
  return Op::combine(total, load_or_identity<Op>(from + whole * L, tail));
}

// Folds rows of n contiguous elements each, n > 0.
template <class Op, class T>
void fold_contiguous_rows(T* to, int64_t to_stride, const T* from, int64_t rows, int64_t stride,
                          int64_t n, bool accumulate) {
  Totals<Op, T> totals(to, to_stride, accumulate);
  for (int64_t row = 0; row < rows; row++) totals.add(fold_row<Op>(from + row * stride, n));
  totals.write();
}

template <class V, int Columns>
struct ColumnVectors {
  V at[Columns];
};

// `tail`: elements in the last of the Columns vectors.
template <class T, int Columns>
DVM_INLINE Full<T> load_column(const T* row, int column, int64_t tail) {
  constexpr int64_t L = kLanes<T>;
  return Columns == 1 && tail < L ? load_partial<Full<T>>(row, tail)
                                  : load<Full<T>>(row + column * L);
}

// Folds `size` > 0 rows, `stride` apart, of Columns vectors.
template <class Op, class T, int Columns>
ColumnVectors<Full<T>, Columns> fold_columns(const T* from, int64_t size, int64_t stride,
                                             int64_t tail) {
  using V = Full<T>;
  ColumnVectors<V, Columns> total;
  if (size > kColumnBlock) {
    const int64_t top = half_of(size, kColumnBlock);
    total = fold_columns<Op, T, Columns>(from, top, stride, tail);
    const auto below = fold_columns<Op, T, Columns>(from + top * stride, size - top, stride, tail);
    for (int c = 0; c < Columns; c++) total.at[c] = Op::combine(total.at[c], below.at[c]);
    return total;
  }
  V block[Columns];
  for (int c = 0; c < Columns; c++) block[c] = load_column<T, Columns>(from, c, tail);
  for (int64_t s = 1; s < size; s++) {
    const T* row = from + s * stride;
    for (int c = 0; c < Columns; c++) {
      block[c] = Op::combine(block[c], load_column<T, Columns>(row, c, tail));
    }
  }
  for (int c = 0; c < Columns; c++) total.at[c] = block[c];
  return total;
}

template <class Op, class T, int Columns>
DVM_INLINE void reduce_columns(T* to, const T* from, int64_t size, int64_t stride, int64_t tail,
                               bool accumulate) {
  constexpr int64_t L = kLanes<T>;
  ColumnVectors<Full<T>, Columns> total;
  for (auto& v : total.at) v = splat<Full<T>>(Op::template kIdentity<T>);
  if (size > 0) total = fold_columns<Op, T, Columns>(from, size, stride, tail);
  for (int c = 0; c < Columns; c++) {
    Full<T> v = total.at[c];
    if (accumulate) v = Op::combine(load_column<T, Columns>(to, c, tail), v);
    if (Columns == 1 && tail < L)
      store_partial(to, v, tail);
    else
      store(to + c * L, v);
  }
}

// Folds `Rows` rows, `stride` apart, into n totals; `fresh`: nothing has been folded into them.
template <class Op, class T, int Rows>
void fold_rows(T* to, const T* from, int64_t stride, int64_t n, bool fresh) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  const auto folded = [=](int64_t i, auto load_at) DVM_LAMBDA_INLINE {
    V rows[Rows];
    for (int r = 0; r < Rows; r++) rows[r] = load_at(from + r * stride + i);
    for (int step = Rows / 2; step > 0; step /= 2) {
      for (int r = 0; r < step; r++) rows[r] = Op::combine(rows[r], rows[r + step]);
    }
    return fresh ? rows[0] : Op::combine(load_at(to + i), rows[0]);
  };
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    store(to + i, folded(i, [](const T* at) DVM_LAMBDA_INLINE { return load<V>(at); }));
  }
  if (i < n) {
    const int64_t rest = n - i;
    store_partial(
        to + i, folded(i, [=](const T* at) DVM_LAMBDA_INLINE { return load_partial<V>(at, rest); }),
        rest);
  }
}

// Wide rows: memory is read from row to row, a few at a time, and the totals stay in a cache.
template <class Op, class T>
void fold_wide_rows(T* to, const T* from, int64_t size, int64_t stride, int64_t n,
                    bool accumulate) {
  constexpr int kRows = 8;
  int64_t s = 0;
  for (; s + kRows <= size; s += kRows) {
    fold_rows<Op, T, kRows>(to, from + s * stride, stride, n, s == 0 && !accumulate);
  }
  for (; s < size; s++) {
    fold_rows<Op, T, 1>(to, from + s * stride, stride, n, s == 0 && !accumulate);
  }
}

template <class Op, class T>
void fold_matrix_columns(T* to, const T* from, int64_t size, int64_t stride, int64_t n,
                         bool accumulate) {
  constexpr int64_t L = kLanes<T>;
  constexpr int kWide = 4;
  if (n >= 4 * kWide * L && size >= kColumnBlock) {
    return fold_wide_rows<Op>(to, from, size, stride, n, accumulate);
  }
  int64_t i = 0;
  for (; i + kWide * L <= n; i += kWide * L) {
    reduce_columns<Op, T, kWide>(to + i, from + i, size, stride, L, accumulate);
  }
  for (; i < n; i += L) {
    reduce_columns<Op, T, 1>(to + i, from + i, size, stride, lesser(n - i, L), accumulate);
  }
}

// Any strides: one element at a time; size > 0.
template <class Op, class T>
T fold_strided(const T* from, int64_t size, int64_t stride) {
  if (size > kColumnBlock) {
    const int64_t top = half_of(size, kColumnBlock);
    const T above = fold_strided<Op>(from, top, stride);
    return combine_one<Op>(above, fold_strided<Op>(from + top * stride, size - top, stride));
  }
  T total = *from;
  for (int64_t s = 1; s < size; s++) total = combine_one<Op>(total, from[s * stride]);
  return total;
}

template <class Op, class T>
void reduce_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const uint8_t flags = flags_of(words);
  const bool accumulate =
      (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
  const Tile<T> out = tile_at<T>(core, operand_words(words, 0));
  const Tile<const T> in = tile_at<const T>(core, operand_words(words, 1));
  if (e.inner > 1 && in.inner == 1 && out.inner == 1) {
    for (int64_t o = 0; o < e.outer; o++) {
      fold_matrix_columns<Op>(out.at + o * out.outer, in.at + o * in.outer, e.middle, in.middle,
                              e.inner, accumulate);
    }
    return;
  }
  if (e.inner == 1 && e.outer > 1 && in.outer == 1 && out.outer == 1 && in.middle != 1) {
    fold_matrix_columns<Op>(out.at, in.at, e.middle, in.middle, e.outer, accumulate);
    return;
  }
  if (in.middle == 1 && e.middle > 0) {
    for (int64_t i = 0; i < e.inner; i++) {
      fold_contiguous_rows<Op>(out.at + i * out.inner, out.outer, in.at + i * in.inner, e.outer,
                               in.outer, e.middle, accumulate);
    }
    return;
  }
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t i = 0; i < e.inner; i++) {
      const T* from = in.at + o * in.outer + i * in.inner;
      T* to = out.at + o * out.outer + i * out.inner;
      const T folded =
          e.middle <= 0 ? Op::template kIdentity<T> : fold_strided<Op>(from, e.middle, in.middle);
      *to = accumulate ? combine_one<Op>(*to, folded) : folded;
    }
  }
}

struct Reduce {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::reduce;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    return &reduce_handler<Fold<F>, ElementType<D>>;
  }
};

}  // namespace

void fill_reduce(Handler* handlers) { fill_handlers<Reduce>(handlers); }

}  // namespace dvm::DVM_LEVEL
