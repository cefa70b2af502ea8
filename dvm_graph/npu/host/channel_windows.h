// Pools, and convolutions of channels by themselves, over channels-last images.
//
// A block of sums in registers stays while the taps pass: a vector of channels for each of some
// neighbouring windows or, at the borders, where windows differ in their taps, several vectors of
// one window. Block follows block along the channels, as they lie in memory. Where channels are so
// few that they would leave lanes empty, the channels of neighbouring windows share a vector. Rows
// of a large image come from far: those that the next row of windows reads first are fetched
// meanwhile. Compiled per level: see simd.h.
#pragma once

#include "npu/host/overlapping_windows.h"
#include "npu/host/plane_windows.h"
#include "npu/host/rows.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kBlock = 8;  // sums at once, of windows or channels: they hide the latency of FMAs

// A reduction begins with kFirst, or with what `begin` makes of the first tap. OfNumbers gives the
// same where no tap is NaN.
struct MaxOfNumbers {
  template <class V>
  DVM_INLINE static V begin(V x) {
    return x;
  }
  template <class V>
  DVM_INLINE static V step(V sum, V x, V) {
    return greater_lanes(x, sum);
  }
};
struct Max {
  using OfNumbers = MaxOfNumbers;
  static constexpr bool kWeighted = false;
  template <class T>
  static constexpr T kFirst = -__builtin_inf();
  template <class V>
  DVM_INLINE static V begin(V x) {
    return x;
  }
  template <class V>
  DVM_INLINE static V step(V sum, V x, V) {
    return x != x ? x : greater_lanes(x, sum);  // a sum that is NaN stays
  }
};
struct Sum {
  using OfNumbers = Sum;
  static constexpr bool kWeighted = false;
  template <class T>
  static constexpr T kFirst = 0;
  template <class V>
  DVM_INLINE static V begin(V x) {
    return V{} + x;  // a zero is 0, whatever its sign
  }
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

// The channels from `c` on of some windows, so many vectors at a time, then half as many.
template <class Op, class T, int Windows, int Vectors>
DVM_INLINE void reduce_channels(const Run<T>& run, int64_t channels, int64_t c) {
  constexpr int64_t kChannels = Vectors * kLanes<T>;
  for (; c + kChannels <= channels; c += kChannels) reduce_block<Op, T, Windows, Vectors>(run, c);
  if constexpr (Vectors > 1)
    reduce_channels<Op, T, Windows, Vectors / 2>(run, channels, c);
  else if (c < channels)
    reduce_block<Op, T, Windows, 1, true>(run, c, channels - c);
}

// All channels of some windows, many or one.
template <class Op, class T, int Windows>
void reduce_windows(const Run<T>& run, int64_t channels) {
  reduce_channels<Op, T, Windows, kBlock / Windows>(run, channels, 0);
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

// Windows [begin, end) of every output row have all their columns inside the image.
struct InnerWindows {
  int64_t begin, end;

  DVM_INLINE explicit InnerWindows(const Window& w) : begin(ceil_div(w.pad_left, w.stride_width)) {
    const int64_t wide = int64_t{w.kernel_width - 1} * w.dilation_width;
    const int64_t last = w.width - 1 - wide + w.pad_left;
    end = last < 0 ? 0 : last / w.stride_width + 1;
  }
};

// The windows [first_x, first_x + count) of one output row: those at the borders one by one.
template <class Op, class T>
void reduce_row(const Window& w, const InnerWindows& inside, const T* image, const T* weights,
                T* out, int64_t out_step, int64_t y, int64_t first_x, int64_t count,
                int64_t channels) {
  const int64_t row_step = int64_t{w.width} * w.pixel;
  const int64_t top = y * w.stride_height - w.pad_top;
  const Taps rows = taps_inside(top, w.dilation_height, w.height, w.kernel_height);
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
    const bool inner = x >= inside.begin && x < inside.end;
    const int64_t windows = inner ? lesser(inside.end, end) - x : 1;
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

// How the channels of neighbouring windows lie side by side in a vector, and in what it reads: a
// vector of memory or, where windows are further apart, two.
template <class T>
struct Packing {
  using V = Full<T>;
  using Numbers = IntegerVec<V>;
  static constexpr int64_t L = kLanes<T>;

  int64_t channels, windows, step;  // windows of a vector, and elements between two vectors' reads
  bool whole;                       // one vector of memory is read
  Numbers place, channel, column;   // by lane: in what is read, of a pixel, of its window's taps

  // Of rows of at most so many windows: a single one shares its vectors with none.
  Packing(const Window& w, int64_t count, int64_t most)
      : channels(count), windows(lesser(L / count, most)) {
    if (windows < 2) return;
    const int64_t between = int64_t{w.stride_width} * w.pixel;
    whole = between == channels;
    if (!whole) windows = lesser(windows, (2 * L - channels) / between + 1);
    step = windows * between;
    if (windows < 2) return;
    for (int64_t lane = 0; lane < L; lane++) {
      const int64_t window = lesser(lane / channels, windows - 1);
      channel[lane] = static_cast<Element<Numbers>>(lane % channels);
      place[lane] = static_cast<Element<Numbers>>(window * between + lane % channels);
      column[lane] = static_cast<Element<Numbers>>(window * w.stride_width);
    }
  }

  DVM_INLINE V weights(const T* of_tap) const {
    if (channels == 1) return splat<V>(*of_tap);
    return shuffled(load_partial<V>(of_tap, channels), channel);
  }
};

// Neighbouring windows of an output row, whose channels are neighbours in memory.
template <class T>
struct PackedRow {
  T* out;
  const T* image;
  int64_t elements;  // of the image
  int64_t at;        // of the first window's first tap in a row inside the image; may lie outside
  int64_t tap_rows, tap_columns, tap_row_step, tap_column_step;
  const T* weights;  // of the first tap of a row inside
  int64_t weight_row_step, weight_column_step;
  int64_t column, width, stride, dilation;  // the column that `at` lies in, and those of the image

  // Whether vectors of windows have all their columns, and what they read beside, inside the image.
  template <bool Whole>
  DVM_INLINE bool inside(const Packing<T>& packing, int64_t vectors) const {
    constexpr int64_t kRead = (Whole ? 1 : 2) * kLanes<T>;
    const int64_t last = column + (vectors * packing.windows - 1) * stride;
    const int64_t end = at + (tap_rows - 1) * tap_row_step + (tap_columns - 1) * tap_column_step +
                        (vectors - 1) * packing.step + kRead;
    return column >= 0 && last + (tap_columns - 1) * dilation < width && end <= elements;
  }
  // Inside: all of it is memory of the image. Other lanes have any value.
  template <bool Inside>
  DVM_INLINE Full<T> vector(int64_t from) const {
    constexpr int64_t L = kLanes<T>;
    if (Inside || (from >= 0 && from + L <= elements)) return load<Full<T>>(image + from);
    Full<T> some{};
    for (int64_t lane = 0; lane < L; lane++)
      if (from + lane >= 0 && from + lane < elements) some[lane] = image[from + lane];
    return some;
  }
  template <bool Whole, bool Inside>
  DVM_INLINE Full<T> read(const Packing<T>& packing, int64_t from) const {
    const Full<T> first = vector<Inside>(from);
    if constexpr (Whole) return first;
    return shuffled(first, vector<Inside>(from + kLanes<T>), packing.place);
  }
  DVM_INLINE void advance(const Packing<T>& packing, int64_t windows) {
    out += windows * packing.channels;
    at += windows * packing.step / packing.windows;
    column += windows * stride;
  }
};

// Some vectors of windows; of the last one, the first `results`. Inside: as of the row.
template <class Op, class T, int Vectors, bool Whole, bool Inside>
DVM_INLINE void reduce_packed(const PackedRow<T>& row, const Packing<T>& packing, int64_t results) {
  using V = Full<T>;
  using Numbers = IntegerVec<V>;
  using Number = Element<Numbers>;
  const auto width = splat<Numbers>(static_cast<Number>(row.width));
  V sum[Vectors];
#pragma GCC unroll 16
  for (int v = 0; v < Vectors; v++) sum[v] = splat<V>(Op::template kFirst<T>);
  for (int64_t y = 0; y < row.tap_rows; y++) {
    int64_t tap = row.at + y * row.tap_row_step;
    const T* weight = row.weights + y * row.weight_row_step;
    Numbers column = packing.column + splat<Numbers>(static_cast<Number>(row.column));
    for (int64_t x = 0; x < row.tap_columns; x++) {
      V w{};
      if constexpr (Op::kWeighted) w = packing.weights(weight);
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; v++) {
        const V read = row.template read<Whole, Inside>(packing, tap + v * packing.step);
        const V next = Op::step(sum[v], read, w);
        if constexpr (Inside) {
          sum[v] = next;
        } else {
          const auto behind = static_cast<Number>(v * packing.windows * row.stride);
          const Numbers at = column + splat<Numbers>(behind);
          sum[v] = (at >= 0) & (at < width) ? next : sum[v];
        }
      }
      tap += row.tap_column_step;
      column += splat<Numbers>(static_cast<Number>(row.dilation));
      if constexpr (Op::kWeighted) weight += row.weight_column_step;
    }
  }
  const int64_t of_vector = packing.windows * packing.channels;
#pragma GCC unroll 16
  for (int v = 0; v + 1 < Vectors; v++) {
    T* const to = row.out + v * of_vector;
    if (2 * of_vector >= kLanes<T>)  // what is too much is the next one's
      store(to, sum[v]);
    else
      store_partial(to, sum[v], of_vector);
  }
  store_partial(row.out + (Vectors - 1) * of_vector, sum[Vectors - 1], results);
}

template <class Op, class T, bool Whole>
void reduce_packed_row(PackedRow<T> row, const Packing<T>& packing, int64_t windows) {
  // False: not all of so many vectors of windows are inside. At the borders it is one at a time.
  const auto take = [&]<int Vectors>(std::integral_constant<int, Vectors>) DVM_LAMBDA_INLINE {
    const int64_t count = Vectors * packing.windows;
    if (windows < count || !row.template inside<Whole>(packing, Vectors)) return false;
    const int64_t results = packing.windows * packing.channels;
    reduce_packed<Op, T, Vectors, Whole, true>(row, packing, results);
    row.advance(packing, count);
    windows -= count;
    return true;
  };
  while (windows > 0) {
    if (take(std::integral_constant<int, kBlock>{})) continue;
    if (take(std::integral_constant<int, kBlock / 2>{})) continue;
    if (take(std::integral_constant<int, kBlock / 4>{})) continue;
    if (take(std::integral_constant<int, 1>{})) continue;
    const int64_t count = lesser(windows, packing.windows);
    reduce_packed<Op, T, 1, Whole, false>(row, packing, count * packing.channels);
    row.advance(packing, count);
    windows -= count;
  }
}

// The windows [first_x, first_x + count) of one output row, packed.
template <class Op, class T>
void reduce_packed(const Window& w, const Packing<T>& packing, const T* image, const T* weights,
                   T* out, int64_t y, int64_t first_x, int64_t count) {
  const int64_t row_step = int64_t{w.width} * w.pixel;
  const int64_t top = y * w.stride_height - w.pad_top;
  const Taps rows = taps_inside(top, w.dilation_height, w.height, w.kernel_height);
  PackedRow<T> row;
  row.out = out;
  row.image = image;
  row.elements = w.height * row_step - w.pixel + packing.channels;
  row.column = first_x * w.stride_width - w.pad_left;
  row.at = (top + rows.begin * w.dilation_height) * row_step + row.column * w.pixel;
  row.tap_rows = rows.count();
  row.tap_columns = w.kernel_width;
  row.tap_row_step = w.dilation_height * row_step;
  row.tap_column_step = int64_t{w.dilation_width} * w.pixel;
  row.weight_column_step = w.weights;
  row.weight_row_step = int64_t{w.kernel_width} * w.weights;
  row.weights = Op::kWeighted ? weights + rows.begin * row.weight_row_step : nullptr;
  row.width = w.width;
  row.stride = w.stride_width;
  row.dilation = w.dilation_width;
  if (packing.whole)
    reduce_packed_row<Op, T, true>(row, packing, count);
  else
    reduce_packed_row<Op, T, false>(row, packing, count);
}

// A series of windows: output row by output row.
template <class Op, class T>
DVM_INLINE void reduce_series(const Window& w, const T* images, const T* weights, T* out,
                              int64_t out_step, int64_t number, int64_t count, int64_t channels) {
  if constexpr (!Op::kWeighted)
    if (w.pixel == 1 && out_step == 1 && PlanePool<Op, T>::fits(w))
      return PlanePool<Op, T>(w, images).reduce(out, number, count);
  const int64_t image_step = int64_t{w.height} * w.width * w.pixel;
  const Packing<T> packing(w, channels, lesser<int64_t>(w.out_width, count));
  const bool packed = packing.windows > 1 && out_step == channels;
  const InnerWindows inside(w);
  Position at(w, number);
  while (count > 0) {
    const int64_t windows = lesser(w.out_width - at.x, count);
    const T* const image = images + at.image * image_step;
    if (packed)
      reduce_packed<Op>(w, packing, image, weights, out, at.y, at.x, windows);
    else
      reduce_row<Op>(w, inside, image, weights, out, out_step, at.y, at.x, windows, channels);
    out += windows * out_step;
    count -= windows;
    at.x += windows - 1;
    at.advance(w);
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
