#include "stream/infer.h"

#include <algorithm>

#include "runtime/errors.h"
#include "runtime/tensor.h"
#include "stream/unsupported.h"

namespace dvm::stream {
namespace {

using Operands = std::span<const ValueRef>;
using Attrs = std::span<const int64_t>;

constexpr int64_t kMostElements = int64_t{1} << 56;

std::string describe(Op op, Operands operands) {
  std::string text;
  for (const ValueRef& value : operands) text += (text.empty() ? "" : ", ") + text_of(*value);
  return std::string(name_of(op)) + " of (" + text + ")";
}

[[noreturn]] void bad_shape(Op op, Operands operands, const std::string& why) {
  throw ShapeError(describe(op, operands) + ": " + why);
}
[[noreturn]] void bad_input(Op op, Operands operands, const std::string& why) {
  throw InputError(describe(op, operands) + ": " + why);
}

Shape shape_from(Op op, Operands operands, Attrs extents) {
  if (extents.size() > kMaxRank) {
    throw UnsupportedError(describe(op, operands) + ": the result has more than 8 axes");
  }
  Shape shape;
  shape.rank = static_cast<int8_t>(extents.size());
  bool empty = false;
  for (size_t i = 0; i < extents.size(); i++) {
    if (extents[i] < 0) bad_shape(op, operands, "an extent is negative");
    shape.extents[i] = extents[i];
    empty = empty || extents[i] == 0;
  }
  int64_t elements = 1;
  for (const int64_t extent : extents) {
    if (!empty &&
        (__builtin_mul_overflow(elements, extent, &elements) || elements > kMostElements)) {
      bad_shape(op, operands, "the result has too many elements");
    }
  }
  return shape;
}

// `shape` becomes what it broadcasts to with another one.
void broadcast(Op op, Operands operands, Attrs other, Shape& shape) {
  const int rank = std::max<int>(shape.rank, static_cast<int>(other.size()));
  int64_t extents[kMaxRank];
  for (int i = 0; i < rank; i++) {
    const int mine = shape.rank - rank + i, its = static_cast<int>(other.size()) - rank + i;
    const int64_t a = mine < 0 ? 1 : shape.extents[mine];
    const int64_t b = its < 0 ? 1 : other[static_cast<size_t>(its)];
    if (a != b && a != 1 && b != 1) {
      bad_shape(op, operands,
                "extents " + std::to_string(a) + " and " + std::to_string(b) + " do not broadcast");
    }
    extents[i] = a == 1 ? b : a;
  }
  shape = shape_from(op, operands, {extents, static_cast<size_t>(rank)});
}

size_t axis_of(Op op, Operands operands, int64_t axis, int rank) {
  if (axis < 0 || axis >= rank) {
    bad_input(op, operands, "there is no axis " + std::to_string(axis));
  }
  return static_cast<size_t>(axis);
}

Shape matmul_shape(Operands operands) {
  const Shape &a = operands[0]->shape, &b = operands[1]->shape;
  if (a.rank < 2 || b.rank < 2) bad_shape(Op::matmul, operands, "operands have two axes or more");
  if (a.extents[a.rank - 1] != b.extents[b.rank - 2]) {
    bad_shape(Op::matmul, operands,
              "the one contracts " + std::to_string(a.extents[a.rank - 1]) + ", the other " +
                  std::to_string(b.extents[b.rank - 2]));
  }
  Shape shape = a;
  shape.rank = static_cast<int8_t>(a.rank - 2);
  broadcast(Op::matmul, operands, b.all().first(static_cast<size_t>(b.rank - 2)), shape);
  if (shape.rank + 2 > kMaxRank) {
    throw UnsupportedError(describe(Op::matmul, operands) + ": the result has more than 8 axes");
  }
  shape.extents[shape.rank++] = a.extents[a.rank - 2];
  shape.extents[shape.rank++] = b.extents[b.rank - 1];
  return shape_from(Op::matmul, operands, shape.all());
}

Shape reduced_shape(Op op, Operands operands, Attrs axes) {
  Shape shape = operands[0]->shape;
  int64_t last = -1;
  for (const int64_t axis : axes) {
    if (axis <= last) bad_input(op, operands, "axes are sorted, each once");
    shape.extents[axis_of(op, operands, axis, shape.rank)] = 1;
    last = axis;
  }
  return shape;
}

Shape transposed_shape(Operands operands, Attrs perm) {
  const Shape& shape = operands[0]->shape;
  Shape result = shape;
  uint32_t seen = 0;
  if (perm.size() != static_cast<size_t>(shape.rank)) {
    bad_input(Op::transpose, operands, "perm has an entry for each axis");
  }
  for (size_t i = 0; i < perm.size(); i++) {
    const size_t axis = axis_of(Op::transpose, operands, perm[i], shape.rank);
    if (seen >> axis & 1) bad_input(Op::transpose, operands, "perm names an axis twice");
    seen |= 1U << axis;
    result.extents[i] = shape.extents[axis];
  }
  return result;
}

Shape reshaped(Operands operands, Attrs extents) {
  const Shape shape = shape_from(Op::reshape, operands, extents);
  if (shape.elements() != operands[0]->shape.elements()) {
    bad_shape(Op::reshape, operands, "there are not as many elements in " + shape_text(extents));
  }
  return shape;
}

Shape broadcast_shape(Operands operands, Attrs extents) {
  const Shape shape = shape_from(Op::broadcast_to, operands, extents);
  Shape joined = operands[0]->shape;
  broadcast(Op::broadcast_to, operands, extents, joined);
  if (!(joined == shape)) {
    bad_shape(Op::broadcast_to, operands, "it does not broadcast to " + shape_text(extents));
  }
  return shape;
}

Shape sliced_shape(Operands operands, Attrs attrs) {
  const Shape& shape = operands[0]->shape;
  const auto rank = static_cast<size_t>(shape.rank);
  if (attrs.size() != 3 * rank) {
    bad_input(Op::slice, operands, "starts, steps and sizes have an entry for each axis");
  }
  for (size_t i = 0; i < rank; i++) {
    const int64_t start = attrs[i], step = attrs[rank + i], size = attrs[2 * rank + i];
    int64_t last = 0;
    if (size < 0) bad_shape(Op::slice, operands, "an extent is negative");
    if (size == 0) continue;
    if (__builtin_mul_overflow(step, size - 1, &last) ||
        __builtin_add_overflow(last, start, &last) || start < 0 || start >= shape.extents[i] ||
        last < 0 || last >= shape.extents[i]) {
      bad_shape(Op::slice, operands, "it leaves axis " + std::to_string(i));
    }
  }
  return shape_from(Op::slice, operands, attrs.subspan(2 * rank));
}

Shape gathered_shape(Operands operands, Attrs attrs) {
  const Shape &x = operands[0]->shape, &index = operands[1]->shape;
  if (attrs.size() != 1) bad_input(Op::gather, operands, "it has one attribute, the axis");
  const size_t axis = axis_of(Op::gather, operands, attrs[0], x.rank);
  int64_t extents[2 * kMaxRank];
  size_t count = 0;
  for (size_t i = 0; i < axis; i++) extents[count++] = x.extents[i];
  for (const int64_t extent : index.all()) extents[count++] = extent;
  for (size_t i = axis + 1; i < static_cast<size_t>(x.rank); i++) extents[count++] = x.extents[i];
  return shape_from(Op::gather, operands, {extents, count});
}

Shape joined_shape(Operands operands, Attrs attrs) {
  Shape shape = operands[0]->shape;
  if (attrs.size() != 1) bad_input(Op::concat, operands, "it has one attribute, the axis");
  const size_t axis = axis_of(Op::concat, operands, attrs[0], shape.rank);
  for (const ValueRef& operand : operands.subspan(1)) {
    if (operand->dtype != operands[0]->dtype) bad_input(Op::concat, operands, "dtypes differ");
    const Shape& other = operand->shape;
    bool fits = other.rank == shape.rank;
    for (size_t i = 0; fits && i < static_cast<size_t>(shape.rank); i++) {
      fits = i == axis || other.extents[i] == shape.extents[i];
    }
    if (!fits) bad_shape(Op::concat, operands, "extents differ along another axis");
    shape.extents[axis] += other.extents[axis];
  }
  return shape_from(Op::concat, operands, shape.all());
}

Shape iota_shape(Attrs attrs) {
  if (attrs.size() < 4) bad_input(Op::iota, {}, "it has an axis, a start, a step, and a shape");
  const Shape shape = shape_from(Op::iota, {}, attrs.subspan(3));
  axis_of(Op::iota, {}, attrs[0], shape.rank);
  return shape;
}

Shape shape_of(Op op, Operands operands, Attrs attrs) {
  switch (op) {
    case Op::matmul: return matmul_shape(operands);
    case Op::transpose: return transposed_shape(operands, attrs);
    case Op::reshape: return reshaped(operands, attrs);
    case Op::broadcast_to: return broadcast_shape(operands, attrs);
    case Op::slice: return sliced_shape(operands, attrs);
    case Op::gather: return gathered_shape(operands, attrs);
    case Op::concat: return joined_shape(operands, attrs);
    case Op::iota: return iota_shape(attrs);
    default: break;
  }
  if (info_of(op).kind == Kind::reduce) return reduced_shape(op, operands, attrs);
  Shape shape = operands[0]->shape;
  for (const ValueRef& operand : operands.subspan(1)) {
    broadcast(op, operands, operand->shape.all(), shape);
  }
  return shape;
}

// u64 has no register of its own: its bits are carried as those of i64, which is right for these.
bool takes_u64(Op op) {
  switch (op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::eq:
    case Op::ne:
    case Op::bitwise_and:
    case Op::bitwise_or:
    case Op::bitwise_xor:
    case Op::bitwise_not:
    case Op::select:
    case Op::reduce_sum:
    case Op::reduce_prod: return true;
    default: return is_view(op) || op == Op::concat || op == Op::gather;
  }
}

}  // namespace

std::string refusal_of(Op op, std::span<const DType> operands) {
  const OpInfo& info = info_of(op);
  const bool ours = op == Op::view || op == Op::check_index || op == Op::lookup;
  if (!info.known || info.kind == Kind::other || ours) {
    return "a stream does not take it";
  }
  if (operands.empty()) return "";
  for (const DType dtype : operands) {
    if (dtype == DType::u64 && !takes_u64(op)) return "kernels do not compute it with uint64";
  }
  const DType last = operands.back();
  if (info.kind == Kind::matrix && (!is_float(last) || operands.front() != last)) {
    return "kernels multiply matrices of floats of one dtype";
  }
  if (!(info.takes >> static_cast<int>(last) & 1)) {
    return std::string("kernels do not compute it with ") + long_name_of(last);
  }
  return "";
}

void infer(Op op, Operands operands, Attrs attrs, const DType* dtype, DType& result, Shape& shape) {
  const OpInfo& info = info_of(op);
  if (info.arity >= 0 ? operands.size() != static_cast<size_t>(info.arity) : operands.empty()) {
    bad_input(op, operands,
              "it takes " + std::to_string(std::max<int>(info.arity, 1)) + " operands");
  }
  DType dtypes[3] = {};
  const size_t count = std::min<size_t>(operands.size(), 3);
  for (size_t i = 0; i < count; i++) dtypes[i] = operands[i]->dtype;
  if (info.kind == Kind::map) {
    const size_t first = op == Op::select ? 1 : 0;
    if (first == 1 && dtypes[0] != DType::b8) bad_input(op, operands, "the condition is no bool");
    for (size_t i = first + 1; i < count; i++) {
      if (dtypes[i] != dtypes[first]) bad_input(op, operands, "dtypes differ");
    }
    if (!attrs.empty()) bad_input(op, operands, "it has no attributes");
  }
  if (op == Op::gather && dtypes[1] != DType::i64) bad_input(op, operands, "indices are int64");
  const std::string refusal = refusal_of(op, {dtypes, count});
  if (!refusal.empty()) throw UnsupportedError(describe(op, operands) + ": " + refusal);
  if (op == Op::cast) {
    if (dtype == nullptr) bad_input(op, operands, "it needs a dtype");
    if (*dtype == DType::u64 && is_float(dtypes[0])) {
      throw UnsupportedError(describe(op, operands) + ": kernels do not cast floats to uint64");
    }
  }
  shape = shape_of(op, operands, attrs);
  result = op == Op::cast                   ? *dtype
           : op == Op::iota                 ? DType::i64
           : info.result == Result::boolean ? DType::b8
           : op == Op::gather               ? dtypes[0]
                                            : dtypes[count - 1];
}

}  // namespace dvm::stream
