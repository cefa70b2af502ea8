// Weights of 3 x 3 taps, transformed as transformed_windows.h multiplies them: what
// kernels/transforms.py does to constants, for weights that are given at run time. Compiled per
// level: see simd.h.
#pragma once

#include <limits>

#include "kernels/transforms.h"
#include "npu/host/storage.h"
#include "npu/host/transformed_windows.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr float kMostWeight = 0x1p20f;

// What the polynomial of three taps is at the points, over the product of the distances from each
// to the others; from taps to factors.
template <class V>
DVM_INLINE void transform_taps(const V (&g)[kTransformTaps], V (&out)[kPoints]) {
  constexpr float kNear2 = kNear * kNear, kFar2 = kFar * kFar;
  constexpr float kAtNear = 1 / (2 * kNear2 * (kNear2 - kFar2));
  constexpr float kAtFar = 1 / (2 * kFar2 * (kFar2 - kNear2));
  const V near = splat<V>(kAtNear) * (g[0] + splat<V>(kNear2) * g[2]);
  const V far = splat<V>(kAtFar) * (g[0] + splat<V>(kFar2) * g[2]);
  const V near_odd = splat<V>(kAtNear * kNear) * g[1], far_odd = splat<V>(kAtFar * kFar) * g[1];
  out[0] = splat<V>(1 / (kNear2 * kFar2)) * g[0];
  out[1] = near + near_odd;
  out[2] = near - near_odd;
  out[3] = far + far_odd;
  out[4] = far - far_odd;
  out[5] = g[2];
}

// A panel of weights [taps, channels, columns], and the transforms of them behind it.
class TransformedPanel {
 public:
  using V = Full<float>;
  static constexpr int64_t L = kLanesOf<V>, NR = 2 * L;

  TransformedPanel(float* to, int64_t channels) : to_(to), channels_(channels) {}

  // False: some weight is so large that sums of products could leave the range of f32, or no
  // number.
  bool pack(const float* from, int64_t row, int64_t columns) {
    V squared[2]{};
    for (int64_t c = 0; c < channels_; c++) {
      fetch(c + kAhead);
#pragma GCC unroll 2
      for (int v = 0; v < 2; v++) {
        const int64_t lanes = lesser(greater<int64_t>(columns - v * L, 0), L);
        transform(from + c * row + v * L, channels_ * row, lanes, c * NR + v * L, squared[v]);
      }
    }
      const auto below = squared[0] + squared[1] < splat<V>(kMostWeight * kMostWeight);
    bool fits = true;
    for (int64_t l = 0; l < L; l++) fits &= below[l] != 0;
    return fits;
  }

 private:
  // Channels for which rows are fetched before they are stored: hardware does not follow so many.
  static constexpr int64_t kAhead = 2;

  void fetch(int64_t channel) const {
    if (channel >= channels_) return;
    for (int64_t row = 0; row < kRows; row++) {
      for (int64_t v = 0; v < NR; v += L)
        __builtin_prefetch(to_ + (row * channels_ + channel) * NR + v, 1);
    }
  }

  void transform(const float* from, int64_t tap, int64_t lanes, int64_t at, V& squared) {
    V along[kTransformTaps][kPoints];
#pragma GCC unroll 3
    for (int i = 0; i < kTransformTaps; i++) {
      V taps[kTransformTaps];
#pragma GCC unroll 3
      for (int j = 0; j < kTransformTaps; j++) {
        const int64_t k = int64_t{i} * kTransformTaps + j;
        taps[j] = load_partial<V>(from + k * tap, lanes);
        store(to_ + k * channels_ * NR + at, taps[j]);
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
      for (int i = 0; i < kPoints; i++)
        store(to_ + (kTaps + int64_t{i} * kPoints + j) * channels_ * NR + at, out[i]);
    }
  }

  static constexpr int64_t kTaps = kTransformTaps * kTransformTaps;
  static constexpr int64_t kRows = kTaps * kTransformedRows;  // of a channel

  float* const to_;
  const int64_t channels_;
};

void pack_b_transformed_handler(Core& core, const uint64_t* words) {
  constexpr int64_t NR = 2 * kLanes<float>, kTaps = kTransformTaps * kTransformTaps;
  const Extents e = extents_of(core, words);
  if (e.empty()) return;
  const Tile<float> to = tile_at<float>(core, operand_words(words, 0));
  const Tile<const float> from = tile_at<const float>(core, operand_words(words, 1));
  const int64_t channels = e.middle / kTaps;
  for (int64_t n = 0; n < e.inner; n += NR) {
    float* const panel = to.at + n / NR * to.outer;
    const float* const weights = from.at + n * from.inner;
    if (!TransformedPanel(panel, channels).pack(weights, from.middle, lesser(e.inner - n, NR)))
      panel[kTaps * channels * NR] = std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
