// Convolutions of groups of few channels, over channels-last images: results of several groups are
// a vector, or those of one are whole vectors, and the channels of a group pass one by one, each
// brought to the lanes of its group's results. Nothing of one group is multiplied for another.
//
// A block of sums in registers, of neighbouring windows by a vector of results, stays while taps
// and channels pass. Windows at the borders are in the same blocks: taps outside of the image are
// left out. Compiled per level: see simd.h.
#pragma once

#include "npu/host/rows.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kGroupWindows = 8;              // sums at once: they hide the latency of FMAs
constexpr int kTaps = 3;                      // columns of taps that have code of their own
constexpr int64_t kGroupWeightBytes = 16384;  // at a time: half of the least first-level cache

// Whether windows of a row are a tap apart, so that one sees the pixels of the next one.
DVM_INLINE bool are_neighbours(int64_t taps, int64_t stride, int64_t dilation) {
  return taps == kTaps && stride == dilation;
}

// How many groups a vector of results has some of, that begins at one of a group's.
template <class T>
DVM_INLINE int64_t groups_of_vector(int64_t in_group, int64_t results) {
  return (in_group + kLanes<T> - 1) / results + 1;
}
// Whether all vectors begin with a group.
template <class T>
DVM_INLINE bool begins_groups(int64_t results) {
  return kLanes<T> % results == 0;
}

// What vectors of results read is a Shuffled or a Splat. A Place is that of the results from `c`
// on: of their first channel in a pixel, and where their lanes are; `read` has some lanes of
// channel number `j` of each result, of a place at `from`.

// Several groups to a vector, which are shuffled. Whole: vectors of results read whole vectors.
template <class T, bool Whole>
class Shuffled {
 public:
  using V = Full<T>;
  using Number = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  struct Place {
    int64_t first;
    Full<Number> lanes;  // of what is loaded, where the first channels of the groups are
    int64_t elements;    // that a vector reads
  };

  Shuffled(int64_t channels, int64_t results)
      : channels_(channels), results_(results), period_(begins_groups<T>(results) ? 1 : results) {
    for (int64_t c = 0; c < period_; c++)
      for (int64_t lane = 0; lane < kLanes<T>; lane++)
        lanes_[c][lane] = static_cast<Number>((c + lane) / results * channels);
  }

  DVM_INLINE int64_t channels() const { return channels_; }
  DVM_INLINE Place place(int64_t c) const {
    const int64_t group = c / results_, in_group = period_ == 1 ? 0 : c - group * results_;
    return {group * channels_, lanes_[in_group],
            groups_of_vector<T>(in_group, results_) * channels_};
  }
  template <bool Partial>
  DVM_INLINE V read(const Place& place, const T* from, int64_t j, int64_t lanes) const {
    const auto channel = place.lanes + static_cast<Number>(j);
    if constexpr (Partial) {
      const int64_t last = place.lanes[lanes - 1];  // a channel of the last group
      return shuffled(load_partial<V>(from, last + channels_), channel);
    } else if constexpr (Whole) {
      return shuffled(load<V>(from), channel);
    } else {
      return shuffled(load_partial<V>(from, place.elements), channel);
    }
  }

 private:
  const int64_t channels_, results_;
  const int64_t period_;  // of results, behind which places have the same lanes; 1: all have
  Full<Number> lanes_[kLanes<T>];
};

