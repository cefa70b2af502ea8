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
#include "npu/host/transposed_planes.h"
#include "npu/host/units.h"

namespace dvm::DVM_LEVEL {
namespace {

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

constexpr int64_t kFew = 4;  // columns that transpose_narrow knows

// Each element of rows becomes a few neighbours, as those of an image that grows.
template <class To, class From>
bool repeats_few(const Move<To, From>& x) {
  return x.to.inner == 1 && x.e.inner <= kFew && x.to.middle == x.e.inner && x.from.middle == 1;
}
template <class To, class From>
void repeat_few(const Move<To, From>& x) {
  for (int64_t o = 0; o < x.e.outer; o++) {
    transpose_narrow(x.to.at + o * x.to.outer, x.e.inner, 1, x.from.at + o * x.from.outer, 1, 0,
                     x.e.middle, x.e.inner);
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
      for_streamed_rows(
          x.e, stream,
          [n = x.e.inner](To* to, bool streams, const From* from) {
            convert_row(to, from, n, streams);
          },
          x.to, x.from);
      return;
    }
    if (x.from.inner == 0) {
      if (repeats_few(x)) return repeat_few(x);
      for_rows(
          x.e,
          [n = x.e.inner, stream](To* to, const From* from) {
            const To value = convert_one<To>(*from);
            auto* row = reinterpret_cast<LaneType<To>*>(to);
            fill_row(row, n, bits_as<LaneType<To>>(value), stream);
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
                            static_cast<int64_t>(extra[1]),
                            streams(words)};
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
    else if constexpr (Form_ == Form::load_stored)
      return &load_handler<ElementType<D>, ElementType<D>>;
    else if constexpr (Form_ == Form::store_stored)
      return &store_handler<ElementType<D>, ElementType<D>>;
    else if constexpr (Form_ == Form::gather_stored)
      return &gather_handler<ElementType<D>, ElementType<D>>;
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
