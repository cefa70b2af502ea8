// Windows over channels-last images: pooling, depth-wise convolution, and packing of patches (the
// rows of a convolution's operand A). Nothing is padded in memory: taps outside an image are left
// out, or are 0 in a patch.
//
// Pooling and depth-wise convolution keep a block of sums in registers while the taps pass: a
// vector of channels for each of some neighbouring windows or, at the borders, where windows differ
// in their taps, several vectors of one window. Block follows block along the channels, as they lie
// in memory. Where results are made of several channels, those of a group, its channels pass one by
// one: each is brought to the lanes of the group's results. Rows of a large image come from far:
// those that the next row of windows reads first are fetched meanwhile. Compiled per level: see
// simd.h.
#include "npu/host/loops.h"
#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/units.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int64_t kFarBytes = int64_t{1} << 20;  // of an image that does not stay in L2
constexpr int kBlock = 8;  // sums at once, of windows or channels: they hide the latency of FMAs
constexpr int64_t kWeightBytes = 16384;  // that stay in the first-level cache beside an image
constexpr int kSlid = 3;                 // columns of taps along which windows slide

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

// ---- pooling and depth-wise convolution

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
  const T* weights;                      // of the first tap inside
  int64_t weight_row_step, weight_step;  // the latter between channels of a tap, and taps
  const T* later;                        // the first pixel to fetch meanwhile
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

// What vectors of results read: of those from `c` on, the place of their first channel in a pixel;
// and of a place at `from`, some lanes of channel number `j` of each result.
template <class T>
struct Alone {
  using V = Full<T>;
  struct Place {
    int64_t first;
  };

  DVM_INLINE static int64_t channels() { return 1; }  // of a group
  DVM_INLINE static Place place(int64_t c) { return {c}; }
  template <bool Partial>
  DVM_INLINE static V read(const Place&, const T* from, int64_t, int64_t lanes) {
    return Partial ? load_partial<V>(from, lanes) : load<V>(from);
  }
};

// Several groups to a vector, which are shuffled. Whole: vectors of results read whole vectors.
template <class T, bool Whole>
class Shuffled {
 public:
  using V = Full<T>;
  using Number = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  struct Place {
    int64_t first;
    Full<Number> lanes;  // where the first channels of the groups are in what is loaded
    int64_t elements;    // that a vector reads
  };

  Shuffled(int64_t channels, int64_t results)
      : channels_(channels), results_(results), period_(kLanes<T> % results == 0 ? 1 : results) {
    for (int64_t c = 0; c < period_; c++)
      for (int64_t lane = 0; lane < kLanes<T>; lane++)
        lanes_[c][lane] = static_cast<Number>((c + lane) / results * channels);
  }

  DVM_INLINE int64_t channels() const { return channels_; }
  DVM_INLINE Place place(int64_t c) const {
    const int64_t group = c / results_, in_group = period_ == 1 ? 0 : c - group * results_;
    const int64_t groups = (in_group + kLanes<T> - 1) / results_ + 1;
    return {group * channels_, lanes_[in_group], groups * channels_};
  }
  template <bool Partial>
  DVM_INLINE V read(const Place& place, const T* from, int64_t j, int64_t lanes) const {
    if constexpr (Partial) {
      const int64_t last = place.lanes[lanes - 1];  // a channel of the last group
      return shuffled(load_partial<V>(from, last + channels_), place, j);
    }
    if constexpr (Whole) return shuffled(load<V>(from), place, j);
    return shuffled(load_partial<V>(from, place.elements), place, j);
  }

 private:
  DVM_INLINE static V shuffled(V x, const Place& place, int64_t j) {
    return __builtin_shuffle(x, place.lanes + static_cast<Number>(j));
  }

  const int64_t channels_, results_;
  const int64_t
      period_;  // of results, behind which lanes are the same again, if not with every vector
  Full<Number> lanes_[kLanes<T>];
};

