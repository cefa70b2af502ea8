// Convolutions by 3 x 3 taps in fewer multiplications (npu/host/transformed_windows.h): their
// packed weights hold, behind the rows of the taps themselves, those of the transforms, as many for
// each channel as there are points.
#pragma once

#include <cstdint>

#include "kernels/window.h"

namespace dvm {

inline constexpr int kTransformTaps = 3;     // along each axis
inline constexpr int kTransformResults = 4;  // that are computed at a time
inline constexpr int kTransformPoints = kTransformTaps + kTransformResults - 1;

// Where polynomials are multiplied; the last point is at infinity. Beside these numbers rounding
// errors are about twice those of sums of products.
inline constexpr double kTransformAt[kTransformPoints - 1] = {0, 0.75, -0.75, 1.5, -1.5};

// Rows of panels over those of the taps: taps and transforms.
inline constexpr int64_t kTransformedRows =
    1 + kTransformPoints * kTransformPoints / (kTransformTaps * kTransformTaps);
static_assert(kTransformPoints * kTransformPoints % (kTransformTaps * kTransformTaps) == 0);

// Of squares along an axis, whose results are `apart`: a band of as many squares, one of each
// phase, follows another.
inline constexpr int64_t transform_squares(int64_t results, int64_t apart) {
  const int64_t band = apart * kTransformResults;
  return results / band * apart + (results % band < apart ? results % band : apart);
}

inline bool has_transform(const Window& w) {
  return w.kernel_height == kTransformTaps && w.kernel_width == kTransformTaps &&
         w.stride_height == 1 && w.stride_width == 1;
}

}  // namespace dvm
