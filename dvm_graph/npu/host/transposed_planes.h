// Moves whose output rows are columns of the input: transposes of planes, in registers, block by
// block.
//
// A block is as many columns as its vectors have lanes; those of bytes lie side by side in a
// vector. Few columns, or few rows, are taken apart or put together whole instead. Compiled per
// level: see simd.h.
#pragma once

#include "npu/host/loops.h"
#include "npu/host/storage.h"
#include "npu/host/transpose.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class To, class From>
struct Move {
  Extents e;
  Tile<To> to;
  Tile<const From> from;

  DVM_INLINE void swap_inner_with_middle() {
    swap(e.inner, e.middle);
    swap(to.inner, to.middle);
    swap(from.inner, from.middle);
  }
  DVM_INLINE void swap_middle_with_outer() {
    swap(e.middle, e.outer);
    swap(to.middle, to.outer);
    swap(from.middle, from.outer);
  }

 private:
  DVM_INLINE static void swap(int64_t& a, int64_t& b) {
    const int64_t old = a;
    a = b;
    b = old;
  }
};

// The lanes in which a block is transposed: those of the register type, which is never the
// narrower.
template <class To, class From>
using BlockLane = LaneType<std::conditional_t<(sizeof(To) >= sizeof(From)), To, From>>;
template <class B>
constexpr int kBlockLanes = kLanes<B> < 16 ? kLanes<B> : 16;  // no more registers than there are

// Of one side only so few elements that most of a block's lanes would be empty.
constexpr int64_t kNarrow = 4;

// Columns that lie a step apart.
struct Column {
  int64_t stride;

  DVM_INLINE int64_t place(int64_t column) const { return column * stride; }
  DVM_INLINE static int64_t of_block(int64_t lanes) { return lanes; }
};

// Groups of columns that lie a step apart, and groups another. A block has whole groups.
struct ColumnGroups {
  int64_t count, stride, group_stride;

  DVM_INLINE int64_t place(int64_t column) const {
    return column / count * group_stride + column % count * stride;
  }
  DVM_INLINE int64_t of_block(int64_t lanes) const { return lanes - lanes % count; }
};

// Where the columns of a block lie behind its first.
template <int L>
struct ColumnPlaces {
  int64_t places[L];

  DVM_INLINE explicit ColumnPlaces(const ColumnGroups& groups) {
    for (int c = 0; c < L; c++) places[c] = groups.place(c);
  }
  DVM_INLINE int64_t place(int64_t column) const { return places[column]; }
};
template <int L>
DVM_INLINE Column places_of(const Column& column) {
  return column;
}
template <int L>
DVM_INLINE ColumnPlaces<L> places_of(const ColumnGroups& groups) {
  return ColumnPlaces<L>(groups);
}

// to[r * to_stride + c] = from[r + columns.place(c)] for r < high, c < wide, both at most L.
// Lanes of missing columns are zero in what `put` gets.
template <class To, class From, class Columns, class Put>
DVM_INLINE void transpose_tile(const From* from, const Columns& columns, int64_t high, int64_t wide,
                               Put put) {
  using B = BlockLane<To, From>;
  constexpr int L = kBlockLanes<B>;
  using In = Vec<LaneType<From>, L>;
  Vec<B, L> block[L];
  const auto lane = [](In v) {
    if constexpr (std::is_same_v<B, LaneType<From>>)
      return v;
    else
      return convert_lanes<To, From, L>(v);
  };
  const auto* at = reinterpret_cast<const LaneType<From>*>(from);
  if (high == L && wide == L) {
#pragma GCC unroll 64
    for (int c = 0; c < L; c++) block[c] = lane(load<In>(at + columns.place(c)));
  } else {
#pragma GCC unroll 64
    for (int c = 0; c < L; c++) {  // constant subscripts keep the block in registers
      block[c] = c < wide ? lane(load_partial<In>(at + columns.place(c), high)) : Vec<B, L>{};
    }
  }
  transpose_block(block);
  if (high == L) {
#pragma GCC unroll 64
    for (int r = 0; r < L; r++) put(r, block[r]);
  } else {
#pragma GCC unroll 64
    for (int r = 0; r < L; r++)
      if (r < high) put(r, block[r]);
  }
}

// Blocks side by side in a vector, of which one of L columns fills but a part.
template <class T, int L>
struct WideBlocks {
  static constexpr int kBlocks = kLanes<T> / L;
  using Block = Vec<T, L>;
  using Rows = Full<T>[L];

