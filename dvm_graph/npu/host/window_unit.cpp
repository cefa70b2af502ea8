// Windows over channels-last images: pooling, depth-wise convolution, and packing of patches (the
// rows of a convolution's operand A). Nothing is padded in memory: taps outside an image are left
// out, or are 0 in a patch. Patches are packed here; what reduces windows is in channel_windows.h,
// where channels are by themselves, and group_windows.h. Compiled per level: see simd.h.
#include "npu/host/channel_windows.h"
#include "npu/host/group_windows.h"
#include "npu/host/loops.h"
#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/units.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

// ---- patches

// A piece of a patch, whose elements are neighbours in memory: so many whole vectors and what is
// left, or any number (kAnyLength).
constexpr int kAnyLength = -1;

template <int Vectors, class R, class S>
DVM_INLINE void copy_piece(R* to, const S* from, int64_t length) {
  if constexpr (Vectors == kAnyLength) {
    convert_row(to, from, length);
  } else {
    using V = Full<R>;
    constexpr int64_t kWhole = Vectors * kLanes<R>;
    for (int64_t i = 0; i < kWhole; i += kLanes<R>) store(to + i, load<V>(from + i));
    store_partial(to + kWhole, load_partial<V>(from + kWhole, length - kWhole), length - kWhole);
  }
}

// Elements [begin, end) of one kernel row of a patch, where taps are neighbours in memory.
template <class R, class S>
DVM_INLINE void pack_neighbours(R* to, const S* row, const Window& w, int64_t first_x,
                                int64_t begin, int64_t end) {
  const int64_t channels = w.channels;
  const int64_t low = lesser(greater<int64_t>(-first_x * channels, begin), end);
  const int64_t high = greater(lesser((w.width - first_x) * channels, end), low);
  if (low > begin) fill_row(to, low - begin, R{});
  if (high > low) convert_row(to + (low - begin), row + first_x * channels + low, high - low);
  if (end > high) fill_row(to + (high - begin), end - high, R{});
}

template <class R, class S>
DVM_INLINE void pack_taps(R* to, const S* row, const Window& w, int64_t first_x, int64_t begin,
                          int64_t end) {
  int64_t x = first_x, channel = begin;
  if (begin > 0) {
    x += begin / w.channels * w.dilation_width;
    channel = begin % w.channels;
  }
  for (int64_t left = end - begin; left > 0; x += w.dilation_width, channel = 0) {
    const int64_t count = lesser<int64_t>(w.channels - channel, left);
    if (x < 0 || x >= w.width) {
      fill_row(to, count, R{});
    } else {
      convert_row(to, row + x * w.pixel + channel, count);
    }
    to += count;
    left -= count;
  }
}

// What the patches of an instruction have in common.
template <class R, class S>
struct Patches {
  const S* images;
  const Window& w;
  int64_t elements;  // of each, from w.first on
  int64_t kernel_row, image_row, slice;
  bool neighbours;         // taps of a kernel row are
  int64_t pieces, length;  // of a kernel row
  int64_t first_row;       // of the kernel
  bool whole_rows;         // elements are those of whole kernel rows

  Patches(const S* at, const Window& window, int64_t count)
      : images(at),
        w(window),
        elements(count),
        kernel_row(int64_t{w.kernel_width} * w.channels),
        image_row(int64_t{w.width} * w.pixel),
        slice(w.height * image_row),
        neighbours(w.dilation_width == 1 && w.pixel == w.channels),
        pieces(neighbours ? 1 : w.kernel_width),
        length(neighbours ? kernel_row : w.channels),
        first_row(w.first / kernel_row),
        whole_rows(w.first % kernel_row == 0 && count % kernel_row == 0) {}

  template <int Vectors>
  DVM_INLINE void pack(R* to, const Position& at) const {
    const S* image = images + at.image * w.depth * slice;
    const int64_t first_z = at.z * w.stride_depth - w.pad_front;
    const int64_t first_y = at.y * w.stride_height - w.pad_top;
    const int64_t first_x = at.x * w.stride_width - w.pad_left;
    if (whole_rows && inside(first_z, w.kernel_depth, w.dilation_depth, w.depth) &&
        inside(first_y, w.kernel_height, w.dilation_height, w.height) &&
        inside(first_x, w.kernel_width, w.dilation_width, w.width)) {
      pack_inside<Vectors>(to, image + first_z * slice + first_y * image_row + first_x * w.pixel);
    } else {
      pack_at_border(to, image, first_z, first_y, first_x);
    }
  }

 private:
  DVM_INLINE static bool inside(int64_t first, int64_t kernel, int64_t dilation, int64_t extent) {
    return first >= 0 && first + (kernel - 1) * dilation < extent;
  }