// Whether no vector of results reads more than a vector.
template <class T>
bool fits_shuffles(int64_t channels, int64_t results) {
  constexpr int64_t L = kLanes<T>;
  if (results >= L) return false;
  const int64_t groups = L % results == 0 ? L / results : (results + L - 2) / results + 1;
  return groups * channels <= L;
}

// Vectors of results of one group.
template <class T>
struct Splat {
  using V = Full<T>;
  struct Place {
    int64_t first;
  };
  int64_t of_group, results;

  DVM_INLINE int64_t channels() const { return of_group; }
  DVM_INLINE Place place(int64_t c) const { return {c / results * of_group}; }
  template <bool>
  DVM_INLINE static V read(const Place&, const T* from, int64_t j, int64_t) {
    return splat<V>(from[j]);
  }
};

// Results of some windows for some vectors of channels from `c` on; the only one may be partial.
template <class T, int Windows, int Vectors, bool Partial>
DVM_INLINE void store_sums(const Run<T>& run, const Full<T> (&sum)[Windows * Vectors], int64_t c,
                           int64_t lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < Windows * Vectors; i++) {
    T* to = run.out + c + i / Vectors * run.out_step + i % Vectors * kLanes<T>;
    if constexpr (Partial)
      store_partial(to, sum[i], lanes);
    else
      store(to, sum[i]);
  }
}

template <class Op, class T, int Windows, int Vectors, bool Partial = false, class Reads>
DVM_INLINE void reduce_block(const Run<T>& run, const Reads& reads, int64_t c, int64_t lanes = 0) {
  using V = Full<T>;
  constexpr int64_t L = kLanes<T>;
  typename Reads::Place places[Vectors];
#pragma GCC unroll 16
  for (int v = 0; v < Vectors; v++) places[v] = reads.place(c + v * L);
  const int64_t first = places[0].first;
  V sum[Windows * Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Windows * Vectors; i++) sum[i] = splat<V>(Op::template kFirst<T>);
  for (int64_t y = 0; y < run.tap_rows; y++) {
    const T* tap = run.at + first + y * run.tap_row_step;
    const T* weight = run.weights + c + y * run.weight_row_step;
    if (y < run.later_rows) run.fetch(y, Windows, first, Vectors);
    for (int64_t x = 0; x < run.tap_columns; x++) {
      for (int64_t j = 0; j < reads.channels(); j++) {
        V w[Vectors] = {};
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; v++)
          if constexpr (Op::kWeighted)
            w[v] = Partial ? load_partial<V>(weight, lanes) : load<V>(weight + v * L);
#pragma GCC unroll 16
        for (int i = 0; i < Windows * Vectors; i++) {
          const auto& place = places[i % Vectors];
          const T* const at = tap + i / Vectors * run.step + (place.first - first);
          const V x = reads.template read<Partial>(place, at, j, lanes);
          sum[i] = Op::step(sum[i], x, w[i % Vectors]);
        }
        if constexpr (Op::kWeighted) weight += run.weight_step;
      }
      tap += run.tap_column_step;
    }
  }
  store_sums<T, Windows, Vectors, Partial>(run, sum, c, lanes);
}

// As above, of neighbours that are a tap apart, by so many columns of taps: a pixel is read once
// for all windows that see it, and those of [begin, end) are inside the image: all but the first
// and the last one (Near), or any.
template <class T, int Windows, int Columns, bool Near, bool Partial, class Reads>
DVM_INLINE void slide_block(const Run<T>& run, const Reads& reads, int64_t begin, int64_t end,
                            int64_t c, int64_t lanes) {
  using V = Full<T>;
  const auto place = reads.place(c);
  V sum[Windows];
#pragma GCC unroll 16
  for (int i = 0; i < Windows; i++) sum[i] = V{};
  for (int64_t y = 0; y < run.tap_rows; y++) {
    const T* const tap = run.at + place.first + y * run.tap_row_step;
    const T* weight = run.weights + c + y * run.weight_row_step;
    if (y < run.later_rows) run.fetch(y, Windows, place.first, 1);
    for (int64_t j = 0; j < reads.channels(); j++, weight += run.weight_step) {
      V w[Columns];
#pragma GCC unroll 16
      for (int x = 0; x < Columns; x++) {
        const T* const at = weight + x * reads.channels() * run.weight_step;
        w[x] = Partial ? load_partial<V>(at, lanes) : load<V>(at);
      }
#pragma GCC unroll 16
      for (int p = 0; p < Windows + Columns - 1; p++) {
        if ((!Near || p == 0) && p < begin) continue;
        if ((!Near || p == Windows + Columns - 2) && p >= end) continue;
        const V v = reads.template read<Partial>(place, tap + p * run.step, j, lanes);
#pragma GCC unroll 16
        for (int x = 0; x < Columns; x++)
          if (p >= x && p - x < Windows) sum[p - x] += v * w[x];
      }
    }
  }
  store_sums<T, Windows, 1, Partial>(run, sum, c, lanes);
}

