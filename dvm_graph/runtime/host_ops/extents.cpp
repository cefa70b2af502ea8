// Extents that are values: what Reshape, Expand, Tile, ConstantOfShape, Slice, Split, Pad, Range
// and OneHot make of operands that are computed in the run. Each checks its operands as onnxruntime
// does, and gives the numbers as the extents of a tensor without elements, behind a first extent of
// 0: there they bind symbols, over which the operator itself is kernels.
//
// Operands are those of the ONNX operator but for the tensor, in whose place its shape stands
// (omitted: a scalar's). Integers of 32 or 64 bits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

using Integers = std::vector<int64_t>;
__extension__ typedef __int128 Wide;  // not in ISO C++

constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
constexpr int64_t kLast32 = std::numeric_limits<int32_t>::max();

Integers integers(const HostFrame& frame, size_t operand) {
  if (!frame.has(operand)) return {};
  const Tensor& tensor = frame.operand(operand);
  const auto count = static_cast<size_t>(elements_of(tensor.shape));
  if (tensor.dtype == DType::i32) {
    const auto* const data = frame.data<int32_t>(operand);
    return {data, data + count};
  }
  const auto* const data = frame.data<int64_t>(operand);
  return {data, data + count};
}

[[noreturn]] void refuse(const HostFrame& frame, const std::string& why) {
  throw ShapeError(frame.name + ": " + why);
}

void require_length(const HostFrame& frame, const Integers& numbers, size_t length,
                    const char* what) {
  if (numbers.size() == length) return;
  refuse(frame,
         std::to_string(numbers.size()) + " " + what + " for " + std::to_string(length) + " axes");
}

void require_nonnegative(const HostFrame& frame, const Integers& numbers, const char* what) {
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](int64_t n) { return n < 0; });
  if (bad == numbers.end()) return;
  refuse(frame, std::string(what) + " " + shape_text(numbers) + " hold " + std::to_string(*bad));
}

// The number of elements; none: more than can be counted.
std::optional<int64_t> counted(const Integers& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(count, extent, &count)) return {};
  }
  return count;
}

// Each 0 as 1.
Integers filled(Integers shape) {
  std::replace(shape.begin(), shape.end(), int64_t{0}, int64_t{1});
  return shape;
}

// Refuses results that no memory holds, which a kernel that stores nothing would count through, and
// shapes that no array has, even of no elements.
void require_size(const HostFrame& frame, const Integers& shape) {
  constexpr int64_t kMostBytes = 16;  // of an element
  const std::optional<int64_t> most = counted(filled(shape));
  if (!most || *most > kLast / kMostBytes) {
    refuse(frame, "a result of shape " + shape_text(shape) + " is too large");
  }
  require_memory(counted(shape).value_or(0), frame.name.c_str());
}

void give_extents(HostFrame& frame, Integers extents) {
  extents.insert(extents.begin(), 0);
  frame.give(0, DType::i64, std::move(extents));
}

// Axes counted from the front, each once.
std::vector<size_t> distinct_axes(const HostFrame& frame, const Integers& axes, size_t rank) {
  const auto count = static_cast<int64_t>(rank);
  std::vector<size_t> found;
  for (const int64_t given : axes) {
    if (given < -count || given >= count) {
      refuse(frame, "no axis " + std::to_string(given) + " of " + std::to_string(rank));
    }
    const auto axis = static_cast<size_t>(given < 0 ? given + count : given);
    if (std::find(found.begin(), found.end(), axis) != found.end()) {
      refuse(frame, "axis " + std::to_string(axis) + " twice");
    }
    found.push_back(axis);
  }
  return found;
}

// The first position and the count of start:end:step over an axis, as onnxruntime has them.
std::pair<int64_t, int64_t> sliced(int64_t start, int64_t end, int64_t step, int64_t extent) {
  if (extent == 0) return {0, 0};
  step = std::clamp(step, -extent, extent);
  if (start < 0) start += extent;
  start = std::clamp<int64_t>(start, 0, step < 0 ? extent - 1 : extent);
  if (end == kLast || end == kLast32) {
    end = step < 0 ? -1 : extent;
  } else {
    if (end < 0) end += extent;
    end = std::clamp<int64_t>(end, step < 0 ? -1 : 0, extent);
  }
  const int64_t distance = step < 0 ? start - end : end - start;
  const int64_t size = std::abs(step);
  return {start, distance <= 0 ? 0 : (distance + size - 1) / size};
}

template <class T>
int64_t count_from_to(HostFrame& frame) {
  const T start = frame.scalar<T>(0), limit = frame.scalar<T>(1), delta = frame.scalar<T>(2);
  if (delta == T{0}) refuse(frame, "delta is 0");
  if constexpr (std::is_floating_point_v<T>) {
    const double count = std::ceil(1.0 * (limit - start) / static_cast<double>(delta));
    if (!std::isfinite(count)) refuse(frame, "no finite number of elements");
    if (count >= static_cast<double>(kLast)) refuse(frame, "more numbers than can be counted");
    return count > 0 ? static_cast<int64_t>(count) : 0;
  } else {
    const Wide distance = Wide{limit} - start, size = delta < 0 ? -Wide{delta} : Wide{delta};
    const Wide ahead = delta < 0 ? -distance : distance;
    const Wide count = ahead <= 0 ? Wide{0} : (ahead + size - 1) / size;
    if (count > kLast) refuse(frame, "more numbers than can be counted");
    return static_cast<int64_t>(count);
  }
}

}  // namespace

