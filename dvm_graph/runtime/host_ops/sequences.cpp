// Sequences; indices count from the end where they are negative.
//
//   SequenceConstruct    no arguments. Its operands.
//   SequenceEmpty        no arguments
//   SequenceAt           no arguments. The tensor at an index.
//   SequenceInsert       no arguments. A tensor before an index, or at the end.
//   SequenceErase        no arguments. Without the tensor at an index, or the last one.
//   SequenceLength       no arguments
//   SplitToSequence      axis, whether rows keep the axis. Parts of a number of rows, of numbers of
//                        rows, or each row.
//   ConcatFromSequence   axis, whether it is a new one
#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/sequence.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

// A place among `count`, which stand before it or at it.
size_t place_of(const HostFrame& frame, size_t operand, int64_t count, const Sequence& sequence) {
  const int64_t index = frame.integer(operand);
  const auto length = static_cast<int64_t>(sequence.size());
  if (index < -length || index >= count) {
    throw InputError(frame.name + ": there is no place " + std::to_string(index) +
                     " in a sequence of " + std::to_string(length));
  }
  return static_cast<size_t>(index < 0 ? index + length : index);
}

// The sizes of the parts.
std::vector<int64_t> parts_of(const HostFrame& frame, int64_t extent) {
  if (!frame.has(1)) return std::vector<int64_t>(static_cast<size_t>(extent), 1);
  std::vector<int64_t> parts = frame.integers(1);
  if (frame.operand(1).shape.empty()) {
    const int64_t size = parts[0];
    if (size <= 0) throw InputError(frame.name + " splits into parts of " + std::to_string(size));
    parts.assign(static_cast<size_t>(extent / size), size);
    if (extent % size != 0) parts.push_back(extent % size);
    return parts;
  }
  int64_t left = extent;
  for (const int64_t part : parts) {
    if (part < 0 || part > left) left = -1;
    if (left < 0) break;
    left -= part;
  }
  if (left != 0) {
    throw InputError(frame.name + ": the parts are not " + std::to_string(extent) + " together");
  }
  return parts;
}

}  // namespace

void sequence_construct(HostFrame& frame) {
  Sequence sequence;
  for (size_t i = 0; i < frame.operands(); i++) {
    sequence.push_back(std::make_shared<const Tensor>(frame.keep(i)));
  }
  frame.give_value(0, tensor_of(std::move(sequence)));
}

void sequence_empty(HostFrame& frame) { frame.give_value(0, tensor_of({})); }

void sequence_at(HostFrame& frame) {
  const Sequence& sequence = frame.sequence(0);
  const auto count = static_cast<int64_t>(sequence.size());
  frame.give_value(0, *sequence[place_of(frame, 1, count, sequence)]);
}

void sequence_insert(HostFrame& frame) {
  const Sequence& given = frame.sequence(0);
  const auto count = static_cast<int64_t>(given.size());
  const size_t place = frame.has(2) ? place_of(frame, 2, count + 1, given) : given.size();
  Sequence sequence;
  sequence.reserve(given.size() + 1);
  const auto middle = given.begin() + static_cast<ptrdiff_t>(place);
  sequence.insert(sequence.end(), given.begin(), middle);
  sequence.push_back(std::make_shared<const Tensor>(frame.keep(1)));
  sequence.insert(sequence.end(), middle, given.end());
  frame.give_value(0, tensor_of(std::move(sequence)));
}

void sequence_erase(HostFrame& frame) {
  Sequence sequence = frame.sequence(0);
  const auto count = static_cast<int64_t>(sequence.size());
  if (count == 0) throw InputError(frame.name + ": the sequence is empty");
  const size_t place = frame.has(1) ? place_of(frame, 1, count, sequence) : sequence.size() - 1;
  sequence.erase(sequence.begin() + static_cast<ptrdiff_t>(place));
  frame.give_value(0, tensor_of(std::move(sequence)));
}

void sequence_length(HostFrame& frame) {
  const auto length = static_cast<int64_t>(frame.sequence(0).size());
  if (auto* const out = frame.give<int64_t>(0, DType::i64, {})) *out = length;
}

void split_to_sequence(HostFrame& frame) {
  const Tensor& x = frame.operand(0);
  const size_t axis = frame.axis(0, x.shape.size());
  const AroundAxis around(x.shape, axis);
  const bool rows = !frame.has(1) && frame.argument(1) == 0;
  const int64_t step = around.behind * size_of(x.dtype);  // from row to row, in bytes
  Sequence sequence;
  int64_t start = 0;
  for (const int64_t size : parts_of(frame, around.extent)) {
    std::vector<int64_t> shape = x.shape;
    shape[axis] = size;
    if (rows) shape.erase(shape.begin() + static_cast<ptrdiff_t>(axis));
    auto part = std::make_shared<Tensor>(frame.fresh(x.dtype, std::move(shape)));
    for (int64_t i = 0; i < around.before; i++) {
      std::memcpy(part->data + i * size * step, x.data + (i * around.extent + start) * step,
                  static_cast<size_t>(size * step));
    }
    start += size;
    sequence.push_back(std::move(part));
  }
  frame.give_value(0, tensor_of(std::move(sequence)));
}

void concat_from_sequence(HostFrame& frame) {
  const Sequence& sequence = frame.sequence(0);
  if (sequence.empty()) throw InputError(frame.name + ": the sequence is empty");
  const Tensor& first = *sequence[0];
  const bool stacks = frame.argument(1) != 0;
  std::vector<int64_t> whole = first.shape;
  const auto rank = static_cast<int64_t>(whole.size()) + (stacks ? 1 : 0);
  const int64_t given = frame.argument(0);
  if (given < -rank || given >= rank) {
    throw ShapeError(frame.name + " has no axis " + std::to_string(given) + " of " +
                     std::to_string(rank));
  }
  const auto axis = static_cast<size_t>(given < 0 ? given + rank : given);
  if (stacks) whole.insert(whole.begin() + static_cast<ptrdiff_t>(axis), 1);
  const auto extent_of = [&](const Tensor& part) { return stacks ? 1 : part.shape[axis]; };
  int64_t extent = 0;
  for (const auto& part : sequence) {
    std::vector<int64_t> shape = part->shape, wanted = first.shape;
    if (!stacks && axis < shape.size()) shape[axis] = wanted[axis] = 0;
    if (part->dtype != first.dtype || shape != wanted) {
      throw ShapeError(frame.name + " cannot join tensors of shapes " + shape_text(first.shape) +
                       " and " + shape_text(part->shape));
    }
    extent += extent_of(*part);
  }
  whole[axis] = extent;
  std::byte* const out = frame.give(0, first.dtype, whole);
  if (out == nullptr) return;
  const AroundAxis around(whole, axis);
  const int64_t step = around.behind * size_of(first.dtype);
  int64_t start = 0;
  for (const auto& part : sequence) {
    const int64_t size = extent_of(*part);
    for (int64_t i = 0; i < around.before; i++) {
      std::memcpy(out + (i * extent + start) * step, part->data + i * size * step,
                  static_cast<size_t>(size * step));
    }
    start += size;
  }
}

}  // namespace dvm