  // All taps of the window, the first of which lies at `from`, are inside the image.
  template <int Vectors>
  DVM_INLINE void pack_inside(R* to, const S* from) const {
    const int64_t step = int64_t{w.dilation_width} * w.pixel;
    const int64_t down = w.dilation_height * image_row;
    const int64_t behind = w.dilation_depth * slice - w.kernel_height * down;  // a slice's last row
    int64_t rows = w.kernel_height;  // to come, of the slice
    if (first_row > 0) {
      from += first_row / w.kernel_height * w.dilation_depth * slice;
      from += first_row % w.kernel_height * down;
      rows -= first_row % w.kernel_height;
    }
    for (int64_t left = elements; left > 0; left -= kernel_row, from += down) {
      const S* piece = from;
      for (int64_t i = 0; i < pieces; i++, piece += step, to += length)
        copy_piece<Vectors>(to, piece, length);
      if (--rows > 0) continue;
      rows = w.kernel_height;
      from += behind;
    }
  }

  void pack_at_border(R* to, const S* image, int64_t first_z, int64_t first_y,
                      int64_t first_x) const {
    int64_t row = first_row, begin = w.first - first_row * kernel_row;  // of the kernel
    for (int64_t left = elements; left > 0; row++, begin = 0) {
      const int64_t end = lesser(kernel_row, begin + left);
      const int64_t z = first_z + row / w.kernel_height * w.dilation_depth;
      const int64_t y = first_y + row % w.kernel_height * w.dilation_height;
      const S* const from = image + z * slice + y * image_row;
      if (z < 0 || z >= w.depth || y < 0 || y >= w.height) {
        fill_row(to, end - begin, R{});
      } else if (neighbours) {
        pack_neighbours(to, from, w, first_x, begin, end);
      } else {
        pack_taps(to, from, w, first_x, begin, end);
      }
      to += end - begin;
      left -= end - begin;
    }
  }
};

template <int Vectors, class R, class S>
void pack_patches(const Patches<R, S>& patches, const Tile<R>& to, int64_t count,
                  const Tile<const std::byte>& numbers) {
  Position at(patches.w, first_number(numbers));
  for (int64_t m = 0; m < count; m++) {
    if (m > 0) {
      if (numbers.middle == 1)
        at.advance(patches.w);
      else
        at = Position(patches.w, first_number(numbers) + m * numbers.middle);
    }
    patches.template pack<Vectors>(to.at + m * to.middle, at);
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
  if constexpr (std::is_same_v<R, S>) {
    if (patches.length <= kLanes<R>) return pack_patches<0>(patches, to, e.middle, numbers);
    if (patches.length <= 2 * kLanes<R>) return pack_patches<1>(patches, to, e.middle, numbers);
  }
  pack_patches<kAnyLength>(patches, to, e.middle, numbers);
}

// ---- pools, and convolutions of channels by themselves and of groups

// Where the operands of an instruction lie.
template <class T>
struct Operands {
  Tile<T> to;
  Tile<const T> images, weights;
  Tile<const std::byte> numbers;

  // At a point of the loops.
  DVM_INLINE Operands at(int64_t o, int64_t m, int64_t i) const {
    const auto offset = [&](const auto& tile) {
      return o * tile.outer + m * tile.middle + i * tile.inner;
    };
    Operands moved = *this;
    moved.to.at += offset(to);
    moved.images.at += offset(images);
    moved.weights.at += offset(weights);
    moved.numbers.at += offset(numbers);
    return moved;
  }
  // The outer loop becomes the middle one.
  DVM_INLINE Operands turned() const {
    Operands turned = *this;
    const auto turn = [](auto& tile) { tile.middle = tile.outer; };
    turn(turned.to), turn(turned.images), turn(turned.weights), turn(turned.numbers);
    return turned;
  }
};

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
    reduce_group_series(w, reads, x.images.at, x.weights.at, out, out_step, first_number(x.numbers),
                        count, results);
  }
};

// Point by point.
template <class T, class Series>
void reduce_scattered(const Window& w, const Series& series, const Operands<T>& x,
                      const Extents& e) {
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      for (int64_t i = 0; i < e.inner; i++) {
        const Operands<T> at = x.at(o, m, i);
        series(w, at, at.to.at, 0, 1, 1);
      }
    }
  }
}

// The inner loop is results of a window.
template <class T, class Series>
void reduce_rows(const Window& w, const Series& series, const Operands<T>& x, const Extents& e) {
  const bool in_order = x.numbers.middle == 1 && x.images.middle == 0 && x.weights.middle == 0;
  const int64_t step = in_order ? e.middle : 1;
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m += step) {
      const Operands<T> at = x.at(o, m, 0);
      series(w, at, at.to.at, x.to.middle, step, e.inner);
    }
  }
}

