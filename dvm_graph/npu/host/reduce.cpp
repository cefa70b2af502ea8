// Reductions: xn[M, size, N] to xd[M, 1, N].
//
// Rows (N = 1, contiguous along size) use four vector accumulators; columns (contiguous along N)
// accumulate whole vectors. Sums run in blocks whose partial results are added up afterwards, so
// that the error grows with the block length and the number of blocks, not with their product. The
// order depends on the extents only: the same input gives the same bits.
#include "npu/host/loops.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

template <Family F>
struct Fold;
template <class T>
constexpr T kLowest = std::is_same_v<T, float>     ? static_cast<T>(-__builtin_inff())
                      : std::is_same_v<T, double>  ? static_cast<T>(-__builtin_inf())
                      : std::is_same_v<T, int32_t> ? static_cast<T>(INT32_MIN)
                      : std::is_same_v<T, int64_t> ? static_cast<T>(INT64_MIN)
                                                   : static_cast<T>(0);
template <class T>
constexpr T kHighest = std::is_same_v<T, float>     ? static_cast<T>(__builtin_inff())
                       : std::is_same_v<T, double>  ? static_cast<T>(__builtin_inf())
                       : std::is_same_v<T, int32_t> ? static_cast<T>(INT32_MAX)
                       : std::is_same_v<T, int64_t> ? static_cast<T>(INT64_MAX)
                                                    : static_cast<T>(UINT8_MAX);

// Unsigned lanes for integers, whose sums and products wrap.
template <class V>
DVM_INLINE auto wrapping(V v) {
  if constexpr (std::is_floating_point_v<Element<V>>) return v;
  else return bits_as<Vec<std::make_unsigned_t<Element<V>>, kLanesOf<V>>>(v);
}

template <>
struct Fold<Family::v_reduce_sum> {
  template <class T>
  static constexpr T kIdentity = 0;
  template <class V>
  DVM_INLINE static V combine(V a, V b) { return bits_as<V>(wrapping(a) + wrapping(b)); }
};
template <>
struct Fold<Family::v_reduce_prod> {
  template <class T>
  static constexpr T kIdentity = 1;
  template <class V>
  DVM_INLINE static V combine(V a, V b) { return bits_as<V>(wrapping(a) * wrapping(b)); }
};
// a is the accumulator: its NaN is kept by the second select, a NaN in b by the comparison.
template <>
struct Fold<Family::v_reduce_max> {
  template <class T>
  static constexpr T kIdentity = kLowest<T>;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    const V chosen = a > b ? a : b;
    if constexpr (std::is_floating_point_v<Element<V>>) return a != a ? a : chosen;
    else return chosen;
  }
};
template <>
struct Fold<Family::v_reduce_min> {
  template <class T>
  static constexpr T kIdentity = kHighest<T>;
  template <class V>
  DVM_INLINE static V combine(V a, V b) {
    const V chosen = a < b ? a : b;
    if constexpr (std::is_floating_point_v<Element<V>>) return a != a ? a : chosen;
    else return chosen;
  }
};

template <class Op, class T>
DVM_INLINE T combine_one(T a, T b) {
  using V = Vec<T, 16 / sizeof(T)>;
  return Op::combine(splat<V>(a), splat<V>(b))[0];
}

template <class Op, class V>
DVM_INLINE Element<V> fold_lanes(V v) {
  if constexpr (sizeof(V) > 16) {
    return fold_lanes<Op>(Op::combine(low_half(v), high_half(v)));
  } else {
    Element<V> result = v[0];
    if constexpr (kLanesOf<V> == 2) return combine_one<Op>(result, Element<V>(v[1]));
    else if constexpr (kLanesOf<V> == 4)
      return combine_one<Op>(combine_one<Op>(result, Element<V>(v[2])),
                             combine_one<Op>(Element<V>(v[1]), Element<V>(v[3])));
    for (int i = 1; i < kLanesOf<V>; i++) result = combine_one<Op>(result, Element<V>(v[i]));
    return result;
  }
}

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

constexpr int64_t kBlockVectors = 128;   // vectors folded before a partial result is put away

