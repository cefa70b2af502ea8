// Patches of windows over images: the rows of a convolution's operand A, 0 where taps are outside.
//
// A patch is a few pieces of neighbouring elements: of each kernel row one, where its taps are
// neighbours in memory, else one of each tap. Patches are made of their pieces one by one; but
// where pieces are short and windows lie an element apart, an element of a patch is loaded for a
// vector of windows at once, and blocks of these are transposed. Compiled per level: see simd.h.
#pragma once

#include "npu/host/rows.h"
#include "npu/host/storage.h"
#include "npu/host/transpose.h"
#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

// How pieces are moved: any number of elements, so many whole vectors and what is left, or so few
// elements.
struct AnyPiece {
  template <class R, class S>
  DVM_INLINE static void copy(R* to, const S* from, int64_t length) {
    convert_row(to, from, length);
  }
};
template <int Vectors>
struct VectorPiece {
  template <class T>
  DVM_INLINE static void copy(T* to, const T* from, int64_t length) {
    using V = Full<T>;
    constexpr int64_t kWhole = Vectors * kLanes<T>;
    for (int64_t i = 0; i < kWhole; i += kLanes<T>) store(to + i, load<V>(from + i));
    store_partial(to + kWhole, load_partial<V>(from + kWhole, length - kWhole), length - kWhole);
  }
};
template <int Length>
struct FewElements {
  template <class T>
  DVM_INLINE static void copy(T* to, const T* from, int64_t) {
    __builtin_memcpy(to, from, Length * sizeof(T));
  }
};

// What the patches of an instruction have in common.
template <class R, class S>
class Patches {
 public:
  Patches(const S* at, const Window& window, int64_t count)
      : images_(at),
        w_(window),
        elements_(count),
        kernel_row_(int64_t{w_.kernel_width} * w_.channels),
        image_row_(int64_t{w_.width} * w_.pixel),
        slice_(w_.height * image_row_),
        neighbours_(w_.dilation_width == 1 && w_.pixel == w_.channels),
        pieces_(neighbours_ ? 1 : w_.kernel_width),
        length_(neighbours_ ? kernel_row_ : w_.channels),
        first_row_(w_.first / kernel_row_),
        whole_rows_(w_.first % kernel_row_ == 0 && count % kernel_row_ == 0) {}

  int64_t piece_length() const { return length_; }

  // Whether transposes move fewer vectors than there are pieces.
  bool by_transposes() const {
    constexpr int64_t L = kLanes<R>;
    if (w_.pixel != 1 || w_.stride_width != 1) return false;
    const int64_t windows = lesser<int64_t>(w_.out_width, L);
    return ceil_div(elements_, length_) * windows > ceil_div(elements_, L) * L;
  }

  template <class Piece>
  DVM_INLINE void pack(R* to, const Position& at) const {
    const Corner first = corner(at);
    if (whole_rows_ && inside(first.z, w_.kernel_depth, w_.dilation_depth, w_.depth) &&
        inside(first.y, w_.kernel_height, w_.dilation_height, w_.height) &&
        inside(first.x, w_.kernel_width, w_.dilation_width, w_.width)) {
      pack_inside<Piece>(
          to, first.image + first.z * slice_ + first.y * image_row_ + first.x * w_.pixel);
    } else {
      pack_at_border<Piece>(to, first);
    }
  }

  // Those of `count` windows in an output row, whose patches lie `to_row` apart.
  void pack_transposed(R* to, int64_t to_row, const Position& at, int64_t count) const {
    constexpr int64_t L = kLanes<R>;
    const Corner first = corner(at);
    for (int64_t e = 0; e < elements_; e += L) {
      const S* rows[L];  // of the image, for each element; none outside
      int64_t columns[L];
      const int64_t wanted = lesser(elements_ - e, L);
      for (int64_t i = 0; i < L; i++) {
        rows[i] = nullptr;
        if (i < wanted) columns[i] = find_element(first, w_.first + e + i, rows[i]);
      }
      for (int64_t m = 0; m < count; m += L) {
        Full<R> block[L];
#pragma GCC unroll 64
        for (int i = 0; i < L; i++)
          block[i] = rows[i] == nullptr ? Full<R>{} : along_row(rows[i], columns[i] + m);
        transpose_block(block);
        const int64_t windows = lesser(count - m, L);
        R* const out = to + m * to_row + e;
#pragma GCC unroll 64
        for (int i = 0; i < L; i++) {
          if (i >= windows) break;
          if (wanted == L)
            store(out + i * to_row, block[i]);
          else
            store_partial(out + i * to_row, block[i], wanted);
        }
      }
    }
  }

 private:
  // Where the first tap of a window lies.
  struct Corner {
    const S* image;
    int64_t z, y, x;
  };

  DVM_INLINE Corner corner(const Position& at) const {
    return {images_ + at.image * w_.depth * slice_, at.z * w_.stride_depth - w_.pad_front,
            at.y * w_.stride_height - w_.pad_top, at.x * w_.stride_width - w_.pad_left};
  }

  DVM_INLINE static bool inside(int64_t first, int64_t kernel, int64_t dilation, int64_t extent) {
    return first >= 0 && first + (kernel - 1) * dilation < extent;
  }

