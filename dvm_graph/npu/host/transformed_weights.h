// Panels of weights of 3 x 3 taps, transformed as transformed_windows.h multiplies them. Compiled
// per level: see simd.h.
#pragma once

#include <limits>

#include "npu/host/lanes.h"
#include "npu/host/transforms.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr float kMostWeight = 0x1p20f;

// A panel whose rows of taps [slices, taps, channels, NR] are there: those of points [points,
// slices, channels, NR] go behind them.
class TransformedPanel {
 public:
  using V = Full<float>;
  static constexpr int64_t L = kLanesOf<V>, NR = 2 * L;
  static constexpr int64_t kTaps = kTransformTaps * kTransformTaps;

  TransformedPanel(float* panel, int64_t slices, int64_t channels)
      : panel_(panel),
        points_(panel + kTaps * slices * channels * NR),
        slices_(slices),
        channels_(channels) {}

  // Marks by NaN in their place that some weight is so large that sums of products could leave the
  // range of f32, or no number.
  void transform() {
    V squared[2]{};
    for (int64_t slice = 0; slice < slices_; slice++) {
      for (int64_t c = 0; c < channels_; c++) {
        fetch(slice * channels_ + c + kAhead);
        const float* const taps = panel_ + (kTaps * slice * channels_ + c) * NR;
        float* const points = points_ + (slice * channels_ + c) * NR;
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) transform(taps + v * L, points + v * L, squared[v]);
      }
    }
    const auto below = squared[0] + squared[1] < splat<V>(kMostWeight * kMostWeight);
    bool fits = true;
    for (int64_t l = 0; l < L; l++) fits &= below[l] != 0;
    if (!fits) *points_ = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  // Rows of points that are fetched before they are stored: hardware does not follow so many.
  static constexpr int64_t kAhead = 2;

  int64_t point_step() const { return slices_ * channels_ * NR; }

  void fetch(int64_t row) const {
    if (row >= slices_ * channels_) return;
    for (int64_t point = 0; point < kPoints * kPoints; point++) {
      for (int64_t v = 0; v < NR; v += L)
        __builtin_prefetch(points_ + point * point_step() + row * NR + v, 1);
    }
  }

  void transform(const float* taps_at, float* points, V& squared) const {
    V along[kTransformTaps][kPoints];
#pragma GCC unroll 3
    for (int i = 0; i < kTransformTaps; i++) {
      V taps[kTransformTaps];
#pragma GCC unroll 3
      for (int j = 0; j < kTransformTaps; j++) {
        taps[j] = load<V>(taps_at + (i * kTransformTaps + j) * channels_ * NR);
        squared += taps[j] * taps[j];
      }
      transform_taps(taps, along[i]);
    }
#pragma GCC unroll 6
    for (int j = 0; j < kPoints; j++) {
      V column[kTransformTaps], out[kPoints];
#pragma GCC unroll 3
      for (int i = 0; i < kTransformTaps; i++) column[i] = along[i][j];
      transform_taps(column, out);
#pragma GCC unroll 6
      for (int i = 0; i < kPoints; i++) store(points + (i * kPoints + j) * point_step(), out[i]);
    }
  }

  float *const panel_, *const points_;
  const int64_t slices_, channels_;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
