// Rows with room behind them. A state of a loop that turns append to along an axis which others lie
// before, as caches of several heads are, cannot stay where it is while its rows lie one right
// behind the other. So the body of such a loop is told, by a symbol of its own, how far apart they
// lie: what kernels add for a step from row to row is that, and no other number while the rows have
// room. Where a kernel's steps are neither within a row nor from row to row at the dims of a turn,
// the rows have to lie as in any other tensor (runtime/growing_states.h).
#pragma once

#include <memory>

#include "runtime/device_pool.h"
#include "runtime/dims.h"
#include "runtime/model.h"

namespace dvm {

// Replaces the body of the turns of a loop some state of which grows by one that says what changes
// from turn to turn, `Model::growing`, and which of the states are such rows, `Model::spaced`.
void space_rows(ControlCall& call, const std::shared_ptr<SharedDevice>& device);

// Whether all that kernels touch lies where they say, however far apart rows are.
bool may_space(const SpacedRows& rows, const Dims& dims);

// Of memory: how many rows there are, how long, and how far apart they begin, in bytes.
struct RowLayout {
  int64_t count = 0, bytes = 0, pitch = 0;
};
void copy_rows(const RowLayout& rows, const std::byte* from, std::byte* to, int64_t to_pitch);

}  // namespace dvm
