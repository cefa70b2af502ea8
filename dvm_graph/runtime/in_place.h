// Which values may be written over a value that dies where they are made.
//
// A kernel that reads `from` at the very points at which it writes `to`, and within a tile only for
// what comes no later than that, never reads what it has overwritten: tiles are disjoint, and each
// of them touches its own points of both. Whether the buffers are of one size is known when memory
// is laid out.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model.h"

namespace dvm {

// Whether a call, its fallback included, may write `to` over `from`.
bool may_overwrite(const Model& model, uint32_t call, uint32_t from, uint32_t to);

// Whether a call, its fallback included, reads or writes a value.
bool touches(const Model& model, uint32_t call, uint32_t value);

}  // namespace dvm
