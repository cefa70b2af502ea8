// Windows over channels-last images: pooling, depth-wise convolution, and packing of patches (the
// rows of a convolution's operand A). Nothing is padded in memory: taps outside an image are left
// out, or are 0 in a patch.
//
// Pooling and depth-wise convolution keep a block of sums in registers while the taps pass: a
// vector of channels for each of some neighbouring windows or, at the borders, where windows differ
// in their taps, several vectors of one window. Block follows block along the channels, as they lie
// in memory. Rows of a large image come from far: those that the next row of windows reads first
// are fetched meanwhile. Convolutions of groups are in group_windows.h. Compiled per level: see
// simd.h.
#include "npu/host/group_windows.h"
#include "npu/host/loops.h"
#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/units.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int64_t kFarBytes = int64_t{1} << 20;  // of an image that does not stay in L2
constexpr int kBlock = 8;  // sums at once, of windows or channels: they hide the latency of FMAs

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

// ---- pooling, and convolution of channels alone and of groups

struct Max {
  static constexpr bool kWeighted = false;
  template <class T>
  static constexpr T kFirst = -__builtin_inf();
  template <class V>
  DVM_INLINE static V step(V sum, V x, V) {
    return x > sum || x != x ? x : sum;
  }
};
struct Sum {
  static constexpr bool kWeighted = false;
  template <class T>
  static constexpr T kFirst = 0;
  template <class V>
  DVM_INLINE static V step(V sum, V x, V) {
    return sum + x;
  }
};
struct Weighted {
  static constexpr bool kWeighted = true;
  template <class T>
  static constexpr T kFirst = 0;
  template <class V>
  DVM_INLINE static V step(V sum, V x, V weight) {
    return sum + x * weight;
  }
};

// Windows of one output row with the same taps inside the image.
template <class T>
struct Run {
  T* out;
  int64_t out_step;  // between windows
  const T* at;       // the first tap inside the image, of the first window
  int64_t step;      // between windows
  int64_t tap_rows, tap_columns, tap_row_step, tap_column_step;
  const T* weights;  // of the first tap inside
  int64_t weight_row_step, weight_column_step;
  const T* later;  // the first pixel to fetch meanwhile
  int64_t later_rows, later_row_step;
  int64_t pixel, pixels;  // the step between pixels, and pixels between windows

  // What so many windows read of row `y` of those to fetch, at some vectors of channels.
  DVM_INLINE void fetch(int64_t y, int64_t windows, int64_t c, int64_t vectors) const {
    constexpr auto kElement = static_cast<int64_t>(sizeof(T));
    const T* from = later + y * later_row_step + c;
    for (int64_t at = 0; at < windows * pixels; at++, from += pixel)
      for (int64_t byte = 0; byte < vectors * kVectorBytes; byte += kLineBytes)
        __builtin_prefetch(from + byte / kElement, 0, 2);
  }
};

// A block of windows for some vectors of channels from `c` on; the only one may be partial.
template <class Op, class T, int Windows, int Vectors, bool Partial = false>
DVM_INLINE void reduce_block(const Run<T>& run, int64_t c, int64_t lanes = 0) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  const auto get = [&](const T* from) DVM_LAMBDA_INLINE {
    if constexpr (Partial)
      return load_partial<V>(from, lanes);
    else
      return load<V>(from);
  };
  V sum[Windows * Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Windows * Vectors; i++) sum[i] = splat<V>(Op::template kFirst<T>);
  for (int64_t y = 0; y < run.tap_rows; y++) {
    const T* tap = run.at + c + y * run.tap_row_step;
    const T* weight = run.weights + c + y * run.weight_row_step;
    if (y < run.later_rows) run.fetch(y, Windows, c, Vectors);
    for (int64_t x = 0; x < run.tap_columns; x++) {
      V w[Vectors] = {};
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; v++)
        if constexpr (Op::kWeighted) w[v] = get(weight + v * L);
#pragma GCC unroll 16
      for (int i = 0; i < Windows * Vectors; i++)
        sum[i] =
            Op::step(sum[i], get(tap + i / Vectors * run.step + i % Vectors * L), w[i % Vectors]);
      tap += run.tap_column_step;
      if constexpr (Op::kWeighted) weight += run.weight_column_step;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Windows * Vectors; i++) {
    T* to = run.out + c + i / Vectors * run.out_step + i % Vectors * L;
    if constexpr (Partial)
      store_partial(to, sum[i], lanes);
    else
      store(to, sum[i]);
  }
}

// All channels of some windows, many or one.
template <class Op, class T, int Windows>
void reduce_windows(const Run<T>& run, int64_t channels) {
  constexpr int64_t L = kLanes<T>;
  constexpr int kVectors = kBlock / Windows;
  int64_t c = 0;
  for (; c + kVectors * L <= channels; c += kVectors * L)
    reduce_block<Op, T, Windows, kVectors>(run, c);
  if constexpr (kVectors > 1)
    for (; c + L <= channels; c += L) reduce_block<Op, T, Windows, 1>(run, c);
  if (c < channels) reduce_block<Op, T, Windows, 1, true>(run, c, channels - c);
}

