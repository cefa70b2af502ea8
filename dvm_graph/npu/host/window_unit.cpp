// Windows over channels-last images: pooling, depth-wise convolution, and packing of patches (the
// rows of a convolution's operand A). Nothing is padded in memory: taps outside an image are left
// out, or are 0 in a patch. How patches are packed is in patches.h; what reduces windows, in
// channel_windows.h, where channels are by themselves, and group_windows.h. Compiled per level: see
// simd.h.
#include "npu/host/channel_windows.h"
#include "npu/host/group_windows.h"
#include "npu/host/loops.h"
#include "npu/host/patches.h"
#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/units.h"
#include "npu/host/window_loops.h"

namespace dvm::DVM_LEVEL {
namespace {

// ---- patches

template <class Piece, class R, class S>
void pack_patches(const Patches<R, S>& patches, const Window& w, const Tile<R>& to, int64_t count,
                  const Tile<const std::byte>& numbers) {
  Position at(w, first_number(numbers));
  for (int64_t m = 0; m < count; m++) {
    if (m > 0) {
      if (numbers.middle == 1)
        at.advance(w);
      else
        at = Position(w, first_number(numbers) + m * numbers.middle);
    }
    patches.template pack<Piece>(to.at + m * to.middle, at);
  }
}

// Of successive windows, output row by output row.
template <class R, class S>
void pack_transposed(const Patches<R, S>& patches, const Window& w, const Tile<R>& to,
                     int64_t count, int64_t first) {
  for (int64_t m = 0; m < count;) {
    const Position at(w, first + m);
    const int64_t windows = lesser(w.out_width - at.x, count - m);
    patches.pack_transposed(to.at + m * to.middle, to.middle, at, windows);
    m += windows;
  }
}

template <class S, class R>
void pack_patches_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const Tile<R> to = tile_at<R>(core, operand_words(words, 0));
  const Tile<const std::byte> numbers = numbers_at(core, words);
  const Window w = window_at(words, 3);
  const Patches<R, S> patches(tile_at<const S>(core, operand_words(words, 1)).at, w, e.inner);
  const auto pack = [&]<class Piece>(Piece) DVM_LAMBDA_INLINE {
    pack_patches<Piece>(patches, w, to, e.middle, numbers);
  };
  if (numbers.middle == 1 && patches.by_transposes())
    return pack_transposed(patches, w, to, e.middle, first_number(numbers));
  if constexpr (std::is_same_v<R, S>) {
    const int64_t length = patches.piece_length();
    if (length == 1) return pack(FewElements<1>{});
    if (length == 2) return pack(FewElements<2>{});
    if (length <= kLanes<R>) return pack(VectorPiece<0>{});
    if (length <= 2 * kLanes<R>) return pack(VectorPiece<1>{});
  }
  pack(AnyPiece{});
}

// ---- pools, and convolutions of channels by themselves and of groups

// Whether networks have such elements: others have the general code only.
template <class T>
constexpr bool kIsUsual = std::is_same_v<T, float>;

// What a series of windows is reduced by: channels by themselves, or groups as Reads say.
template <class Op, class T>
struct OfChannels {
  DVM_INLINE void operator()(const Window& w, const Operands<T>& x, T* out, int64_t out_step,
                             int64_t count, int64_t results) const {
    reduce_series<Op, T>(w, x.images.at, x.weights.at, out, out_step, first_number(x.numbers),
                         count, results);
  }
};
template <class T, class Reads>
struct OfGroups {
  const Reads& reads;