  // Rows [0, kBlocks * L) of L columns.
  DVM_INLINE static void along_rows(T* to, int64_t to_stride, const T* from, int64_t stride) {
    Rows rows;
#pragma GCC unroll 16
    for (int c = 0; c < L; c++) rows[c] = load<Full<T>>(from + c * stride);
    transpose_block(rows);
#pragma GCC unroll 16
    for (int r = 0; r < L; r++) store_each(to + r * to_stride, L * to_stride, rows[r]);
  }
  // The rows of kBlocks * L columns, `high` of them, at most L, as vectors for `put`. `whole`: L
  // elements can be read of each.
  template <class Columns, class Put>
  DVM_INLINE static void along_columns(const T* from, const Columns& columns, int64_t high, Put put,
                                       bool whole = false) {
    Rows rows;
    if (high == L || whole) {
#pragma GCC unroll 16
      for (int c = 0; c < L; c++) rows[c] = load_each<false>(from, columns, c, L);
    } else {
#pragma GCC unroll 16
      for (int c = 0; c < L; c++) rows[c] = load_each<true>(from, columns, c, high);
    }
    transpose_block(rows);
#pragma GCC unroll 16
    for (int r = 0; r < L; r++)
      if (r < high) put(r, rows[r]);
  }

 private:
  template <bool Partial, class V = Full<T>, class Columns>
  DVM_INLINE static V load_each(const T* from, const Columns& columns, int64_t column,
                                int64_t high) {
    if constexpr (kLanesOf<V> == L) {
      if constexpr (Partial) return load_partial<V>(from + columns.place(column), high);
      return load<V>(from + columns.place(column));
    } else {
      using Half = Vec<T, kLanesOf<V> / 2>;
      return join(load_each<Partial, Half>(from, columns, column, high),
                  load_each<Partial, Half>(from, columns, column + kLanesOf<Half>, high));
    }
  }
  template <class V>
  DVM_INLINE static void store_each(T* to, int64_t step, V v) {
    if constexpr (kLanesOf<V> == L) {
      store(to, v);
    } else {
      store_each(to, step, low_half(v));
      store_each(to + kLanesOf<V> / 2 / L * step, step, high_half(v));
    }
  }
};

// The columns of the next block, which lies so far behind the one at `from`: too far apart for the
// memory to guess them. They may lie behind it.
template <class From, class Columns>
DVM_INLINE void fetch_block(const From* from, int64_t next, const Columns& columns, int64_t count) {
  const auto at = reinterpret_cast<uintptr_t>(from);
  for (int64_t c = 0; c < count; c++) {
    const int64_t distance = (next + columns.place(c)) * static_cast<int64_t>(sizeof(From));
    __builtin_prefetch(reinterpret_cast<const void*>(at + static_cast<uintptr_t>(distance)));
  }
}

template <class To, class From, class Columns>
DVM_INLINE void transpose_rows(To* to, int64_t to_stride, const From* from, const Columns& columns,
                               int64_t rows, int64_t count, bool stream) {
  using B = BlockLane<To, From>;
  constexpr int L = kBlockLanes<B>;
  const int64_t of_block = columns.of_block(L);
  const auto places = places_of<L>(columns);
  // Whole vectors go around the caches where every row of a block starts on one.
  stream = stream && kVectorBytes == 64 && to_stride * sizeof(To) % kVectorBytes == 0 &&
           to_alignment(to, 1) == 0;
  int64_t c = 0;
  // Rows that would leave half of the lanes empty.
  constexpr int kHalf = L / 2;
  if constexpr (std::is_same_v<To, From> && kLanes<To> == L && kHalf > kNarrow) {
    for (; rows <= kHalf && of_block == L && c + L <= count; c += L) {
      WideBlocks<To, kHalf>::along_columns(from + columns.place(c), places, rows,
                                           [&](int row, Full<To> v) DVM_LAMBDA_INLINE {
                                             if (stream)
                                               store_stream(to + row * to_stride + c, v);
                                             else
                                               store(to + row * to_stride + c, v);
                                           });
    }
  }
  for (; c < count; c += of_block) {
    const int64_t wide = lesser<int64_t>(count - c, of_block);
    const From* const first = from + columns.place(c);
    for (int64_t r = 0; r < rows; r += L) {
      const int64_t high = lesser<int64_t>(rows - r, L);
      To* corner = to + r * to_stride + c;
      fetch_block(first + r, columns.place(of_block), places, of_block);
      transpose_tile<To, From>(
          first + r, places, high, wide, [&](int row, Vec<B, L> v) DVM_LAMBDA_INLINE {
            auto* target = reinterpret_cast<LaneType<To>*>(corner + row * to_stride);
            const auto converted = [&] {
              if constexpr (std::is_same_v<B, LaneType<To>>)
                return v;
              else
                return convert_lanes<To, From, L>(v);
            }();
            if (wide == L && stream)
              store_stream(target, converted);
            else if (wide == L)
              store(target, converted);
            else
              store_partial(target, converted, wide);
          });
    }
  }
}