template <class Op, class T>
void reduce_run(Run<T> run, int64_t windows, int64_t channels) {
  const auto take = [&]<int Count>(std::integral_constant<int, Count>) DVM_LAMBDA_INLINE {
    reduce_windows<Op, T, Count>(run, channels);
    run.out += Count * run.out_step;
    run.at += Count * run.step;
    run.later += Count * run.step;
    windows -= Count;
  };
  while (windows >= kBlock) take(std::integral_constant<int, kBlock>{});
  if (windows >= kBlock / 2) take(std::integral_constant<int, kBlock / 2>{});
  if (windows >= kBlock / 4) take(std::integral_constant<int, kBlock / 4>{});
  while (windows > 0) take(std::integral_constant<int, 1>{});
}

// The windows [first_x, first_x + count) of one output row: those at the borders one by one.
template <class Op, class T>
void reduce_row(const Window& w, const T* image, const T* weights, T* out, int64_t out_step,
                int64_t y, int64_t first_x, int64_t count, int64_t channels) {
  const int64_t row_step = int64_t{w.width} * w.pixel;
  const int64_t top = y * w.stride_height - w.pad_top;
  const Taps rows = taps_inside(top, w.dilation_height, w.height, w.kernel_height);
  // Windows [inner_begin, inner_end) have all their columns inside the image.
  const int64_t wide = int64_t{w.kernel_width - 1} * w.dilation_width;
  const int64_t last = w.width - 1 - wide + w.pad_left;
  const int64_t inner_begin = ceil_div(w.pad_left, w.stride_width);
  const int64_t inner_end = last < 0 ? 0 : last / w.stride_width + 1;
  Run<T> run;
  run.out_step = out_step;
  run.step = int64_t{w.stride_width} * w.pixel;
  run.tap_rows = greater<int64_t>(rows.end - rows.begin, 0);
  run.tap_row_step = w.dilation_height * row_step;
  run.tap_column_step = int64_t{w.dilation_width} * w.pixel;
  run.weight_column_step = w.weights;
  run.weight_row_step = int64_t{w.kernel_width} * w.weights;
  const bool far = w.height * row_step * static_cast<int64_t>(sizeof(T)) >= kFarBytes;
  run.later_rows = far ? w.stride_height : 0;
  run.later_row_step = row_step;
  run.pixel = w.pixel;
  run.pixels = w.stride_width;
  // Behind the rows of these windows. Those behind the last ones of an image are the next one's.
  const T* later = image + (top + int64_t{w.kernel_height - 1} * w.dilation_height + 1) * row_step;
  const int64_t end = first_x + count;
  for (int64_t x = first_x; x < end;) {
    const int64_t left = x * w.stride_width - w.pad_left;
    const bool inner = x >= inner_begin && x < inner_end;
    const int64_t windows = inner ? lesser(inner_end, end) - x : 1;
    const Taps columns = inner ? Taps{0, w.kernel_width}
                               : taps_inside(left, w.dilation_width, w.width, w.kernel_width);
    run.tap_columns = greater<int64_t>(columns.end - columns.begin, 0);
    run.out = out + (x - first_x) * out_step;
    run.at = image + (top + rows.begin * w.dilation_height) * row_step +
             (left + columns.begin * w.dilation_width) * w.pixel;
    run.later = later + left * w.pixel;
    run.weights = weights + (rows.begin * w.kernel_width + columns.begin) * w.weights;
    reduce_run<Op, T>(run, windows, channels);
    x += windows;
  }
}

// A series of windows: output row by output row.
template <class Op, class T>
DVM_INLINE void reduce_series(const Window& w, const T* images, const T* weights, T* out,
                              int64_t out_step, int64_t number, int64_t count, int64_t channels) {
  const int64_t image_step = int64_t{w.height} * w.width * w.pixel;
  Position at(w, number);
  while (count > 0) {
    const int64_t windows = lesser(w.out_width - at.x, count);
    reduce_row<Op>(w, images + at.image * image_step, weights, out, out_step, at.y, at.x, windows,
                   channels);
    out += windows * out_step;
    count -= windows;
    at.x += windows - 1;
    at.advance(w);
  }
}

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
      series(w, at, block, L, count, lanes);
      for (int64_t lane = 0; lane < lanes; lane++) {
        T* const row = at.to.at + lane * x.to.middle;
        for (int64_t i = 0; i < count; i++) row[i * x.to.inner] = block[i * L + lane];
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
  const bool across = x.numbers.inner == 1 && x.numbers.middle == 0 && x.images.inner == 0 &&
                      x.weights.inner == 0 && x.weights.middle == Op::kWeighted;
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
