// The loops of instructions that reduce windows, whichever of them are windows and results.
//
// What a series of windows in order is reduced by is a callable:
//   series(window, operands at the first one, out, elements between the results of two windows,
//          windows, results)
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/windows.h"

namespace dvm::DVM_LEVEL {
namespace {

// Where the operands of an instruction lie.
template <class R, class X = R, class W = X>
struct Operands {
  using Result = R;

  Tile<R> to;
  Tile<const X> images;
  Tile<const W> weights;
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
  // The inner loop is results of a window.
  DVM_INLINE bool by_results(bool weighted) const {
    return numbers.inner == 0 && to.inner == 1 && weights.inner == weighted;
  }
  // What is read does not change with the middle loop, or the inner one, but for the windows.
  DVM_INLINE bool same_along_middle() const { return images.middle == 0 && weights.middle == 0; }
  DVM_INLINE bool same_along_inner() const { return images.inner == 0 && weights.inner == 0; }

  // The outer loop becomes the middle one.
  DVM_INLINE Operands turned() const {
    Operands turned = *this;
    const auto turn = [](auto& tile) { tile.middle = tile.outer; };
    turn(turned.to), turn(turned.images), turn(turned.weights), turn(turned.numbers);
    return turned;
  }
};

// Point by point.
template <class Series, class X>
void reduce_scattered(const Window& w, const Series& series, const X& x, const Extents& e) {
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      for (int64_t i = 0; i < e.inner; i++) {
        const X at = x.at(o, m, i);
        series(w, at, at.to.at, 0, 1, 1);
      }
    }
  }
}

// The inner loop is results of a window.
template <class Series, class X>
void reduce_rows(const Window& w, const Series& series, const X& x, const Extents& e) {
  const bool in_order = x.numbers.middle == 1 && x.same_along_middle();
  const int64_t step = in_order ? e.middle : 1;
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m += step) {
      const X at = x.at(o, m, 0);
      series(w, at, at.to.at, x.to.middle, step, e.inner);
    }
  }
}

// The inner loop is windows in order, of one result each.
template <class Series, class X>
void reduce_single(const Window& w, const Series& series, const X& x, const Extents& e) {
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      const X at = x.at(o, m, 0);
      series(w, at, at.to.at, x.to.inner, e.inner, 1);
    }
  }
}

// Results are the middle loop and neighbours, windows the inner one and in order: vectors of
// results are reduced for a few windows, and turned around.
template <class Series, class X>
void reduce_across(const Window& w, const Series& series, const X& x, int64_t results,
                   int64_t windows) {
  using R = typename X::Result;
  constexpr int64_t L = kLanes<R>, kWindows = 64;
  alignas(kLineBytes) R block[kWindows * L];
  for (int64_t first = 0; first < windows; first += kWindows) {
    const int64_t count = lesser(windows - first, kWindows);
    for (int64_t c = 0; c < results; c += L) {
      const int64_t lanes = lesser(results - c, L);
      const X at = x.at(0, c, first);
      series(w, at, block, lanes, count, lanes);
      for (int64_t lane = 0; lane < lanes; lane++) {
        R* const row = at.to.at + lane * x.to.middle;
        for (int64_t i = 0; i < count; i++) row[i * x.to.inner] = block[i * lanes + lane];
      }
    }
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
