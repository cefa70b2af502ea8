// The steps between lowering and encoding: what the tile code of a program goes through, whatever
// it was lowered from.
//
//   finish windows -> join -> block rows -> fetch ahead -> allocate -> synchronise -> prefetch
#pragma once

#include <vector>

#include "vm/allocate.h"
#include "vm/compile.h"
#include "vm/finish_windows.h"
#include "vm/row_blocks.h"
#include "vm/strips.h"
#include "vm/sync.h"
#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

struct StepScratch {
  FinishScratch finish;
  JoinScratch join;
  RowScratch rows;
  AllocatorScratch allocator;
  std::vector<TileBuffer> buffers;
  SyncScratch sync;
  StepObserver observer;

  void done(const char* step, const TileCode& code) const {
    if (observer) observer(step, code);
  }
};

// False: the code does not fit local memory, or was tiled to run by rows and does not.
bool take_steps(TileCode& code, KernelKind kind, const Target& target, StepScratch& scratch,
                bool by_rows = false);

}  // namespace dvm