// All results of windows of one output row, of which the first column of taps lies at `left`. The
// last block may do some once more.
template <class T, int Columns, class Reads>
void slide_run(Run<T> run, const Reads& reads, const Window& w, int64_t left, int64_t windows,
               int64_t results) {
  const auto take = [&]<int Count>(std::integral_constant<int, Count>) DVM_LAMBDA_INLINE {
    constexpr int64_t L = kLanes<T>;
    for (int64_t done = 0; done < windows; done += Count) {
      const int64_t x = lesser(done, windows - Count), column = left + x * w.stride_width;
      const int64_t begin = ceil_div(greater<int64_t>(-column, 0), w.stride_width);
      const int64_t end = ceil_div(w.width - column, w.stride_width);
      Run<T> block = run;
      block.out += x * run.out_step;
      block.at += x * run.step;
      block.later += x * run.step;
      const bool near = begin <= 1 && end >= Count + Columns - 2;
      int64_t c = 0;
      for (; c + L <= results; c += L) {
        if (near)
          slide_block<T, Count, Columns, true, false>(block, reads, begin, end, c, L);
        else
          slide_block<T, Count, Columns, false, false>(block, reads, begin, end, c, L);
      }
      if (c < results)
        slide_block<T, Count, Columns, false, true>(block, reads, begin, end, c, results - c);
    }
  };
  // The block that goes over the fewest windows twice; networks halve 224 columns down to 7.
  if (windows % kBlock == 0 || windows >= kBlock * kBlock)
    return take(std::integral_constant<int, kBlock>{});
  if (windows >= kBlock - 1) return take(std::integral_constant<int, kBlock - 1>{});
  if (windows >= kBlock / 2) return take(std::integral_constant<int, kBlock / 2>{});
  take(std::integral_constant<int, 1>{});
}

// All results of some windows, many or one.
template <class Op, class T, int Windows, class Reads>
void reduce_windows(const Run<T>& run, const Reads& reads, int64_t results) {
  constexpr int64_t L = kLanes<T>;
  int64_t c = 0;
  constexpr int kVectors = kBlock / Windows;
  for (; c + kVectors * L <= results; c += kVectors * L)
    reduce_block<Op, T, Windows, kVectors>(run, reads, c);
  if constexpr (kVectors > 1)
    for (; c + L <= results; c += L) reduce_block<Op, T, Windows, 1>(run, reads, c);
  if (c < results) reduce_block<Op, T, Windows, 1, true>(run, reads, c, results - c);
}

