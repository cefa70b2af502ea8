// Panels of weights of 3 x 3 taps, transformed as transformed_windows.h multiplies them. Compiled
// per level: see simd.h.
#pragma once

#include <limits>

#include "npu/host/lanes.h"
#include "npu/host/transforms.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr float kMostWeight = 0x1p20f;

// A panel whose rows of taps [taps, channels, NR] are there: those of all points go behind them.
class TransformedPanel {
 public:
  using V = Full<float>;
  static constexpr int64_t L = kLanesOf<V>, NR = 2 * L;
  static constexpr int64_t kTaps = kTransformTaps * kTransformTaps;

  TransformedPanel(float* panel, int64_t channels) : panel_(panel), channels_(channels) {}

  // Marks by NaN in their place that some weight is so large that sums of products could leave the
  // range of f32, or no number.
  void transform() {
    V squared[2]{};
    for (int64_t c = 0; c < channels_; c++) {
      fetch(c + kAhead);
#pragma GCC unroll 2
      for (int v = 0; v < 2; v++) transform(c * NR + v * L, squared[v]);
    }
    const auto below = squared[0] + squared[1] < splat<V>(kMostWeight * kMostWeight);
    bool fits = true;
    for (int64_t l = 0; l < L; l++) fits &= below[l] != 0;
    if (!fits) *row(kTaps) = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  // Channels for which rows are fetched before they are stored: hardware does not follow so many.
  static constexpr int64_t kAhead = 2;
  static constexpr int64_t kRows = kTaps * kTransformedRows;  // of a channel

  float* row(int64_t number) const { return panel_ + number * channels_ * NR; }

  void fetch(int64_t channel) const {
    if (channel >= channels_) return;
    for (int64_t point = kTaps; point < kRows; point++) {
      for (int64_t v = 0; v < NR; v += L) __builtin_prefetch(row(point) + channel * NR + v, 1);
    }
  }

  void transform(int64_t at, V& squared) {
    V along[kTransformTaps][kPoints];
#pragma GCC unroll 3
    for (int i = 0; i < kTransformTaps; i++) {
      V taps[kTransformTaps];
#pragma GCC unroll 3
      for (int j = 0; j < kTransformTaps; j++) {
        taps[j] = load<V>(row(i * kTransformTaps + j) + at);
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
      for (int i = 0; i < kPoints; i++) store(row(kTaps + i * kPoints + j) + at, out[i]);
    }
  }

  float* const panel_;
  const int64_t channels_;
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
