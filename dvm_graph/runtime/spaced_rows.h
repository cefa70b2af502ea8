// Rows with room behind them. Where an axis grows from turn to turn of a loop and others lie before
// it, as in caches of several heads, every turn would find its rows elsewhere while they lie one
// right behind the other: a state could not stay where it is, and no program that steps from row to
// row could be that of another turn. So the body of such a loop is told, by symbols of its own, how
// far rows lie apart: what kernels add for a step from row to row is that, and no other number
// while the rows have room. That goes for states and for what kernels of a turn leave for others.
// Where a kernel's steps are neither within a row nor from row to row at the dims of a turn, the
// rows have to lie as in any other tensor (runtime/growing_states.h).
#pragma once

#include <memory>

#include "runtime/device_pool.h"
#include "runtime/dims.h"
#include "runtime/model.h"

namespace dvm {

// Replaces the body of the turns of a loop some state of which grows by one that says what changes
// from turn to turn, `Model::growing`, and which values are such rows, `Model::spaced`.
void space_rows(ControlCall& call, const std::shared_ptr<SharedDevice>& device);

// Whether all that kernels touch lies where they say, however far apart rows are.
bool may_space(const SpacedRows& rows, const Dims& dims);

// Elements from row to row, of values of the model whose memory may take so many bytes at most; 0:
// these rows have to lie one behind the other. The same for dims that differ little.
int64_t distance_of(const SpacedRows& rows, const Model& model, const Dims& dims, int64_t most);

// So many bytes or a few more, so that rows begin on cache lines; several short ones share a line.
int64_t aligned_row(int64_t bytes);
// What rows begin with where there are so many, in bytes.
int64_t first_row(int64_t count);

// Of memory: how many rows there are, how long, and how far apart they begin, in bytes.
struct RowLayout {
  int64_t count = 0, bytes = 0, pitch = 0;
};
void copy_rows(const RowLayout& rows, const std::byte* from, std::byte* to, int64_t to_pitch);

}  // namespace dvm