// Arguments (allowzero). Where a 0 is one of the target's, a -1 is what is left of the extents that
// are not 0, as onnxruntime has it.
void reshape_extents(HostFrame& frame) {
  const Integers shape = integers(frame, 0);
  Integers target = integers(frame, 1);
  const std::string wanted = shape_text(target);
  std::optional<size_t> open;
  for (size_t axis = 0; axis < target.size(); axis++) {
    int64_t& extent = target[axis];
    if (extent == 0 && frame.argument(0) == 0) {
      if (axis >= shape.size()) refuse(frame, "a 0 of " + wanted + " copies no dim");
      extent = shape[axis];
    } else if (extent == -1) {
      if (open) refuse(frame, "more than one dim of " + wanted + " is -1");
      open = axis;
    } else if (extent < 0) {
      refuse(frame, wanted + " is no shape");
    }
  }
  const std::optional<int64_t> given = counted(shape);
  if (open) {
    target[*open] = 1;
    const bool empty = frame.argument(0) != 0 && given == 0 && counted(target) == 0;
    const int64_t whole = (empty ? counted(filled(shape)) : given).value_or(-1);
    const int64_t rest = (empty ? counted(filled(target)) : counted(target)).value_or(0);
    if (rest == 0 || whole < 0 || whole % rest != 0) {
      refuse(frame, shape_text(shape) + " does not divide into " + wanted);
    }
    target[*open] = whole / rest;
  } else if (!given || counted(target) != given) {
    refuse(frame, shape_text(shape) + " has other elements than " + wanted);
  }
  require_size(frame, target);
  give_extents(frame, target);
}

// Both ways: a 1 of the target keeps the extent.
void expand_extents(HostFrame& frame) {
  Integers shape = integers(frame, 0), target = integers(frame, 1);
  require_nonnegative(frame, target, "the extents");
  const size_t rank = std::max(shape.size(), target.size());
  shape.insert(shape.begin(), rank - shape.size(), 1);
  target.insert(target.begin(), rank - target.size(), 1);
  for (size_t axis = 0; axis < rank; axis++) {
    if (target[axis] == 1) target[axis] = shape[axis];
    if (shape[axis] != 1 && shape[axis] != target[axis]) {
      refuse(frame, shape_text(shape) + " does not expand to " + shape_text(target));
    }
  }
  require_size(frame, target);
  give_extents(frame, target);
}

// The repeats themselves.
void tile_extents(HostFrame& frame) {
  Integers shape = integers(frame, 0);
  const Integers repeats = integers(frame, 1);
  require_length(frame, repeats, shape.size(), "repeats");
  require_nonnegative(frame, repeats, "the repeats");
  for (size_t axis = 0; axis < shape.size(); axis++) {
    if (__builtin_mul_overflow(shape[axis], repeats[axis], &shape[axis])) {
      refuse(frame, shape_text(repeats) + " times is too large");
    }
  }
  require_size(frame, shape);
  give_extents(frame, repeats);
}

// Operands (the shape).
void constant_extents(HostFrame& frame) {
  const Integers shape = integers(frame, 0);
  require_nonnegative(frame, shape, "the extents");
  require_size(frame, shape);
  give_extents(frame, shape);
}

// Operands (shape, starts, ends, axes, steps): first position and count of every axis in turn.
void slice_extents(HostFrame& frame) {
  const Integers shape = integers(frame, 0), starts = integers(frame, 1);
  const Integers ends = integers(frame, 2);
  Integers axes = integers(frame, 3), steps = integers(frame, 4);
  if (!frame.has(3)) {
    for (size_t axis = 0; axis < starts.size(); axis++) axes.push_back(static_cast<int64_t>(axis));
  }
  if (!frame.has(4)) steps.assign(starts.size(), 1);
  require_length(frame, starts, axes.size(), "starts");
  require_length(frame, ends, axes.size(), "ends");
  require_length(frame, steps, axes.size(), "steps");
  Integers extents;
  for (const int64_t extent : shape) extents.insert(extents.end(), {0, extent});
  const std::vector<size_t> at = distinct_axes(frame, axes, shape.size());
  for (size_t i = 0; i < at.size(); i++) {
    if (steps[i] == 0) refuse(frame, "a step of axis " + std::to_string(at[i]) + " is 0");
    const auto [first, count] = sliced(starts[i], ends[i], steps[i], shape[at[i]]);
    extents[2 * at[i]] = first;
    extents[2 * at[i] + 1] = count;
  }
  give_extents(frame, extents);
}

