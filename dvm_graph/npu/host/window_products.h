// Convolutions: C[m,n] = addend + A[m,k] * B[k,n], ended, where rows of A are windows over images
// and are read where they lie.
//
//   C[window, n] = addend + sum over taps inside the image, channels of image[tap, channel] *
//   B[tap, channel, n]
//
// The elements of a window are a few runs of k: of each of its rows one, where taps are neighbours
// in memory, else one of each tap. Windows whose rows, and columns, inside the image are the same
// make up a rectangle, whose runs lie alike: blocks of C (blocks.h) go along its rows or its
// columns, whichever are fewer, and keep their sums in registers while all runs pass. So nothing is
// packed, and no pad is multiplied. For each panel of B all windows are done before the next one; a
// B whose columns are contiguous passes as dot products. Compiled per level: see simd.h.
#pragma once

#include "npu/host/dots.h"
#include "npu/host/products.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

template <class T>
struct InRuns : Ended<T> {
  static constexpr bool kRuns = true;
};

// Some windows by all columns, which are contiguous, as dot products.
template <class T, int Rows>
[[gnu::noinline]] void multiply_columns(const Product<InRuns<T>>& x, int64_t columns) {
  Product<InRuns<T>> block = x;
  const auto take = [&]<int Columns>(std::integral_constant<int, Columns>) DVM_LAMBDA_INLINE {
    multiply_dots<InRuns<T>, Rows, Columns>(block);
    block.b += Columns * x.b_column;
    block.next_columns(Columns);
    columns -= Columns;
  };
  while (columns >= kDots) take(std::integral_constant<int, kDots>{});
  if (columns == 3) take(std::integral_constant<int, 3>{});
  if (columns == 2) take(std::integral_constant<int, 2>{});
  if (columns == 1) take(std::integral_constant<int, 1>{});
}

// Block functions by their number of rows.
template <class T>
struct ByColumns {
  static constexpr int kMost = kDots;
  template <int... Rows>
  static constexpr Block<InRuns<T>> block(int64_t rows, std::integer_sequence<int, Rows...>) {
    constexpr Block<InRuns<T>> kBlocks[] = {&multiply_columns<T, Rows + 1>...};
    return kBlocks[rows - 1];
  }
  static constexpr Block<InRuns<T>> block(int64_t rows) {
    return block(rows, std::make_integer_sequence<int, kMost>{});
  }
};
template <class T, int Vectors, bool Ragged>
struct ByPanel {
  static constexpr int kMost = kMaxRows;
  static constexpr Block<InRuns<T>> block(int64_t rows) {
    return block_of<InRuns<T>, Vectors, Ragged>(rows);
  }
};

template <class T>
class Convolution {
 public:
  Convolution(const Product<InRuns<T>>& x, const T* images, const Window& window, int64_t first,
              int64_t count)
      : x_(x),
        w_(window),
        slices_(along_slices(window)),
        rows_(along_rows(window)),
        columns_(along_columns(window)),
        images_(images),
        c_(x.c),
        from_(x.from),
        first_(first),
        count_(count),
        image_row_(int64_t{window.width} * window.pixel),
        neighbours_(window.dilation_width == 1 && window.pixel == window.channels) {
    Runs& runs = x_.runs;
    runs.a_column = int64_t{window.dilation_width} * window.pixel;
    runs.a_row = window.dilation_height * image_row_;
    runs.a_slice = int64_t{window.dilation_depth} * window.height * image_row_;
    runs.k_column = window.channels;
    runs.k_row = window.kernel_width * runs.k_column;
    runs.k_slice = window.kernel_height * runs.k_row;
  }

  void multiply(int64_t columns) {
    if (x_.b_step == 1) return multiply_all<ByColumns<T>>(columns);
    constexpr int64_t kNR = Product<InRuns<T>>::kColumns, L = kLanes<T>;
    const int64_t blocks = ceil_div(count_, kMaxRows);
    x_.ahead.rows = 1;
    x_.ahead.stride = x_.ahead.row_bytes =
        ceil_div(kAheadSteps * x_.kStepBytes, blocks * kLineBytes) * kLineBytes;
    for (; columns >= kNR; columns -= kNR) {
      multiply_all<ByPanel<T, kPanelVectors, false>>(0);
      x_.b += x_.b_panel;
      c_ += kNR;
      from_ += kNR;
    }
    x_.ahead.rows = 0;
    if (columns > L) {
      multiply_all<ByPanel<T, 2, true>>(columns - L);
    } else if (columns > 0) {
      multiply_all<ByPanel<T, 1, true>>(columns);
    }
  }

 private:
  // Rows and columns of windows whose taps [begin, end) along each axis are inside the image.
  struct Rectangle {
    Position at;
    int64_t rows, columns;
    Taps along_z, along_y, along_x;
  };