  DVM_INLINE void operator()(const Window& w, const Operands<T>& x, T* out, int64_t out_step,
                             int64_t count, int64_t results) const {
    reduce_group_series(w, reads, x.images.at, x.weights.at, ToRows<T>{out, out_step},
                        first_number(x.numbers), count, results);
  }
};

// All results of windows, group by group side by side, in pieces of so many that the weights of a
// piece stay in the first-level cache from window to window. Weights that are the same for the
// whole middle loop are brought together first: rows of them may lie far apart.
template <class T, class Reads>
void reduce_pieces(const Core& core, const Window& w, const Reads& reads, const Operands<T>& x,
                   Extents e, int64_t results) {
  const int64_t rows = w.taps() * w.channels, all = e.inner;
  int64_t piece = greater<int64_t>(kGroupWeightBytes / (rows * kVectorBytes), 1) * kLanes<T>;
  if (piece % results != 0) piece *= results;  // it begins with a group
  const bool packs = x.weights.middle == 0 && core.scratch != nullptr &&
                     rows * piece * int64_t{sizeof(T)} <= kScratchBytes;
  Window of_piece = w;
  for (int64_t c = 0; c < all; c += piece) {
    e.inner = lesser(piece, all - c);
    Operands<T> at = x;
    at.to.at += c;
    at.images.at += reads.place(c).first;
    at.weights.at += c;
    if (packs) {
      T* const packed = reinterpret_cast<T*>(core.scratch);
      for (int64_t row = 0; row < rows; row++)
        convert_row(packed + row * e.inner, at.weights.at + row * w.weights, e.inner);
      at.weights.at = packed;
      of_piece.weights = static_cast<int32_t>(e.inner);
    }
    reduce_rows(of_piece, OfGroups<T, Reads>{reads}, at, e);
  }
}

// The inner loop is the results of a group, the middle one windows or groups.
template <class T>
void reduce_groups(const Core& core, const Window& w, const Operands<T>& x, const Extents& e) {
  const int64_t channels = w.channels, results = e.inner, groups = e.middle;
  const Splat<T> by_group{channels, results};
  const OfGroups<T, Splat<T>> series{by_group};
  if (x.numbers.middle != 0) return reduce_rows(w, series, x, e);
  const bool neighbours =
      x.images.middle == channels && x.to.middle == results && x.weights.middle == results;
  const Extents all{1, e.outer, groups * results};
  if constexpr (kIsUsual<T> && kShufflesAtOnce) {
    if (neighbours && fits_shuffles<T>(channels, results)) {
      if (channels == results && begins_groups<T>(results)) {
        const Shuffled<T, true> reads(channels, results);
        return reduce_pieces(core, w, reads, x.turned(), all, results);
      }
      const Shuffled<T, false> reads(channels, results);
      return reduce_pieces(core, w, reads, x.turned(), all, results);
    }
  }
  if (neighbours && results % kLanes<T> == 0)
    return reduce_pieces(core, w, by_group, x.turned(), all, results);
  for (int64_t g = 0; g < groups; g++)
    reduce_rows(w, series, x.at(0, g, 0).turned(), Extents{1, e.outer, results});
}

template <class Op, class T>
void reduce(const Core& core, const Window& w, Operands<T> x, const Extents& e) {
  const bool alone = w.channels == 1;
  if (e.inner == 1) {  // a loop of whatever strides
    x.numbers.inner = 0;
    x.to.inner = 1;
    x.images.inner = alone;
    x.weights.inner = Op::kWeighted;
  }
  constexpr OfChannels<Op, T> kOfChannels;
  if (x.by_results(Op::kWeighted) && alone && x.images.inner == 1)
    return reduce_rows(w, kOfChannels, x, e);
  const bool by_windows = x.numbers.inner == 1 && x.images.inner == 0 && x.weights.inner == 0;
  const bool across = by_windows && x.numbers.middle == 0 && x.weights.middle == Op::kWeighted;
  if (by_windows && alone && (e.middle == 1 || !across)) return reduce_single(w, kOfChannels, x, e);
  if (across && alone && x.images.middle == 1) {
    for (int64_t o = 0; o < e.outer; o++)
      reduce_across(w, kOfChannels, x.at(o, 0, 0), e.middle, e.inner);
    return;
  }
  if constexpr (Op::kWeighted) {
    if (x.by_results(true) && x.images.inner == 0) return reduce_groups(core, w, x, e);
    const Splat<T> by_group{w.channels, e.middle};
    const OfGroups<T, Splat<T>> series{by_group};
    if (across && x.images.middle == 0) {
      for (int64_t o = 0; o < e.outer; o++)
        reduce_across(w, series, x.at(o, 0, 0), e.middle, e.inner);
      return;
    }
    if (!alone) return reduce_scattered(w, series, x, e);
  }
  reduce_scattered(w, kOfChannels, x, e);
}

template <class Op, class T>
void pool_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const Operands<T> x{tile_at<T>(core, operand_words(words, 0)),
                      tile_at<const T>(core, operand_words(words, 1)),
                      {nullptr, 0, 0, 0},
                      numbers_at(core, words)};
  reduce<Op>(core, window_at(words, 3), x, e);
}