// As many columns of bytes as a vector has lanes, and up to so many rows of each, in whole vectors:
// what is read and what is written are long runs, however far apart they lie. In between they are
// put together in a buffer.
constexpr int kRun = 4;
template <class T, class Put>
DVM_INLINE void transpose_runs(const T* from, const Column& columns, int64_t rows, Put put) {
  constexpr int L = kBlockLanes<T>, kSide = kLanes<T>;
  alignas(kVectorBytes) T buffer[kRun * kSide * kSide];
  const int64_t stride = columns.stride;
  for (int c = 0; c < kSide; c += L) {
    for (int64_t r = 0; r < rows; r += kSide) {
      fetch_block(from + r + c * stride, L * stride, columns, L);
      WideBlocks<T, L>::along_rows(buffer + r * kSide + c, kSide, from + r + c * stride, stride);
    }
  }
  for (int64_t r = 0; r < rows; r++) put(r, load<Full<T>>(buffer + r * kSide));
}

// Where the next `step` of them begin: the last ones go over some a second time.
DVM_INLINE int64_t within(int64_t at, int64_t step, int64_t count) {
  return lesser(at, count - step);
}

// transpose_rows, with whole vectors for nearly all of them.
template <class T>
void transpose_wide_rows(T* to, int64_t to_stride, const T* from, const Column& columns,
                         int64_t rows, int64_t count, bool stream) {
  constexpr int64_t L = kBlockLanes<T>, kSide = kLanes<T>;
  using Wide = WideBlocks<T, kBlockLanes<T>>;
  if (count < kSide ? count < L || rows < kSide : rows < 2)
    return transpose_rows(to, to_stride, from, columns, rows, count, stream);
  const int64_t stride = columns.stride;
  const int64_t high = count < kSide ? 0 : rows / kSide * kSide, wide = count / kSide * kSide;
  stream = stream && to_stride % kVectorBytes == 0 && to_alignment(to, 1) == 0;
  for (int64_t r = 0; r < high; r += kRun * kSide) {
    const int64_t run = lesser(high - r, kRun * kSide);
    for (int64_t c = 0; c < wide; c += kSide) {
      T* const corner = to + r * to_stride + c;
      transpose_runs(from + r + c * stride, columns, run,
                     [&](int64_t row, Full<T> v) DVM_LAMBDA_INLINE {
                       if (stream)
                         store_stream(corner + row * to_stride, v);
                       else
                         store(corner + row * to_stride, v);
                     });
    }
  }
  const int64_t long_rows = count < kSide ? rows : high;
  for (int64_t next = wide; next < count && long_rows > 0; next += L) {
    const int64_t c = within(next, L, count);
    for (int64_t first = 0; first < long_rows; first += kSide) {
      const int64_t r = within(first, kSide, long_rows);
      fetch_block(from + r + c * stride, L * stride, columns, L);
      Wide::along_rows(to + r * to_stride + c, to_stride, from + r + c * stride, stride);
    }
  }
  for (int64_t next = long_rows; next < rows; next += L) {
    const int64_t r = rows < L ? next : within(next, L, rows), left = lesser(rows - r, L);
    for (int64_t block = 0; block < count; block += kSide) {
      const int64_t c = within(block, kSide, count);
      T* const corner = to + r * to_stride + c;
      // Behind a column that is short lies the next one.
      const bool is_there = (c + kSide - 1) * stride + r + L <= (count - 1) * stride + rows;
      Wide::along_columns(
          from + r + c * stride, columns, left,
          [&](int row, Full<T> v) DVM_LAMBDA_INLINE { store(corner + row * to_stride, v); },
          is_there);
    }
  }
}

template <class To, class From, int L>
DVM_INLINE Vec<BlockLane<To, From>, L> load_lanes(const From* from) {
  using B = BlockLane<To, From>;
  const auto v = load<Vec<LaneType<From>, L>>(reinterpret_cast<const LaneType<From>*>(from));
  if constexpr (std::is_same_v<B, LaneType<From>>)
    return v;
  else
    return convert_lanes<To, From, L>(v);
}

template <class To, class From, int L>
DVM_INLINE void store_lanes_of(To* to, Vec<BlockLane<To, From>, L> v) {
  using B = BlockLane<To, From>;
  auto* at = reinterpret_cast<LaneType<To>*>(to);
  if constexpr (std::is_same_v<B, LaneType<To>>)
    store(at, v);
  else
    store(at, convert_lanes<To, From, L>(v));
}