// Folds n contiguous elements.
template <class Op, class T>
DVM_INLINE T fold_row(const T* from, int64_t n) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  const V identity = splat<V>(Op::template kIdentity<T>);
  if (n < L) return fold_lanes<Op>(load_or_identity<Op>(from, n));
  V total = identity;
  int64_t i = 0;
  while (n - i >= 4 * L) {
    const int64_t end = i + lesser((n - i) / (4 * L), kBlockVectors / 4) * 4 * L;
    V a = load<V>(from + i), b = load<V>(from + i + L);
    V c = load<V>(from + i + 2 * L), d = load<V>(from + i + 3 * L);
    for (i += 4 * L; i < end; i += 4 * L) {
      a = Op::combine(a, load<V>(from + i));
      b = Op::combine(b, load<V>(from + i + L));
      c = Op::combine(c, load<V>(from + i + 2 * L));
      d = Op::combine(d, load<V>(from + i + 3 * L));
    }
    total = Op::combine(total, Op::combine(Op::combine(a, b), Op::combine(c, d)));
  }
  for (; i + L <= n; i += L) total = Op::combine(total, load<V>(from + i));
  if (i < n) total = Op::combine(total, load_or_identity<Op>(from + i, n - i));
  return fold_lanes<Op>(total);
}

// Folds `size` rows, `stride` apart, of up to Columns vectors; the last has `tail` elements.
template <class Op, class T, int Columns>
DVM_INLINE void fold_columns(T* to, const T* from, int64_t size, int64_t stride, int64_t tail,
                             bool accumulate) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  const auto load_column = [&](const T* row, int c) {
    return c + 1 == Columns && tail < L ? load_partial<V>(row + c * L, tail) : load<V>(row + c * L);
  };
  V total[Columns];
  for (int c = 0; c < Columns; c++) {
    total[c] = accumulate ? load_column(to, c) : splat<V>(Op::template kIdentity<T>);
  }
  for (int64_t begin = 0; begin < size; begin += kBlockVectors) {
    const int64_t end = lesser(begin + kBlockVectors, size);
    V block[Columns];
    for (int c = 0; c < Columns; c++) block[c] = load_column(from + begin * stride, c);
    for (int64_t s = begin + 1; s < end; s++) {
      for (int c = 0; c < Columns; c++) {
        block[c] = Op::combine(block[c], load_column(from + s * stride, c));
      }
    }
    for (int c = 0; c < Columns; c++) total[c] = Op::combine(total[c], block[c]);
  }
  for (int c = 0; c < Columns; c++) {
    if (c + 1 == Columns && tail < L) store_partial(to + c * L, total[c], tail);
    else store(to + c * L, total[c]);
  }
}

template <class Op, class T>
void fold_matrix_columns(T* to, const T* from, int64_t size, int64_t stride, int64_t n,
                         bool accumulate) {
  constexpr int64_t L = kLanes<T>;
  constexpr int kWide = 4;
  int64_t i = 0;
  for (; i + kWide * L <= n; i += kWide * L) {
    fold_columns<Op, T, kWide>(to + i, from + i, size, stride, L, accumulate);
  }
  for (; i < n; i += L) {
    fold_columns<Op, T, 1>(to + i, from + i, size, stride, lesser(n - i, L), accumulate);
  }
}

// Any strides: one element at a time.
template <class Op, class T>
DVM_INLINE T fold_strided(const T* from, int64_t size, int64_t stride) {
  T total = Op::template kIdentity<T>;
  for (int64_t begin = 0; begin < size; begin += kBlockVectors) {
    const int64_t end = lesser(begin + kBlockVectors, size);
    T block = from[begin * stride];
    for (int64_t s = begin + 1; s < end; s++) block = combine_one<Op>(block, from[s * stride]);
    total = combine_one<Op>(total, block);
  }
  return total;
}

template <class Op, class T>
void reduce_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const uint8_t flags = flags_of(words);
  const bool accumulate =
      (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
  const Tile<T> out = tile_at<T>(core, words + 1);
  const Tile<const T> in = tile_at<const T>(core, words + 3);
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
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t i = 0; i < e.inner; i++) {
      const T* from = in.at + o * in.outer + i * in.inner;
      T* to = out.at + o * out.outer + i * out.inner;
      const T folded = e.middle <= 0    ? Op::template kIdentity<T>
                       : in.middle == 1 ? fold_row<Op>(from, e.middle)
                                        : fold_strided<Op>(from, e.middle, in.middle);
      *to = accumulate ? combine_one<Op>(*to, folded) : folded;
    }
  }
}

struct Reduce {
  static constexpr bool accepts(Family family, Form form) {
    return part_of(family, form) == Part::reduce;
  }
  template <Family F, Form Form_, DType D>
  static constexpr Handler handler() {
    return &reduce_handler<Fold<F>, ElementType<D>>;
  }
};

}  // namespace

void fill_reduce(Handler* handlers) { fill_handlers<Reduce>(handlers); }

}  // namespace dvm::DVM_LEVEL
