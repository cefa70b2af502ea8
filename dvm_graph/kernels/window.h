// A window that moves over channels-last volumes [images, depth, height, width, pixel], where a
// pixel is `pixel` neighbouring elements; flat images have a depth of 1. Windows are numbered
// row-major over (image, output slice, output row, output column). Tap (z, y, x) of a window lies
// at row out_y * stride_height - pad_top + y * dilation_height, and at the slice and the column
// that follow likewise; a tap outside the image reads nothing, or `outside`.
#pragma once

#include <cstdint>

namespace dvm {

// The order of the fields is that of PlanNode::window and of the words of an instruction.
struct Window {
  int32_t images, depth, height, width, pixel;
  int32_t channels;  // of a pixel, that an element of the result is made of: 1 of pools, a group's
                     // of convolutions; of patches, all that are in one
  int32_t weights;   // depthwise: elements between the weights of two channels
  int32_t out_depth, out_height, out_width;
  int32_t kernel_depth, kernel_height, kernel_width;
  int32_t stride_depth, stride_height, stride_width;
  int32_t dilation_depth, dilation_height, dilation_width;
  int32_t pad_front, pad_top, pad_left;
  int32_t outside;  // depthwise, of bytes: what a tap outside the image is
  int32_t first;    // element of the patch to start with (of k blocks; 0 in plans)

  int64_t pixels() const { return int64_t{images} * depth * height * width; }
  int64_t windows() const { return images * windows_of_image(); }
  int64_t windows_of_image() const { return int64_t{out_depth} * out_height * out_width; }
  int64_t taps() const { return int64_t{kernel_depth} * kernel_height * kernel_width; }
  bool is_flat() const {
    return depth == 1 && out_depth == 1 && kernel_depth == 1 && pad_front == 0;
  }
};

inline constexpr int kWindowSizes = 23;  // fields that a plan gives
inline constexpr int kWindowWords = 12;  // of an instruction
static_assert(sizeof(Window) == kWindowWords * sizeof(uint64_t));

}  // namespace dvm