// Whether no vector of results reads more than a vector.
template <class T>
bool fits_shuffles(int64_t channels, int64_t results) {
  if (results >= kLanes<T>) return false;
  const int64_t latest = begins_groups<T>(results) ? 0 : results - 1;
  return groups_of_vector<T>(latest, results) * channels <= kLanes<T>;
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

// Where sums go: results of neighbouring windows are so far apart. Any To does what these do; those
// of a window may be stored again.
template <class T>
struct ToRows {
  T* out;
  int64_t step;

  DVM_INLINE void advance(int64_t windows) { out += windows * step; }
  template <bool Partial>
  DVM_INLINE void store(int64_t window, int64_t c, Full<T> sum, int64_t lanes) const {
    store_some<Partial>(out + c + window * step, sum, lanes);
  }
};

// Neighbouring windows of an output row.
template <class T, class To>
struct GroupRow {
  To to;
  const T* at = nullptr;  // the first tap of the first row of taps inside the image; maybe outside
  int64_t rows = 0;       // of taps, inside the image
  int64_t step = 0, column_step = 0, row_step = 0;  // between windows, columns and rows of taps
  const T* weights = nullptr;
  int64_t weight_step = 0, weight_row_step = 0;  // the former between channels of a tap, and taps
  // Columns of pixels, and of taps over them.
  int64_t first = 0, width = 0, stride = 0, dilation = 0, taps = 0;

  DVM_INLINE bool inside(int64_t window, int64_t tap) const {
    const int64_t column = first + window * stride + tap * dilation;
    return column >= 0 && column < width;
  }
  // From window `x` on.
  DVM_INLINE GroupRow from(int64_t x) const {
    GroupRow row = *this;
    row.to.advance(x);
    row.at += x * step;
    row.first += x * stride;
    return row;
  }
};

// Windows that are a tap apart, by kTaps columns of taps: a pixel is read once for all windows that
// see it. Near: only the first and the last pixel may be outside of the image.
template <class T, int Windows, bool Near, bool Partial, class To, class Reads>
DVM_INLINE void slide_block(const GroupRow<T, To>& row, const Reads& reads, int64_t c,
                            int64_t lanes) {
  using V = Full<T>;
  constexpr int kPixels = Windows + kTaps - 1;
  const bool begins = row.inside(0, 0), ends = row.inside(kPixels - 1, 0);
  const auto place = reads.place(c);
  V sum[Windows];
#pragma GCC unroll 16
  for (int i = 0; i < Windows; i++) sum[i] = V{};
  for (int64_t y = 0; y < row.rows; y++) {
    const T* const tap = row.at + place.first + y * row.row_step;
    const T* weight = row.weights + c + y * row.weight_row_step;
    const bool is_last = y + 1 == row.rows;  // then come the first taps of the next block
    const T* const next = is_last ? row.at + place.first + Windows * row.step : tap + row.row_step;
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; p++) __builtin_prefetch(next + p * row.step);
    for (int64_t j = 0; j < reads.channels(); j++, weight += row.weight_step) {
      V w[kTaps];
#pragma GCC unroll 16
      for (int x = 0; x < kTaps; x++)
        w[x] = load_some<V, Partial>(weight + x * reads.channels() * row.weight_step, lanes);
#pragma GCC unroll 16
      for (int p = 0; p < kPixels; p++) {
        if (!Near && !row.inside(p, 0)) continue;
        if (Near && ((p == 0 && !begins) || (p == kPixels - 1 && !ends))) continue;
        const V v = reads.template read<Partial>(place, tap + p * row.step, j, lanes);
#pragma GCC unroll 16
        for (int x = 0; x < kTaps; x++)
          if (p >= x && p - x < Windows) sum[p - x] += v * w[x];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Windows; i++) row.to.template store<Partial>(i, c, sum[i], lanes);
}

// Any windows, column by column of taps. Inside: all taps are inside of the image.
template <class T, int Windows, bool Inside, bool Partial, class To, class Reads>
DVM_INLINE void tap_block(const GroupRow<T, To>& row, const Reads& reads, int64_t c,
                          int64_t lanes) {
  using V = Full<T>;
  const auto place = reads.place(c);
  V sum[Windows];
#pragma GCC unroll 16
  for (int i = 0; i < Windows; i++) sum[i] = V{};
  for (int64_t y = 0; y < row.rows; y++) {
    const T* tap = row.at + place.first + y * row.row_step;
    const T* weight = row.weights + c + y * row.weight_row_step;
    for (int64_t x = 0; x < row.taps; x++, tap += row.column_step) {
      unsigned outside = 0;  // a bit a window
      if constexpr (!Inside)
        for (int i = 0; i < Windows; i++) outside |= unsigned{!row.inside(i, x)} << i;
#pragma GCC unroll 16
      for (int i = 0; i < Windows; i++) __builtin_prefetch(tap + row.row_step + i * row.step);
      for (int64_t j = 0; j < reads.channels(); j++, weight += row.weight_step) {
        const V w = load_some<V, Partial>(weight, lanes);
#pragma GCC unroll 16
        for (int i = 0; i < Windows; i++) {
          if (!Inside && (outside >> i & 1) != 0) continue;
          sum[i] += reads.template read<Partial>(place, tap + i * row.step, j, lanes) * w;
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Windows; i++) row.to.template store<Partial>(i, c, sum[i], lanes);
}

// All results of so many windows; the last block may do some once more.
template <class T, class To, class Reads>
void reduce_group_row(const GroupRow<T, To>& row, const Reads& reads, int64_t windows,
                      int64_t results) {
  const bool slides = are_neighbours(row.taps, row.stride, row.dilation);
  const auto take = [&]<int Count>(std::integral_constant<int, Count>) DVM_LAMBDA_INLINE {
    constexpr int64_t L = kLanes<T>;
    for (int64_t done = 0; done < windows; done += Count) {
      const GroupRow<T, To> block = row.from(lesser(done, windows - Count));
      const int64_t end = block.first + (Count - 1) * row.stride + (row.taps - 1) * row.dilation;
      const int64_t apart = slides ? row.stride : 0;  // so far outside, only one pixel is
      const bool inside = block.first + apart >= 0 && end - apart < row.width;
      const auto reduce = [&]<bool Partial>(std::bool_constant<Partial>, int64_t c, int64_t lanes)
                              DVM_LAMBDA_INLINE {
                                if (slides && inside)
                                  slide_block<T, Count, true, Partial>(block, reads, c, lanes);
                                else if (slides)
                                  slide_block<T, Count, false, Partial>(block, reads, c, lanes);
                                else if (inside)
                                  tap_block<T, Count, true, Partial>(block, reads, c, lanes);
                                else
                                  tap_block<T, Count, false, Partial>(block, reads, c, lanes);
                              };
      int64_t c = 0;
      for (; c + L <= results; c += L) reduce(std::false_type{}, c, L);
      if (c < results) reduce(std::true_type{}, c, results - c);
    }
  };
  // The block that does the fewest windows twice: rows are often 7 times a power of two long. Of
  // long ones those that are done twice are few.
  if (windows % kGroupWindows == 0 || windows >= kGroupWindows * kGroupWindows)
    return take(std::integral_constant<int, kGroupWindows>{});
  if (windows >= kGroupWindows - 1) return take(std::integral_constant<int, kGroupWindows - 1>{});
  if (windows >= kGroupWindows / 2) return take(std::integral_constant<int, kGroupWindows / 2>{});
  take(std::integral_constant<int, 1>{});
}

// A series of windows: output row by output row.
template <class T, class To, class Reads>
void reduce_group_series(const Window& w, const Reads& reads, const T* images, const T* weights,
                         To to, int64_t number, int64_t count, int64_t results) {
  const int64_t image_row = int64_t{w.width} * w.pixel, tap_weights = reads.channels() * w.weights;
  GroupRow<T, To> row{to};
  row.step = int64_t{w.stride_width} * w.pixel;
  row.column_step = int64_t{w.dilation_width} * w.pixel;
  row.row_step = w.dilation_height * image_row;
  row.weight_step = w.weights;
  row.weight_row_step = w.kernel_width * tap_weights;
  row.width = w.width;
  row.stride = w.stride_width;
  row.dilation = w.dilation_width;
  row.taps = w.kernel_width;
  Position at(w, number);
  while (count > 0) {
    const int64_t windows = lesser(w.out_width - at.x, count);
    const int64_t top = at.y * w.stride_height - w.pad_top;
    const Taps rows = taps_inside(top, w.dilation_height, w.height, w.kernel_height);
    row.rows = rows.count();
    row.first = at.x * w.stride_width - w.pad_left;
    row.at = images + at.image * w.height * image_row +
             (top + rows.begin * w.dilation_height) * image_row + row.first * w.pixel;
    row.weights = weights + rows.begin * row.weight_row_step;
    row.to = to;
    reduce_group_row(row, reads, windows, results);
    to.advance(windows);
    count -= windows;
    at.x += windows - 1;
    at.advance(w);
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