// to[i * to_step + j * to_stride] = from[i * from_step + j * from_stride] for i < n, j < Few.
template <int Few, class To, class From>
void transpose_few(To* to, int64_t to_step, int64_t to_stride, const From* from, int64_t from_step,
                   int64_t from_stride, int64_t n) {
  using B = BlockLane<To, From>;
  constexpr int L = kBlockLanes<B>;
  constexpr auto kLane = std::make_integer_sequence<int, L>{};
  int64_t i = 0;
  if constexpr (Few > 1) {
    Vec<B, L> rows[Few];
    if (from_step == Few && from_stride == 1 && to_step == 1) {
      for (; i + L <= n; i += L) {
#pragma GCC unroll 4
        for (int j = 0; j < Few; j++) rows[j] = load_lanes<To, From, L>(from + i * Few + j * L);
        take_apart(rows, kLane);
#pragma GCC unroll 4
        for (int j = 0; j < Few; j++) store_lanes_of<To, From, L>(to + i + j * to_stride, rows[j]);
      }
    } else if (to_step == Few && to_stride == 1 && from_step == 1) {
      for (; i + L <= n; i += L) {
#pragma GCC unroll 4
        for (int j = 0; j < Few; j++) rows[j] = load_lanes<To, From, L>(from + i + j * from_stride);
        put_together(rows, kLane);
#pragma GCC unroll 4
        for (int j = 0; j < Few; j++) store_lanes_of<To, From, L>(to + i * Few + j * L, rows[j]);
      }
    }
  }
  DVM_INDEPENDENT_ITERATIONS
  for (; i < n; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < Few; j++)
      to[i * to_step + j * to_stride] = convert_one<To>(from[i * from_step + j * from_stride]);
  }
}

template <class To, class From>
void transpose_narrow(To* to, int64_t to_step, int64_t to_stride, const From* from,
                      int64_t from_step, int64_t from_stride, int64_t n, int64_t few) {
  switch (few) {
    case 1: return transpose_few<1>(to, to_step, to_stride, from, from_step, from_stride, n);
    case 2: return transpose_few<2>(to, to_step, to_stride, from, from_step, from_stride, n);
    case 3: return transpose_few<3>(to, to_step, to_stride, from, from_step, from_stride, n);
    default: return transpose_few<4>(to, to_step, to_stride, from, from_step, from_stride, n);
  }
}

template <class To, class From>
DVM_INLINE void transpose_some(To* to, int64_t to_stride, const From* from, const Column& columns,
                               int64_t rows, int64_t count, bool stream) {
  if constexpr (std::is_same_v<To, From> && sizeof(To) == 1) {
    if constexpr (kLanes<To> > kBlockLanes<To>)
      return transpose_wide_rows(to, to_stride, from, columns, rows, count, stream);
  }
  transpose_rows(to, to_stride, from, columns, rows, count, stream);
}

// The middle loop goes along the input's rows, the inner one along the output's.
template <class To, class From>
void transpose_planes(const Move<To, From>& x, bool stream) {
  // Too few columns to fill a block, which go on from plane to plane.
  constexpr int kLanesOfBlock = kBlockLanes<BlockLane<To, From>>;
  const bool few =
      x.e.inner > 1 && x.e.inner <= kNarrow && x.e.inner <= kLanesOfBlock && x.e.middle > kNarrow;
  if (few && x.to.outer == x.e.inner && x.to.middle != x.e.inner && x.e.outer > 1) {
    const ColumnGroups columns{x.e.inner, x.from.inner, x.from.outer};
    return transpose_rows(x.to.at, x.to.middle, x.from.at, columns, x.e.middle,
                          x.e.outer * x.e.inner, stream);
  }
  // Where rows go on from plane to plane, a few of them at a time, while their lines are near.
  const bool goes_on = x.from.outer == x.e.middle;
  const int64_t most = goes_on ? kBlockLanes<BlockLane<To, From>> : x.e.inner;
  for (int64_t n = 0; n < x.e.inner; n += most) {
    const int64_t columns = lesser(x.e.inner - n, most);
    for (int64_t o = 0; o < x.e.outer; o++) {
      To* const to = x.to.at + o * x.to.outer + n;
      const From* const from = x.from.at + o * x.from.outer + n * x.from.inner;
      if (columns <= kNarrow)
        transpose_narrow(to, x.to.middle, 1, from, 1, x.from.inner, x.e.middle, columns);
      else if (x.e.middle <= kNarrow)
        transpose_narrow(to, 1, x.to.middle, from, x.from.inner, 1, columns, x.e.middle);
      else
        transpose_some(to, x.to.middle, from, Column{x.from.inner}, x.e.middle, columns, stream);
    }
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