// The inner loop is windows in order, of one result each.
template <class T, class Series>
void reduce_single(const Window& w, const Series& series, const Operands<T>& x, const Extents& e) {
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      const Operands<T> at = x.at(o, m, 0);
      series(w, at, at.to.at, x.to.inner, e.inner, 1);
    }
  }
}

// Results are the middle loop and neighbours, windows the inner one and in order: vectors of
// results are reduced for a few windows, and turned around.
template <class T, class Series>
void reduce_across(const Window& w, const Series& series, const Operands<T>& x, int64_t results,
                   int64_t windows) {
  constexpr int64_t L = kLanes<T>, kWindows = 64;
  alignas(kLineBytes) T block[kWindows * L];
  for (int64_t first = 0; first < windows; first += kWindows) {
    const int64_t count = lesser(windows - first, kWindows);
    for (int64_t c = 0; c < results; c += L) {
      const int64_t lanes = lesser(results - c, L);
      const Operands<T> at = x.at(0, c, first);
      series(w, at, block, lanes, count, lanes);
      for (int64_t lane = 0; lane < lanes; lane++) {
        T* const row = at.to.at + lane * x.to.middle;
        for (int64_t i = 0; i < count; i++) row[i * x.to.inner] = block[i * lanes + lane];
      }
    }
  }
}

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
  if (neighbours && fits_shuffles<T>(channels, results)) {
    if (channels == results && begins_groups<T>(results)) {
      const Shuffled<T, true> reads(channels, results);
      return reduce_pieces(core, w, reads, x.turned(), all, results);
    }
    const Shuffled<T, false> reads(channels, results);
    return reduce_pieces(core, w, reads, x.turned(), all, results);
  }
  if (neighbours && results % kLanes<T> == 0)
    return reduce_pieces(core, w, by_group, x.turned(), all, results);
  for (int64_t g = 0; g < groups; g++)
    reduce_rows(w, series, x.at(0, g, 0).turned(), Extents{1, e.outer, results});
}

template <class Op, class T>
void reduce_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  Operands<T> x{tile_at<T>(core, operand_words(words, 0)),
                tile_at<const T>(core, operand_words(words, 1)),
                {nullptr, 0, 0, 0},
                numbers_at(core, words)};
  if constexpr (Op::kWeighted) x.weights = tile_at<const T>(core, operand_words(words, 3));
  const Window w = window_at(words, Op::kWeighted ? 4 : 3);
  const bool alone = w.channels == 1;
  if (e.inner == 1) {  // a loop of whatever strides
    x.numbers.inner = 0;
    x.to.inner = 1;
    x.images.inner = alone;
    x.weights.inner = Op::kWeighted;
  }
  constexpr OfChannels<Op, T> kOfChannels;
  const bool by_results =
      x.numbers.inner == 0 && x.to.inner == 1 && x.weights.inner == Op::kWeighted;
  if (by_results && alone && x.images.inner == 1) return reduce_rows(w, kOfChannels, x, e);
  const bool by_windows = x.numbers.inner == 1 && x.images.inner == 0 && x.weights.inner == 0;
  const bool across = by_windows && x.numbers.middle == 0 && x.weights.middle == Op::kWeighted;
  if (by_windows && alone && (e.middle == 1 || !across)) return reduce_single(w, kOfChannels, x, e);
  if (across && alone && x.images.middle == 1) {
    for (int64_t o = 0; o < e.outer; o++)
      reduce_across(w, kOfChannels, x.at(o, 0, 0), e.middle, e.inner);
    return;
  }
  if constexpr (Op::kWeighted) {
    if (by_results && x.images.inner == 0) return reduce_groups(core, w, x, e);
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

struct Windows {
  static constexpr bool accepts(Family family, Form form, DType dtype) {
    return part_of(family, form, dtype) == Part::window;
  }
  template <Family F, Form Form_, DType D>
  static constexpr auto handler() {
    if constexpr (Form_ == Form::pack_patches)
      return &pack_patches_handler<StorageType<D>, RegisterType<D>>;
    else if constexpr (F == Family::d_pool_max)
      return &reduce_handler<Max, ElementType<D>>;
    else if constexpr (F == Family::d_pool_sum)
      return &reduce_handler<Sum, ElementType<D>>;
    else if constexpr (F == Family::d_depthwise)
      return &reduce_handler<Weighted, ElementType<D>>;
    else
      return nullptr;
  }
};

}  // namespace

void fill_window(Handler* handlers) { fill_handlers<Windows>(handlers); }

}  // namespace dvm::DVM_LEVEL
