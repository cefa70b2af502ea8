// Windows of drawn sizes over images of small integers, and where their taps lie.
#pragma once

#include "kernels/window.h"
#include "operands.h"

namespace dvm::test {

inline int32_t draw(Random& random, int low, int high) {
  return static_cast<int32_t>(random.integer(low, high));
}

inline Window random_window(Random& random, bool flat) {
  Window w{};
  w.images = draw(random, 1, 3);
  w.depth = w.out_depth = w.kernel_depth = w.stride_depth = w.dilation_depth = 1;
  if (!flat && random.chance(0.4)) {
    w.depth = draw(random, 1, 5);
    w.out_depth = draw(random, 1, 4);
    w.kernel_depth = draw(random, 1, 3);
    w.stride_depth = draw(random, 1, 2);
    w.dilation_depth = draw(random, 1, 2);
    w.pad_front = draw(random, 0, 3);
  }
  w.height = draw(random, 1, 9);
  constexpr int32_t kChannels[] = {1, 1, 2, 3, 5, 8, 16, 17, 33, 70};
  w.channels = random.pick(kChannels);
  const int32_t widest = w.channels <= 8 && random.chance(0.3) ? 400 : 20;
  w.width = draw(random, 1, widest);
  w.pixel = w.channels + (random.chance(0.3) ? draw(random, 1, 9) : 0);
  w.out_height = draw(random, 1, 7);
  w.out_width = draw(random, 1, widest);
  w.kernel_height = draw(random, 1, 4);
  w.kernel_width = draw(random, 1, 4);
  w.stride_height = draw(random, 1, 3);
  w.stride_width = draw(random, 1, 3);
  const int32_t farthest = random.chance(0.2) ? 9 : 2;
  w.dilation_height = draw(random, 1, farthest);
  w.dilation_width = draw(random, 1, farthest);
  w.pad_top = draw(random, 0, 5);
  w.pad_left = draw(random, 0, 5);
  return w;
}

// Elements from the first of the images to the tap of a window; -1: outside the image.
inline int64_t place_of_tap(const Window& w, int64_t number, int64_t tap) {
  const int64_t x =
      number % w.out_width * w.stride_width - w.pad_left + tap % w.kernel_width * w.dilation_width;
  const int64_t row = number / w.out_width, tap_row = tap / w.kernel_width;
  const int64_t y = row % w.out_height * w.stride_height - w.pad_top +
                    tap_row % w.kernel_height * w.dilation_height;
  const int64_t slice = row / w.out_height;
  const int64_t z = slice % w.out_depth * w.stride_depth - w.pad_front +
                    tap_row / w.kernel_height * w.dilation_depth;
  const int64_t image = slice / w.out_depth;
  if (x < 0 || x >= w.width || y < 0 || y >= w.height || z < 0 || z >= w.depth) return -1;
  return (((image * w.depth + z) * w.height + y) * w.width + x) * w.pixel;
}

inline Place number_place(int64_t first, Strides strides) {
  return {reinterpret_cast<std::byte*>(first), strides};
}

template <class T>
void fill_small(Random& random, const Array<T>& array) {
  for (int64_t i = 0; i < array.count(); ++i) {
    array.data()[i] = static_cast<T>(random.integer(-8, 8));
  }
}

}  // namespace dvm::test
