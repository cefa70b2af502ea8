// A window that moves over channels-last images [images, height, width, pixel], where a pixel is
// `pixel` neighbouring elements. Windows are numbered row-major over (image, output row, output
// column). Tap (y, x) of a window lies at row out_y * stride_height - pad_top + y *
// dilation_height and at the column that follows likewise; a tap outside the image reads nothing.
#pragma once

#include <cstdint>

namespace dvm {

// The order of the fields is that of PlanNode::window and of the words of an instruction.
struct Window {
  int32_t images, height, width, pixel;
  int32_t channels;  // of a tap in a patch; depthwise: elements between the weights of two taps
  int32_t out_height, out_width;
  int32_t kernel_height, kernel_width;
  int32_t stride_height, stride_width;
  int32_t dilation_height, dilation_width;
  int32_t pad_top, pad_left;
  int32_t first;  // element of the patch to start with (of k blocks; 0 in plans)

  int64_t pixels() const { return int64_t{images} * height * width; }
  int64_t windows() const { return int64_t{images} * out_height * out_width; }
  int64_t taps() const { return int64_t{kernel_height} * kernel_width; }
};

inline constexpr int kWindowSizes = 15;  // fields that a plan gives
inline constexpr int kWindowWords = 8;   // of an instruction
static_assert(sizeof(Window) == kWindowWords * sizeof(uint64_t));

}  // namespace dvm