template <class Op, class T, class Reads>
void reduce_run(Run<T> run, const Reads& reads, int64_t windows, int64_t results) {
  const auto take = [&]<int Count>(std::integral_constant<int, Count>) DVM_LAMBDA_INLINE {
    reduce_windows<Op, T, Count>(run, reads, results);
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
template <class Op, class T, class Reads>
void reduce_row(const Window& w, const Reads& reads, const T* image, const T* weights, T* out,
                int64_t out_step, int64_t y, int64_t first_x, int64_t count, int64_t results) {
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
  const int64_t tap_weights = reads.channels() * w.weights;
  run.weight_step = w.weights;
  run.weight_row_step = w.kernel_width * tap_weights;
  const bool far = w.height * row_step * static_cast<int64_t>(sizeof(T)) >= kFarBytes;
  run.later_rows = far ? w.stride_height : 0;
  run.later_row_step = row_step;
  run.pixel = w.pixel;
  run.pixels = w.stride_width;
  // Behind the rows of these windows. Those behind the last ones of an image are the next one's.
  const T* later = image + (top + int64_t{w.kernel_height - 1} * w.dilation_height + 1) * row_step;
  if constexpr (Op::kWeighted && !std::is_same_v<Reads, Alone<T>>) {
    if (w.kernel_width == kSlid && w.stride_width == w.dilation_width) {
      const int64_t left = first_x * w.stride_width - w.pad_left;
      run.out = out;
      run.at = image + (top + rows.begin * w.dilation_height) * row_step + left * w.pixel;
      run.later = later + left * w.pixel;
      run.weights = weights + rows.begin * run.weight_row_step;
      return slide_run<T, kSlid>(run, reads, w, left, count, results);
    }
  }
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
    run.weights = weights + (rows.begin * w.kernel_width + columns.begin) * tap_weights;
    reduce_run<Op, T>(run, reads, windows, results);
    x += windows;
  }
}

// A series of windows: output row by output row.
template <class Op, class T, class Reads>
DVM_INLINE void reduce_series(const Window& w, const Reads& reads, const T* images,
                              const T* weights, T* out, int64_t out_step, int64_t number,
                              int64_t count, int64_t results) {
  const int64_t image_step = int64_t{w.height} * w.width * w.pixel;
  Position at(w, number);
  while (count > 0) {
    const int64_t windows = lesser(w.out_width - at.x, count);
    reduce_row<Op>(w, reads, images + at.image * image_step, weights, out, out_step, at.y, at.x,
                   windows, results);
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
  Operands at(int64_t o, int64_t m, int64_t i) const {
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
};

// Results are the middle loop and neighbours in the images or of one group, windows the inner one
// and in order: vectors of results are reduced for a few windows, and turned around.
template <class Op, class T, class Reads>
void reduce_across(const Window& w, const Reads& reads, const Operands<T>& x, int64_t results,
                   int64_t windows) {
  constexpr int64_t L = kLanes<T>, kWindows = 64;
  alignas(kLineBytes) T block[kWindows * L];
  for (int64_t first = 0; first < windows; first += kWindows) {
    const int64_t count = lesser(windows - first, kWindows);
    for (int64_t c = 0; c < results; c += L) {
      const int64_t lanes = lesser(results - c, L);
      const Operands<T> at = x.at(0, c, first);
      reduce_series<Op, T>(w, reads, x.images.at + reads.place(c).first, at.weights.at, block, L,
                           first_number(at.numbers), count, lanes);
      for (int64_t lane = 0; lane < lanes; lane++) {
        T* const row = at.to.at + lane * x.to.middle;
        for (int64_t i = 0; i < count; i++) row[i * x.to.inner] = block[i * L + lane];
      }
    }
  }
}

// The inner loop is results of a window.
template <class Op, class T, class Reads>
void reduce_rows(const Window& w, const Reads& reads, const Operands<T>& x, const Extents& e) {
  const bool in_order = x.numbers.middle == 1 && x.images.middle == 0 && x.weights.middle == 0;
  const int64_t step = in_order ? e.middle : 1;
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m += step) {
      const Operands<T> at = x.at(o, m, 0);
      reduce_series<Op, T>(w, reads, at.images.at, at.weights.at, at.to.at, x.to.middle,
                           first_number(at.numbers), step, e.inner);
    }
  }
}

// All results of windows, group by group side by side, in pieces of so many that their weights stay
// in the first-level cache from window to window; they are brought together for it.
template <class T, class Reads>
void reduce_pieces(const Core& core, const Window& w, const Reads& reads, Operands<T> x, Extents e,
                   int64_t results) {
  const int64_t rows = w.taps() * w.channels, all = e.inner;
  int64_t piece = greater<int64_t>(kWeightBytes / (rows * kVectorBytes), 1) * kLanes<T>;
  if (piece % results != 0) piece *= results;  // it begins with a group
  const bool packs = core.scratch != nullptr && rows * piece * int64_t{sizeof(T)} <= kScratchBytes;
  const Operands<T> first = x;
  Window of_piece = w;
  for (int64_t c = 0; c < all; c += piece) {
    e.inner = lesser(piece, all - c);
    x.to.at = first.to.at + c;
    x.images.at = first.images.at + reads.place(c).first;
    x.weights.at = first.weights.at + c;
    if (packs) {
      T* const packed = reinterpret_cast<T*>(core.scratch);
      for (int64_t row = 0; row < rows; row++)
        convert_row(packed + row * e.inner, x.weights.at + row * w.weights, e.inner);
      x.weights.at = packed;
      of_piece.weights = static_cast<int32_t>(e.inner);
    }
    reduce_rows<Weighted, T>(of_piece, reads, x, e);
  }
}

// The inner loop is the results of a group, the middle one windows or groups.
template <class T>
void reduce_groups(const Core& core, const Window& w, Operands<T> x, const Extents& e) {
  const int64_t channels = w.channels, results = e.inner, groups = e.middle;
  const Splat<T> by_group{channels, results};
  if (x.numbers.middle != 0) return reduce_rows<Weighted, T>(w, by_group, x, e);
  const Operands<T> first = x;
  const bool neighbours =
      x.images.middle == channels && x.to.middle == results && x.weights.middle == results;
  const auto turn = [](auto& tile) { tile.middle = tile.outer; };
  turn(x.to), turn(x.images), turn(x.weights), turn(x.numbers);
  const Extents all{1, e.outer, groups * results};
  if (neighbours && fits_shuffles<T>(channels, results)) {
    if (channels == results && kLanes<T> % results == 0) {
      const Shuffled<T, true> reads(channels, results);
      return reduce_pieces(core, w, reads, x, all, results);
    }
    const Shuffled<T, false> reads(channels, results);
    return reduce_pieces(core, w, reads, x, all, results);
  }
  if (neighbours && results % kLanes<T> == 0)
    return reduce_pieces(core, w, by_group, x, all, results);
  for (int64_t g = 0; g < groups; g++) {
    const Operands<T> of_group = first.at(0, g, 0);
    x.to.at = of_group.to.at;
    x.images.at = of_group.images.at;
    x.weights.at = of_group.weights.at;
    reduce_rows<Weighted, T>(w, by_group, x, {1, e.outer, results});
  }
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
  if (x.numbers.inner == 0 && x.to.inner == 1 && x.weights.inner == Op::kWeighted) {
    if (alone && x.images.inner == 1) return reduce_rows<Op, T>(w, Alone<T>{}, x, e);
    if constexpr (Op::kWeighted)
      if (x.images.inner == 0) return reduce_groups(core, w, x, e);
  }
  const bool across = x.numbers.inner == 1 && x.numbers.middle == 0 && x.images.inner == 0 &&
                      x.weights.inner == 0 && x.weights.middle == Op::kWeighted;
  for (int64_t o = 0; o < e.outer; o++) {
    if (across && alone && x.images.middle == 1) {
      reduce_across<Op, T>(w, Alone<T>{}, x.at(o, 0, 0), e.middle, e.inner);
      continue;
    }
    const Splat<T> by_group{w.channels, e.middle};
    if (across && x.images.middle == 0) {
      reduce_across<Op, T>(w, by_group, x.at(o, 0, 0), e.middle, e.inner);
      continue;
    }
    for (int64_t m = 0; m < e.middle; m++) {
      for (int64_t i = 0; i < e.inner; i++) {
        const Operands<T> at = x.at(o, m, i);
        reduce_series<Op, T>(w, by_group, at.images.at, at.weights.at, at.to.at, 0,
                             first_number(at.numbers), 1, 1);
      }
    }
  }
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