  // Of an image of one channel, the column of an element; its row, if that is inside.
  int64_t find_element(const Corner& first, int64_t element, const S*& row) const {
    const int64_t kernel_row = element / w_.kernel_width;
    const int64_t z = first.z + kernel_row / w_.kernel_height * w_.dilation_depth;
    const int64_t y = first.y + kernel_row % w_.kernel_height * w_.dilation_height;
    if (z >= 0 && z < w_.depth && y >= 0 && y < w_.height)
      row = first.image + z * slice_ + y * image_row_;
    return first.x + element % w_.kernel_width * w_.dilation_width;
  }

  // A vector of a row from a column on, 0 outside.
  DVM_INLINE Full<R> along_row(const S* row, int64_t x) const {
    constexpr int L = kLanes<R>;
    using In = Vec<LaneType<S>, L>;
    const auto* lanes = reinterpret_cast<const LaneType<S>*>(row);
    if (x >= 0 && x + L <= w_.width) return convert_lanes<R, S, L>(load<In>(lanes + x));
    if (x <= -L || x >= w_.width) return Full<R>{};
    if (x >= 0) return convert_lanes<R, S, L>(load_partial<In>(lanes + x, w_.width - x));
    R shifted[2 * L] = {};
    const int64_t count = lesser<int64_t>(x + L, w_.width);
    store(shifted - x, convert_lanes<R, S, L>(load_partial<In>(lanes, count)));
    return load<Full<R>>(shifted);
  }

  // All taps of the window, the first of which lies at `from`, are inside the image.
  template <class Piece>
  DVM_INLINE void pack_inside(R* to, const S* from) const {
    const int64_t step = int64_t{w_.dilation_width} * w_.pixel;
    const int64_t down = w_.dilation_height * image_row_;
    const int64_t behind =
        w_.dilation_depth * slice_ - w_.kernel_height * down;  // a slice's last row
    int64_t rows = w_.kernel_height;                           // to come, of the slice
    if (first_row_ > 0) {
      from += first_row_ / w_.kernel_height * w_.dilation_depth * slice_;
      from += first_row_ % w_.kernel_height * down;
      rows -= first_row_ % w_.kernel_height;
    }
    for (int64_t left = elements_; left > 0; left -= kernel_row_, from += down) {
      const S* piece = from;
      for (int64_t i = 0; i < pieces_; i++, piece += step, to += length_)
        Piece::copy(to, piece, length_);
      if (--rows > 0) continue;
      rows = w_.kernel_height;
      from += behind;
    }
  }

  // Zeros run on from what lies behind the image in a row to what lies before it in the next one.
  template <class Piece>
  void pack_at_border(R* to, const Corner& first) const {
    const Taps slices = taps_inside(first.z, w_.dilation_depth, w_.depth, w_.kernel_depth);
    const Taps rows = taps_inside(first.y, w_.dilation_height, w_.height, w_.kernel_height);
    const Taps columns = taps_inside(first.x, w_.dilation_width, w_.width, w_.kernel_width);
    const int64_t end = w_.first + elements_;
    int64_t at = w_.first;  // of the elements of the window
    const auto fill_until = [&](int64_t until) {
      if (until <= at) return;
      fill_row(to, until - at, R{});
      to += until - at;
      at = until;
    };
    for (int64_t z = greater(slices.begin, at / kernel_row_ / w_.kernel_height); z < slices.end;
         z++) {
      const int64_t above = z * w_.kernel_height;  // kernel rows
      for (int64_t y = greater(rows.begin, at / kernel_row_ - above); y < rows.end; y++) {
        const int64_t row = (above + y) * kernel_row_;
        fill_until(lesser(row + columns.begin * w_.channels, end));
        const int64_t until = lesser(row + columns.end * w_.channels, end);
        if (until <= at) {
          if (at == end) return;
          continue;
        }
        const S* const from = first.image + (first.z + z * w_.dilation_depth) * slice_ +
                              (first.y + y * w_.dilation_height) * image_row_ + first.x * w_.pixel;
        pack_part<Piece>(to, from, at - row, until - row);
        to += until - at;
        at = until;
      }
    }
    fill_until(end);
  }

  // Elements [begin, end) of a kernel row, which are inside; its first tap lies at `from`.
  template <class Piece>
  DVM_INLINE void pack_part(R* to, const S* from, int64_t begin, int64_t end) const {
    if (neighbours_) return convert_row(to, from + begin, end - begin);
    const int64_t step = int64_t{w_.dilation_width} * w_.pixel;
    from += begin / w_.channels * step;
    for (int64_t channel = begin % w_.channels; begin < end; channel = 0, from += step) {
      const int64_t count = lesser<int64_t>(w_.channels - channel, end - begin);
      if (count == length_)
        Piece::copy(to, from, count);
      else
        convert_row(to, from + channel, count);
      to += count;
      begin += count;
    }
  }

  const S* const images_;
  const Window& w_;
  const int64_t elements_;  // of each, from w.first on
  const int64_t kernel_row_, image_row_, slice_;
  const bool neighbours_;          // taps of a kernel row are
  const int64_t pieces_, length_;  // of a kernel row
  const int64_t first_row_;        // of the kernel
  const bool whole_rows_;          // elements are those of whole kernel rows
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