// What follows sums that are in memory by now; `row` is added to them.
template <class T>
void finish_sums(const Tile<T>& to, const Extents& e, const T* row, const Ending<T>& ending) {
  using V = Full<T>;
  const int64_t step = to.inner == 1 ? kLanes<T> : 1;
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      T* const at = to.at + o * to.outer + m * to.middle;
      for (int64_t i = 0; i < e.inner; i += step) {
        const int64_t lanes = lesser(step, e.inner - i);
        const V sums = load_partial<V>(at + i * to.inner, lanes);
        const V result = ending.end(sums + load_partial<V>(row + i, lanes));
        store_partial(at + i * to.inner, result, lanes);
      }
    }
  }
}

template <class T>
void depthwise_handler(Core& core, const uint64_t* words) {
  Extents e = extents_of(core, words);
  if (e.empty()) return;
  const Operands<T> x{tile_at<T>(core, operand_words(words, 0)),
                      tile_at<const T>(core, operand_words(words, 1)),
                      tile_at<const T>(core, operand_words(words, 3)), numbers_at(core, words)};
  const auto addend = tile_at<const T>(core, operand_words(words, 4));
  const bool adds = !is_immediate(operand_words(words, 4));
  const Window w = window_at(words, 5);
  Finish<T> finish;
  finish.ending = Ending<T>(ending_words(Form::depthwise, words));
  if constexpr (kIsUsual<T>) {
    if (w.channels == 1 && x.by_results(true) && x.images.inner == 1 && addend.inner == adds &&
        OverlappingSeries<T>::fits(w, e.inner)) {
      if (adds) finish.addend = addend.at;
      finish.stream = streams(words);
      return reduce_rows(w, OverlappingSeries<T>(finish), x, e);
    }
  }
  if (!adds && !finish.ending.any()) return reduce<Weighted>(core, w, x, e);
  // Sums may lie where the addend does, which is copied before.
  constexpr int64_t kPiece = 512;
  T row[kPiece] = {};
  for (int64_t i = 0, all = e.inner; i < all; i += kPiece) {
    e.inner = lesser(kPiece, all - i);
    for (int64_t j = 0; adds && j < e.inner; j++) row[j] = addend.at[(i + j) * addend.inner];
    const Operands<T> piece = x.at(0, 0, i);
    reduce<Weighted>(core, w, piece, e);
    finish_sums(piece.to, e, row, finish.ending);
  }
}

struct Windows {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::window;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    if constexpr (Form_ == Form::pack_patches)
      return &pack_patches_handler<typename Moved<D>::Loaded, typename Moved<D>::Register>;
    else if constexpr (F == Family::d_pool_max)
      return &pool_handler<Max, ElementType<D>>;
    else if constexpr (F == Family::d_pool_sum)
      return &pool_handler<Sum, ElementType<D>>;
    else if constexpr (F == Family::d_depthwise)
      return &depthwise_handler<ElementType<D>>;
    else
      return nullptr;
  }
};

}  // namespace

void fill_window(Handler* handlers) { fill_handlers<Windows>(handlers); }

}  // namespace dvm::DVM_LEVEL
