// The DMA unit: loads, stores, gathers and packing. Every instruction moves elements between two
// strided tiles and converts between storage and register dtype on the way.
//
// The loops of a move are independent, so they are reordered: the output's unit stride goes
// innermost. If the input is contiguous there too, rows are copied; if it is contiguous along
// another loop, the two loops are a transpose, done in registers block by block; otherwise elements
// move one at a time.
#include "npu/host/gathers.h"
#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/transformed_weights.h"
#include "npu/host/transpose.h"
#include "npu/host/units.h"

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
constexpr int kBlockLanes = sizeof(B) == 1 ? 16 : kLanes<B>;  // bytes: bounds the registers

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
  for (int64_t c = 0; c < count; c += of_block) {
    const int64_t wide = lesser<int64_t>(count - c, of_block);
    const From* const first = from + columns.place(c);
    for (int64_t r = 0; r < rows; r += L) {
      const int64_t high = lesser<int64_t>(rows - r, L);
      To* corner = to + r * to_stride + c;
      // The next blocks' rows lie too far apart for the memory to guess them.
      const auto ahead = reinterpret_cast<uintptr_t>(first + r);  // it may leave it
      const int64_t next = columns.place(of_block);
      for (int k = 0; k < of_block; k++) {
        const int64_t distance = (next + places.place(k)) * static_cast<int64_t>(sizeof(From));
        __builtin_prefetch(reinterpret_cast<const void*>(ahead + static_cast<uintptr_t>(distance)));
      }
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

// Of one side only so few elements that most of a block's lanes would be empty.
constexpr int64_t kNarrow = 4;

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
        transpose_rows(to, x.to.middle, from, Column{x.from.inner}, x.e.middle, columns, stream);
    }
  }
}

// Rows of few elements that become neighbours: whole vectors of `Bytes`, of which the next rows
// overwrite what is too much. Returns how many rows were moved so: the last ones of what is read
// and written have no room for a vector.
template <int Bytes, class T>
DVM_INLINE int64_t copy_short_rows(T* to, const T* from, int64_t stride, int64_t rows, int64_t n) {
  constexpr int64_t L = Bytes / static_cast<int64_t>(sizeof(T));
  const int64_t done = lesser((rows * n - L) / n, ((rows - 1) * stride + n - L) / stride);
  for (int64_t row = 0; row < done; row++) {
    store(reinterpret_cast<LaneType<T>*>(to + row * n),
          load<Vec<LaneType<T>, L>>(reinterpret_cast<const LaneType<T>*>(from + row * stride)));
  }
  return greater<int64_t>(done, 0);
}

constexpr int64_t kLeastShortRows = 16;  // of which all but the last few are vectors

template <class T>
bool are_short_rows(const Move<T, T>& x) {
  const int64_t n = x.e.inner, bytes = n * static_cast<int64_t>(sizeof(T));
  return n > 1 && bytes <= 32 && x.e.middle >= kLeastShortRows && x.to.middle == n &&
         x.from.middle > 0;
}
// Around no caches: a vector is overwritten while it is there.
template <class T>
void move_short_rows(const Move<T, T>& x) {
  const int64_t n = x.e.inner;
  for (int64_t o = 0; o < x.e.outer; o++) {
    T* const to = x.to.at + o * x.to.outer;
    const T* const from = x.from.at + o * x.from.outer;
    const bool half = n * static_cast<int64_t>(sizeof(T)) <= 16;
    int64_t row = half ? copy_short_rows<16>(to, from, x.from.middle, x.e.middle, n)
                       : copy_short_rows<32>(to, from, x.from.middle, x.e.middle, n);
    for (; row < x.e.middle; row++) {
      __builtin_memcpy(to + row * n, from + row * x.from.middle,
                       static_cast<size_t>(n) * sizeof(T));
    }
  }
}