  // All windows by a panel of B; `columns` is what block functions are told of.
  template <class Blocks>
  void multiply_all(int64_t columns) {
    x_.ahead.at = reinterpret_cast<const char*>(x_.b + x_.b_panel);
    Position at(w_, first_);
    for (int64_t done = 0; done < count_;) {
      const int64_t windows = lesser(w_.out_width - at.x, count_ - done);
      Rectangle band{at, 1, windows, slices_.inside(at.z), rows_.inside(at.y), {}};
      if (windows == w_.out_width) {
        const int64_t end = lesser<int64_t>(rows_.next_other(band.along_y), w_.out_height);
        band.rows = greater<int64_t>(lesser(end - at.y, (count_ - done) / windows), 1);
      }
      multiply_band<Blocks>(band, done, columns);
      done += band.rows * windows;
      at = Position(w_, first_ + done);
    }
  }

  // `done`: windows before it.
  template <class Blocks>
  void multiply_band(const Rectangle& band, int64_t done, int64_t columns) {
    const int64_t end = band.at.x + band.columns;
    for (Rectangle part = band; part.at.x < end; part.at.x += part.columns) {
      part.along_x = columns_.inside(part.at.x);
      part.columns = lesser(columns_.next_other(part.along_x), end) - part.at.x;
      multiply_rectangle<Blocks>(part, done + part.at.x - band.at.x, columns);
    }
  }

  template <class Blocks>
  void multiply_rectangle(const Rectangle& part, int64_t done, int64_t columns) {
    Runs& runs = x_.runs;
    const int64_t taps = part.along_x.count();
    runs.slices = part.along_z.count();
    runs.rows = part.along_y.count();
    runs.columns = neighbours_ ? lesser<int64_t>(taps, 1) : taps;
    x_.k = (neighbours_ ? taps : 1) * w_.channels;
    const T* a = images_;
    const T* const b = x_.b;
    if (runs.count() > 0) {
      const int64_t image = part.at.image * w_.depth * w_.height;
      const int64_t z = slices_.place(part.at.z, part.along_z.begin);
      const int64_t y = rows_.place(part.at.y, part.along_y.begin);
      a += (image + z * w_.height + y) * image_row_ +
           columns_.place(part.at.x, part.along_x.begin) * w_.pixel;
      x_.b += (part.along_z.begin * runs.k_slice + part.along_y.begin * runs.k_row +
               part.along_x.begin * runs.k_column) *
              x_.b_step;
    }
    const Line across{int64_t{w_.stride_width} * w_.pixel, 1, part.columns};
    const Line down{w_.stride_height * image_row_, w_.out_width, part.rows};
    const int64_t blocks_across = ceil_div(across.count, rows_of<Blocks>(across));
    const int64_t blocks_down = ceil_div(down.count, rows_of<Blocks>(down));
    if (across.count * blocks_down < down.count * blocks_across)
      multiply_lines<Blocks>(a, done, down, across, columns);
    else
      multiply_lines<Blocks>(a, done, across, down, columns);
    x_.b = b;
  }

  // Windows in a row or a column: elements of images, and windows, from one to the next.
  struct Line {
    int64_t step, windows, count;
  };

  // Of a block, so that lines of A find room in their sets of L1.
  template <class Blocks>
  static int64_t rows_of(const Line& line) {
    const int64_t bytes = line.step * static_cast<int64_t>(sizeof(T));
    return bytes % (kWayBytes / 2) == 0 ? lesser(kSetRows / 2, Blocks::kMost) : Blocks::kMost;
  }

  template <class Blocks>
  void multiply_lines(const T* a, int64_t done, const Line& along, const Line& over,
                      int64_t columns) {
    const EvenRows blocks(along.count, rows_of<Blocks>(along));
    const Block<InRuns<T>> whole = Blocks::block(blocks.step), last = Blocks::block(blocks.last);
    const int64_t c_row = x_.c_row, from_row = x_.from_row;
    const int64_t bursts = x_.runs.count() * ceil_div(x_.k, kAheadSteps);
    x_.a_row = along.step;
    x_.c_row = along.windows * c_row;
    x_.from_row = along.windows * from_row;
    for (int64_t line = 0; line < over.count; line++) {
      const int64_t window = done + line * over.windows;
      x_.a = a + line * over.step;
      x_.c = c_ + window * c_row;
      x_.from = from_ + window * from_row;
      for (int64_t m = 0; m < along.count; m += blocks.step) {
        (m + blocks.step <= along.count ? whole : last)(x_, columns);
        x_.a += blocks.step * x_.a_row;
        x_.c += blocks.step * x_.c_row;
        x_.from += blocks.step * x_.from_row;
        x_.ahead.at += bursts * x_.ahead.stride;
      }
    }
    x_.c_row = c_row;
    x_.from_row = from_row;
  }

  Product<InRuns<T>> x_;
  const Window w_;
  const Along slices_, rows_, columns_;
  const T* const images_;
  T* c_;  // of the panel at hand, in the first window
  const T* from_;
  const int64_t first_, count_, image_row_;
  const bool neighbours_;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
