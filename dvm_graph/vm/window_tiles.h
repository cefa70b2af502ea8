// Convolutions whose patches need not be packed: the cube unit reads windows where they lie
// (m_matmul_windows), in tiles of whole output rows, or of parts of long ones.
#pragma once

#include "kernels/window.h"
#include "vm/block_shape.h"

namespace dvm {

// Windows of such a tile, of the least predicted time; 0: packing patches for tiles of `shape`
// takes less.
int64_t choose_window_tile(const Window& window, const BlockProblem& problem,
                           const BlockShape& shape, const Target& target);

}  // namespace dvm
