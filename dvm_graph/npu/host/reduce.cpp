// Reductions: xn[M, size, N] to xd[M, 1, N].
//
// Rows (N = 1, contiguous along size) use four vector accumulators; columns (contiguous along N)
// accumulate whole vectors. Long folds are split pairwise, but for columns of wide rows, which add
// up eight rows at a time. The order depends on the extents and strides only: the same input gives
// the same bits. Two reductions of the same rows that are joined read each vector once.
#include <utility>

#include "npu/host/first_lanes.h"
#include "npu/host/folds.h"
#include "npu/host/lanes.h"
#include "npu/host/loops.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class Op, class T>
DVM_INLINE Full<T> load_or_identity(const T* from, int64_t count) {
  using V = Full<T>;
  constexpr T kIdentity = Op::template kIdentity<T>;
  const V v = load_partial<V>(from, count);
  if constexpr (kIdentity == 0 && !std::is_same_v<T, uint8_t>) {
    return v;
  } else {
    return first_lanes(v, count, splat<V>(kIdentity));
  }
}

// Longer folds are split in halves, so that the error of a sum grows with the logarithm.
constexpr int64_t kRowBlock = 64, kColumnBlock = 32;  // vectors

// A number of elements to the left of the split that is a multiple of `unit` and about half of n.
DVM_INLINE int64_t half_of(int64_t n, int64_t unit) { return (n / 2 + unit - 1) / unit * unit; }

// What vectors are folded to by each of several operations.
template <class V, class... Ops>
struct Folded {
  V by[sizeof...(Ops)];

  DVM_INLINE static Folded of(V v) {
    Folded all;
    for (V& folded : all.by) folded = v;
    return all;
  }
  DVM_INLINE void add(V v) { add(of(v)); }
  DVM_INLINE void add(const Folded& other) {
    int i = 0;
    ((by[i] = Ops::combine(by[i], other.by[i]), i++), ...);
  }
};

// Four vectors at a time.
template <class V, class Op>
class Fours {
 public:
  DVM_INLINE explicit Fours(const V (&v)[4]) {
    each<4>([&](auto index) DVM_LAMBDA_INLINE { at_[index.k] = v[index.k]; });
    see(v);
  }
  DVM_INLINE void add(const V (&v)[4]) {
    each<4>([&](auto index) DVM_LAMBDA_INLINE {
      at_[index.k] = Op::combine_numbers(at_[index.k], v[index.k]);
    });
    see(v);
  }
  DVM_INLINE V total() const {
    return nans_.put_into(Op::combine_numbers(Op::combine_numbers(at_[0], at_[1]),
                                              Op::combine_numbers(at_[2], at_[3])));
  }

 private:
  DVM_INLINE void see(const V (&v)[4]) {
    nans_.see(v[0], v[1]);
    nans_.see(v[2], v[3]);
  }

  V at_[4];
  NaNsOf<Op, V> nans_;
};
template <class V, class... Ops>
struct FoursOfEach : Fours<V, Ops>... {
  DVM_INLINE explicit FoursOfEach(const V (&v)[4]) : Fours<V, Ops>(v)... {}
  DVM_INLINE void add(const V (&v)[4]) { (Fours<V, Ops>::add(v), ...); }
  DVM_INLINE Folded<V, Ops...> total() const { return {{Fours<V, Ops>::total()...}}; }
};

// Folds `n` contiguous whole vectors, 0 < n <= kRowBlock.
template <class... Ops, class T>
DVM_INLINE Folded<Full<T>, Ops...> fold_row_block(const T* from, int64_t n) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  const auto four_at = [from](int64_t i, V(&v)[4]) DVM_LAMBDA_INLINE {
    each<4>([&](auto index) DVM_LAMBDA_INLINE {
      v[index.k] = load<V>(from + (i + index.k) * L);
#if defined(DVM_X86)
      asm("" : "+v"(v[index.k]));  // or each that reads it would load it, too
#endif
    });
  };
  auto total = Folded<V, Ops...>::of(load<V>(from));
  int64_t i = 1;
  if (n >= 4) {
    V v[4];
    four_at(0, v);
    FoursOfEach<V, Ops...> fours(v);
    for (i = 4; i + 4 <= n; i += 4) {
      four_at(i, v);
      fours.add(v);
    }
    total = fours.total();
  }
  for (; i < n; i++) total.add(load<V>(from + i * L));
  return total;
}