template <class To, class From>
void move(Move<To, From> x, bool stream) {
  if (x.to.inner != 1 || (x.e.inner == 1 && x.e.middle > 1)) {
    if (x.to.middle == 1 && x.e.middle > 1) {
      x.swap_inner_with_middle();
    } else if (x.to.outer == 1 && x.e.outer > 1) {
      x.swap_middle_with_outer();
      x.swap_inner_with_middle();
    }
  }
  merge_loops(x.e, x.to, x.from);
  if (x.to.inner == 1 || x.e.inner == 1) {
    if (x.from.inner == 1 || x.e.inner == 1) {
      if constexpr (std::is_same_v<To, From>) {
        if (are_short_rows(x)) return move_short_rows(x);
      }
      for_rows(
          x.e, [=, n = x.e.inner](To* to, const From* from) { convert_row(to, from, n, stream); },
          x.to, x.from);
      return;
    }
    if (x.from.inner == 0) {
      for_rows(
          x.e,
          [n = x.e.inner](To* to, const From* from) {
            const To value = convert_one<To>(*from);
            auto* row = reinterpret_cast<LaneType<To>*>(to);
            fill_row(row, n, bits_as<LaneType<To>>(value));
          },
          x.to, x.from);
      return;
    }
    if (x.from.outer == 1 && x.e.outer > 1 && x.from.middle != 1) x.swap_middle_with_outer();
    if (x.from.middle == 1 && x.e.middle > 1) {
      transpose_planes(x, stream);
      return;
    }
  }
  for_rows(
      x.e,
      [&](To* to, const From* from) {
        for (int64_t i = 0; i < x.e.inner; i++) {
          to[i * x.to.inner] = convert_one<To>(from[i * x.from.inner]);
        }
      },
      x.to, x.from);
}

template <class S, class R>
void load_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  move(Move<R, S>{e, tile_at<R>(core, operand_words(words, 0)),
                  tile_at<const S>(core, operand_words(words, 1))},
       streams(words));
}

template <class S, class R>
void store_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  move(Move<S, R>{e, tile_at<S>(core, operand_words(words, 0)),
                  tile_at<const R>(core, operand_words(words, 1))},
       streams(words));
}

template <class S, class R>
void gather_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const uint64_t* const extra = extra_words(Form::gather, words);
  const Gather<R, S> gather{e,
                            tile_at<R>(core, operand_words(words, 0)),
                            tile_at<const S>(core, operand_words(words, 1)),
                            tile_at<const int64_t>(core, operand_words(words, 2)),
                            static_cast<int64_t>(extra[0]),
                            static_cast<int64_t>(extra[1])};
  if (gather.index.inner == 0 || e.inner == 1)
    gather.rows(core);
  else
    gather.elements(core);
}

// One panel: to[k][NR] = from[k * k_stride + n * n_stride], columns from `columns` on zero.
template <class S, class R>
DVM_INLINE void pack_panel(R* to, const S* from, int64_t k_extent, int64_t columns,
                           int64_t k_stride, int64_t n_stride) {
  constexpr int64_t kNR = 2 * kLanes<R>;
  if (n_stride == 1) {
    for (int64_t k = 0; k < k_extent; k++) {
      if (columns < kNR) fill_row(to + k * kNR + columns, kNR - columns, R{});
      convert_row(to + k * kNR, from + k * k_stride, columns);
    }
    return;
  }
  if (k_stride == 1) {
    constexpr int L = kBlockLanes<R>;
    for (int64_t k = 0; k < k_extent; k += L) {
      const int64_t rows = lesser<int64_t>(k_extent - k, L);
      for (int64_t n = 0; n < kNR; n += L) {
        const int64_t wide = columns - n;
        const int64_t valid = wide <= 0 ? 0 : lesser<int64_t>(wide, L);
        R* corner = to + k * kNR + n;
        transpose_tile<R, S>(from + k + n * n_stride, Column{n_stride}, rows, valid,
                             [&](int row, Vec<R, L> v)
                                 DVM_LAMBDA_INLINE { store(corner + row * kNR, v); });
      }
    }
    return;
  }
  for (int64_t k = 0; k < k_extent; k++) {
    for (int64_t n = 0; n < kNR; n++) {
      to[k * kNR + n] = n < columns ? convert_one<R>(from[k * k_stride + n * n_stride]) : R{};
    }
  }
}

