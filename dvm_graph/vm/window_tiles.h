// Convolutions whose patches need not be packed: the cube unit reads windows where they lie
// (m_matmul_windows), in tiles of whole output rows, or of parts of long ones.
#pragma once

#include "kernels/window.h"
#include "vm/block_shape.h"

namespace dvm {

struct WindowTile {
  int64_t windows = 0;  // 0: packing patches takes less
  int64_t columns = 0;
  bool transformed = false;  // multiplied by way of transforms (kernels/transforms.h)
  double saved = 0;          // of what packing patches is predicted to take, in multiply-adds
};

// The tile of the least predicted time, where `shape` is that of packed patches. `transformed`: the
// weights have transforms.
WindowTile choose_window_tile(const Window& window, const BlockProblem& problem,
                              const BlockShape& shape, bool transformed, const Target& target);

}  // namespace dvm