// Arguments (axis, results); the sizes themselves, where there are none those of equal parts.
void split_extents(HostFrame& frame) {
  const Integers shape = integers(frame, 0);
  Integers sizes = integers(frame, 1);
  const int64_t extent = shape[frame.axis(0, shape.size())], results = frame.argument(1);
  if (sizes.empty()) sizes.assign(results, extent / results);
  if (static_cast<int64_t>(sizes.size()) != results) {
    refuse(frame,
           std::to_string(sizes.size()) + " sizes for " + std::to_string(results) + " results");
  }
  require_nonnegative(frame, sizes, "the sizes");
  Wide total = 0;
  for (const int64_t size : sizes) total += size;
  if (total != extent) {
    refuse(frame,
           "the sizes " + shape_text(sizes) + " are not " + std::to_string(extent) + " together");
  }
  give_extents(frame, sizes);
}

// Arguments (whether pads repeat elements, of which there have to be some), operands (shape, pads,
// axes): for every axis in turn where what is kept begins, how much that is, and what goes before
// and behind it. What a negative pad cuts beyond the elements comes off the other pad.
void pad_extents(HostFrame& frame) {
  const Integers shape = integers(frame, 0), pads = integers(frame, 1);
  Integers axes = integers(frame, 2);
  if (!frame.has(2)) {
    for (size_t axis = 0; axis < shape.size(); axis++) axes.push_back(static_cast<int64_t>(axis));
  }
  require_length(frame, pads, 2 * axes.size(), "pads");
  Integers extents, padded = shape;
  for (const int64_t extent : shape) extents.insert(extents.end(), {0, extent, 0, 0});
  const std::vector<size_t> at = distinct_axes(frame, axes, shape.size());
  for (size_t i = 0; i < at.size(); i++) {
    const Wide extent = shape[at[i]], before = pads[i], behind = pads[i + at.size()];
    const Wide size = extent + before + behind;
    if (size < 0 || size > kLast) {
      refuse(frame,
             "the pads " + shape_text(pads) + " leave no axis of " + std::to_string(shape[at[i]]));
    }
    const Wide front_cut = std::max<Wide>(0, -before);
    const Wide cut = front_cut + std::max<Wide>(0, -behind);
    const Wide lacking = std::max<Wide>(0, cut - extent);
    const Wide found[] = {std::min(front_cut, extent), std::max<Wide>(0, extent - cut),
                          std::max<Wide>(0, before - lacking), std::max<Wide>(0, behind - lacking)};
    if (frame.argument(0) != 0 && found[1] == 0 && size > 0) {
      refuse(frame, "no elements of axis " + std::to_string(at[i]) + " to repeat");
    }
    for (size_t k = 0; k < 4; k++) extents[4 * at[i] + k] = static_cast<int64_t>(found[k]);
    padded[at[i]] = static_cast<int64_t>(size);
  }
  require_size(frame, padded);
  give_extents(frame, extents);
}

// Operands (shape, scales in float32, sizes), one of the latter two for each of the axes that are
// the arguments: the sizes of those, as onnxruntime multiplies.
void resize_extents(HostFrame& frame) {
  Integers shape = integers(frame, 0), sizes = integers(frame, 2);
  const size_t count = frame.arguments();
  const bool scaled = frame.has(1);
  if (scaled) sizes.assign(static_cast<size_t>(elements_of(frame.operand(1).shape)), 0);
  require_length(frame, sizes, count, scaled ? "scales" : "sizes");
  for (size_t at = 0; scaled && at < count; at++) {
    const float scale = frame.data<float>(1)[at];
    const float size = scale * static_cast<float>(shape[frame.axis(at, shape.size())]);
    if (!(scale > 0) || !(size < 0x1p62F)) refuse(frame, "a scale of " + std::to_string(scale));
    sizes[at] = static_cast<int64_t>(size);
  }
  require_nonnegative(frame, sizes, "the sizes");
  for (size_t at = 0; at < count; at++) shape[frame.axis(at, shape.size())] = sizes[at];
  require_size(frame, shape);
  give_extents(frame, sizes);
}

// Operands (depth).
void one_hot_extents(HostFrame& frame) {
  const Integers depth = integers(frame, 0);
  if (depth.size() != 1 || depth[0] <= 0) {
    refuse(frame, "the depth is " + shape_text(depth) + ", which is not one number above 0");
  }
  require_size(frame, depth);
  give_extents(frame, depth);
}

// Operands (start, limit, delta): the count.
void range_extents(HostFrame& frame) {
  int64_t count = 0;
  switch (frame.operand(0).dtype) {
    case DType::i16: count = count_from_to<int16_t>(frame); break;
    case DType::i32: count = count_from_to<int32_t>(frame); break;
    case DType::i64: count = count_from_to<int64_t>(frame); break;
    case DType::f32: count = count_from_to<float>(frame); break;
    case DType::f64: count = count_from_to<double>(frame); break;
    default: throw CompileError(frame.name + " counts in no such type");
  }
  require_size(frame, {count});
  give_extents(frame, {count});
}

}  // namespace dvm