// Whole panels of a matrix whose rows are contiguous: some of its rows at a time, so that both
// sides see runs of several cache lines.
template <class T>
DVM_INLINE void pack_row_panels(const Tile<T>& to, const Tile<const T>& from, int64_t k_extent,
                                int64_t panels) {
  constexpr int64_t kNR = 2 * kLanes<T>, kRows = 8;
  for (int64_t k = 0; k < k_extent; k += kRows) {
    const int64_t rows = lesser(k_extent - k, kRows);
    for (int64_t panel = 0; panel < panels; panel++) {
      T* out = to.at + panel * to.outer + k * kNR;
      const T* in = from.at + panel * kNR + k * from.middle;
      for (int64_t row = 0; row < rows; row++, out += kNR, in += from.middle) {
        store(out, load<Full<T>>(in));
        store(out + kLanes<T>, load<Full<T>>(in + kLanes<T>));
      }
    }
  }
}

template <class S, class R>
DVM_INLINE void pack_panels(const Tile<R>& to, const Tile<const S>& from, const Extents& e) {
  constexpr int64_t kNR = 2 * kLanes<R>;
  int64_t n = 0, panel = 0;
  if constexpr (std::is_same_v<S, R> && std::is_floating_point_v<R>) {
    if (from.inner == 1) {
      panel = e.inner / kNR;
      n = panel * kNR;
      pack_row_panels<R>(to, from, e.middle, panel);
    }
  }
  for (; n < e.inner; n += kNR, panel++) {
    pack_panel(to.at + panel * to.outer, from.at + n * from.inner, e.middle,
               lesser(e.inner - n, kNR), from.middle, from.inner);
  }
}

template <class S, class R>
void pack_b_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  pack_panels<S, R>(tile_at<R>(core, operand_words(words, 0)),
                    tile_at<const S>(core, operand_words(words, 1)), e);
}

void pack_b_transformed_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const Tile<float> to = tile_at<float>(core, operand_words(words, 0));
  pack_panels<float, float>(to, tile_at<const float>(core, operand_words(words, 1)), e);
  const int64_t channels = e.middle / TransformedPanel::kTaps / e.outer;
  const int64_t panels = ceil_div(e.inner, TransformedPanel::NR);
  for (int64_t i = 0; i < panels; i++)
    TransformedPanel(to.at + i * to.outer, e.outer, channels).transform();
}

// The next product knows when to fetch it.
template <class S, bool Next>
void prefetch_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty() || core.laters == kMostLater) return;
  const Tile<const S> from = tile_at<const S>(core, operand_words(words, 0));
  constexpr auto kElement = static_cast<int64_t>(sizeof(S));
  auto at = reinterpret_cast<uintptr_t>(from.at);  // a number: it may leave the memory
  if constexpr (Next) {
    const Ahead::Stream& stream = core.ahead.streams[0];
    at += reinterpret_cast<uintptr_t>(stream.next) - reinterpret_cast<uintptr_t>(stream.tile);
  }
  core.later[core.laters++] = {reinterpret_cast<const std::byte*>(at), from.middle * kElement,
                               e.inner * kElement, e.middle};
}

struct Dma {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::dma;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    using S = typename Moved<D>::Loaded;
    using R = typename Moved<D>::Register;
    if constexpr (Form_ == Form::load)
      return &load_handler<S, R>;
    else if constexpr (Form_ == Form::store)
      return &store_handler<typename Moved<D>::Stored, R>;
    else if constexpr (Form_ == Form::gather)
      return &gather_handler<S, R>;
    else if constexpr (Form_ == Form::pack_b)
      return &pack_b_handler<S, R>;
    else if constexpr (Form_ == Form::pack_b_transformed)
      return &pack_b_transformed_handler;
    else if constexpr (Form_ == Form::prefetch)
      return &prefetch_handler<S, F == Family::d_prefetch_next>;
    else
      return nullptr;
  }
};

}  // namespace

void fill_dma(Handler* handlers) { fill_handlers<Dma>(handlers); }

}  // namespace dvm::DVM_LEVEL
