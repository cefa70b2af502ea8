// MaxUnpool: arguments (stride, more) for each spatial axis, whose extent n becomes n * stride +
// more; operands x, indices, and maybe the shape of the result. Of elements for one place the last
// counts.
#include <algorithm>
#include <cstring>

#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"

namespace dvm {
namespace {

std::vector<int64_t> shape_of(HostFrame& frame) {
  std::vector<int64_t> shape = frame.operand(0).shape;
  for (size_t axis = 2; axis < shape.size(); axis++) {
    const size_t at = 2 * (axis - 2);
    shape[axis] = std::max<int64_t>(0, shape[axis] * frame.argument(at) + frame.argument(at + 1));
  }
  if (!frame.has(2)) return shape;
  std::vector<int64_t> given = frame.integers(2);
  if (given.size() != shape.size() ||
      !std::equal(shape.begin(), shape.end(), given.begin(), std::less_equal<>())) {
    throw ShapeError("the shape that " + frame.name + " is given has no room for its windows");
  }
  return given;
}

}  // namespace

void max_unpool(HostFrame& frame) {
  const Tensor& x = frame.operand(0);
  if (frame.operand(1).shape != x.shape) {
    throw ShapeError("elements and indices of " + frame.name + " differ in shape");
  }
  const auto* const in = frame.data<uint32_t>(0);
  const auto* const places = frame.data<int64_t>(1);
  const std::vector<int64_t> shape = shape_of(frame);
  auto* const out = frame.give<uint32_t>(0, x.dtype, shape);
  const int64_t room = elements_of(shape), count = elements_of(x.shape);
  if (out != nullptr) std::memset(out, 0, static_cast<size_t>(room) * sizeof(*out));
  for (int64_t i = 0; i < count; i++) {
    if (places[i] < 0 || places[i] >= room) {
      throw InputError("index " + std::to_string(places[i]) + " of " + frame.name +
                       " lies outside of its result of " + std::to_string(room) + " elements");
    }
    if (out != nullptr) out[places[i]] = in[i];
  }
}

}  // namespace dvm
