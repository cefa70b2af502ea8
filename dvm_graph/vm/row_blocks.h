// Row blocks: consecutive instructions that go over the same rows may run together, a few rows at a
// time, so that what several of them read of a row is still in the first-level cache for all but
// the first, and memory is read and written all the while instead of by turns. A mark is a hint:
// running the instructions one after the other means the same.
//
// The rows of a reduction are its outer loop; those of a map are its middle loop, or its inner loop
// where it goes over one value per row. Row r of an instruction depends on row r of those before it
// only, in registers' and in memory's terms: whatever they write, all of them touch alike.
#pragma once

#include <vector>

#include "vm/target.h"
#include "vm/tile_code.h"

namespace dvm {

inline constexpr int kMostRowGroups = 8;  // of joined instructions, or single ones

struct RowScratch {
  struct Use {  // of a buffer or value by the instructions that are marked
    Space space;
    int32_t id, index;
    int64_t offset;
    int32_t stride;  // from row to row
    bool written, aligned;
  };
  std::vector<Use> uses;
};

// Whether the instructions of the plan are likely to be marked from the first to the last: it
// reduces rows that no pass leaves to another.
bool passes_by_rows(const NormalPlan& plan, const Target& target);

// Sets kRows, once strips are joined and before local memory is laid out. Returns whether all of
// the instructions run together.
bool mark_row_blocks(TileCode& code, const Target& target, RowScratch& scratch);

}  // namespace dvm