template <class... Ops, class T>
Folded<Full<T>, Ops...> fold_vectors(const T* from, int64_t n) {
  if (n <= kRowBlock) return fold_row_block<Ops...>(from, n);
  const int64_t half = half_of(n, 4);
  auto total = fold_vectors<Ops...>(from, half);  // first: memory is fetched ahead upwards
  total.add(fold_vectors<Ops...>(from + half * kLanes<T>, n - half));
  return total;
}

// Folds n contiguous elements, n > 0, to vectors whose lanes are left to fold.
template <class... Ops, class T>
DVM_INLINE Folded<Full<T>, Ops...> fold_row(const T* from, int64_t n) {
  constexpr int64_t L = kLanes<T>;
  const int64_t whole = n / L, tail = n % L;
  if (whole == 0) return {{load_or_identity<Ops>(from, n)...}};
  auto total =
      whole <= kRowBlock ? fold_row_block<Ops...>(from, whole) : fold_vectors<Ops...>(from, whole);
  if (tail > 0)
    total.add(Folded<Full<T>, Ops...>{{load_or_identity<Ops>(from + whole * L, tail)...}});
  return total;
}

// Folds rows of n contiguous elements each, n > 0.
template <class Op, class T>
void fold_contiguous_rows(T* to, int64_t to_stride, const T* from, int64_t rows, int64_t stride,
                          int64_t n, bool accumulate) {
  Totals<Op, T> totals(to, to_stride, accumulate);
  for (int64_t row = 0; row < rows; row++) totals.add(fold_row<Op>(from + row * stride, n).by[0]);
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

DVM_INLINE bool accumulates(const Core& core, const uint64_t* words) {
  const uint8_t flags = flags_of(words);
  return (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
}

template <class Op, class T>
void reduce_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const bool accumulate = accumulates(core, words);
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

// Two reductions of the same rows of f32, which are read once.
template <class One, class Other>
void fold_together(Core& core, const uint64_t* one, const uint64_t* other) {
  const Extents e = extents_of(core, one);
  const Tile<float> out = tile_at<float>(core, operand_words(one, 0)),
                    more = tile_at<float>(core, operand_words(other, 0));
  const Tile<const float> in = tile_at<const float>(core, operand_words(one, 1));
  Totals<One, float> totals(out.at, out.outer, accumulates(core, one));
  Totals<Other, float> others(more.at, more.outer, accumulates(core, other));
  for (int64_t row = 0; row < e.outer; row++) {
    const auto folded = fold_row<One, Other>(in.at + row * in.outer, e.middle);
    totals.add(folded.by[0]);
    others.add(folded.by[1]);
  }
  totals.write();
  others.write();
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

const uint64_t* run_folds(Core& core, const uint64_t* words) {
  using Sum = Fold<Family::v_reduce_sum>;
  using Max = Fold<Family::v_reduce_max>;
  using Min = Fold<Family::v_reduce_min>;
  const auto family = [](const uint64_t* at) { return family_of(head_of(at)); };
  const auto behind = [](const uint64_t* at) { return at + head_of(at).words; };
  const uint64_t* one = words;
  const uint64_t* other = behind(words);
  const uint64_t* const end = behind(other);
  static_assert(Family::v_reduce_sum < Family::v_reduce_max &&
                Family::v_reduce_max < Family::v_reduce_min);
  if (family(one) > family(other)) std::swap(one, other);
  if (family(one) == Family::v_reduce_max)
    fold_together<Max, Min>(core, one, other);
  else if (family(other) == Family::v_reduce_max)
    fold_together<Sum, Max>(core, one, other);
  else
    fold_together<Sum, Min>(core, one, other);
  return end;
}

void fill_reduce(Handler* handlers) { fill_handlers<Reduce>(handlers); }

}  // namespace dvm::DVM_LEVEL
