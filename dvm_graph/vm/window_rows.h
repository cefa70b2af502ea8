// Convolutions whose patches need not be packed: the elements of a kernel row are neighbours in a
// channels-last image, and so those of a window are a few runs of k that the cube unit reads where
// they lie. Neighbouring windows of an output row lie a fixed step apart. Only the image is copied,
// with its pads, once for the output rows of a tile, where patches would hold each pixel as often
// as windows see it.
#pragma once

#include "kernels/window.h"
#include "vm/block_shape.h"

namespace dvm {

struct WindowRows {
  int64_t rows = 0;                 // whole output rows of a tile; 0: patches are packed
  int64_t windows = 0;              // of an output row
  int64_t height = 0, width = 0;    // of the part of an image that they see, pads included
  int64_t segments = 0, depth = 0;  // runs of k, and elements of each

  int64_t pixels() const { return height * width; }
};

// The least predicted time; no rows where packing patches for tiles of `shape` takes less, or where
// they are read but once.
WindowRows choose_window_rows(const Window& window, const BlockProblem& problem,
                              const BlockShape& shape, const Target& target);

// A window that sees the image as the tiles do, one after the other.
Window window_of_tiles(const Window& window, const WindowRows& rows);

}  // namespace dvm
