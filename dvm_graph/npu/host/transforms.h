// Polynomials at the points of kernels/transforms.h: of pixels, of weights, and back. Compiled per
// level: see simd.h.
#pragma once

#include "kernels/transforms.h"
#include "npu/host/simd.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kPoints = kTransformPoints, kResults = kTransformResults;
constexpr float kNear = kTransformAt[1], kFar = kTransformAt[3];
static_assert(kTransformAt[0] == 0 && kTransformAt[2] == -kNear && kTransformAt[4] == -kFar);

// What a polynomial of these six coefficients is at the points; from pixels to factors.
template <class V>
DVM_INLINE void transform_pixels(const V (&d)[kPoints], V (&out)[kPoints]) {
  constexpr float kNear2 = kNear * kNear, kFar2 = kFar * kFar;
  const V even = d[4] - splat<V>(kFar2) * d[2], odd = d[3] - splat<V>(kFar2) * d[1];
  const V even_far = d[4] - splat<V>(kNear2) * d[2], odd_far = d[3] - splat<V>(kNear2) * d[1];
  const V sum = splat<V>(kNear2 + kFar2), product = splat<V>(kNear2 * kFar2);
  out[0] = product * d[0] + (d[4] - sum * d[2]);
  out[1] = even + splat<V>(kNear) * odd;
  out[2] = even - splat<V>(kNear) * odd;
  out[3] = even_far + splat<V>(kFar) * odd_far;
  out[4] = even_far - splat<V>(kFar) * odd_far;
  out[5] = product * d[1] + (d[5] - sum * d[3]);
}

// From values at the points to four results.
template <class V>
DVM_INLINE void transform_sums(const V (&m)[kPoints], V (&out)[kResults]) {
  const V near = m[1] + m[2], near_odd = m[1] - m[2], far = m[3] + m[4], far_odd = m[3] - m[4];
  out[0] = m[0] + near + far;
  out[1] = splat<V>(kNear) * near_odd + splat<V>(kFar) * far_odd;
  out[2] = splat<V>(kNear * kNear) * near + splat<V>(kFar * kFar) * far;
  out[3] =
      splat<V>(kNear * kNear * kNear) * near_odd + splat<V>(kFar * kFar * kFar) * far_odd + m[5];
}

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

}  // namespace
}  // namespace dvm::DVM_LEVEL
