#include "stream/operators.h"

#include <array>
#include <unordered_map>

namespace dvm::stream {
namespace {

constexpr const char* kNames[] = {
#define DVM_PLAN_OP(name, kind, arity) #name,
#include "kernels/ops.def"
#undef DVM_PLAN_OP
    "reshape", "transpose", "broadcast_to", "slice", "view", "concat"};
static_assert(std::size(kNames) == static_cast<size_t>(Op::count_));

std::array<OpInfo, static_cast<size_t>(Op::count_)>& table() {
  static std::array<OpInfo, static_cast<size_t>(Op::count_)> rows;
  return rows;
}

constexpr const char* kLongNames[kDTypes] = {"float32", "float64",  "int32", "int64", "bool",
                                             "float16", "bfloat16", "int8",  "uint8", "int16",
                                             "uint16",  "uint32",   "uint64"};

constexpr bool is_narrow_integer(DType dtype) {
  return dtype == DType::i8 || dtype == DType::u8 || dtype == DType::i16 || dtype == DType::u16 ||
         dtype == DType::u32;
}

// Bits of a value, and whether it may be negative; of floats none.
struct Range {
  int bits;
  bool is_signed;
};
constexpr Range range_of(DType dtype) {
  switch (dtype) {
    case DType::b8: return {1, false};
    case DType::i8: return {7, true};
    case DType::i16: return {15, true};
    case DType::i32: return {31, true};
    case DType::i64: return {63, true};
    case DType::u8: return {8, false};
    case DType::u16: return {16, false};
    case DType::u32: return {32, false};
    case DType::u64: return {64, false};
    default: return {0, false};
  }
}

}  // namespace

const OpInfo& info_of(Op op) { return table()[static_cast<size_t>(op)]; }
const char* name_of(Op op) { return kNames[static_cast<size_t>(op)]; }
void declare(Op op, const OpInfo& info) {
  table()[static_cast<size_t>(op)] = info;
  table()[static_cast<size_t>(op)].known = true;
}

bool find_op(const std::string& name, Op& op) {
  static const auto* const numbers = [] {
    auto* const made = new std::unordered_map<std::string, Op>();
    for (size_t i = 0; i < std::size(kNames); i++) (*made)[kNames[i]] = static_cast<Op>(i);
    return made;
  }();
  const auto found = numbers->find(name);
  if (found == numbers->end() || !info_of(found->second).known) return false;
  op = found->second;
  return true;
}

const char* long_name_of(DType dtype) { return kLongNames[static_cast<int>(dtype)]; }

bool find_dtype(const std::string& name, DType& dtype) {
  for (int i = 0; i < kDTypes; i++) {
    if (name != kLongNames[i]) continue;
    dtype = static_cast<DType>(i);
    return true;
  }
  return false;
}

bool needs_narrow(Op op, DType dtype) {
  if (!is_narrow_integer(dtype)) return false;
  switch (op) {
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::neg:
    case Op::abs:
    case Op::pow:
    case Op::shift_left:
    case Op::bitwise_not:
    case Op::reduce_sum:
    case Op::reduce_prod: return true;
    default: return false;
  }
}

bool cast_needs_narrow(DType source, DType target) {
  if (is_half(target)) return source != target && source != DType::b8;
  if (!is_narrow_integer(target)) return false;
  const Range from = range_of(source), to = range_of(target);
  if (from.bits == 0) return true;
  return (from.is_signed && !to.is_signed) || from.bits > to.bits;
}

bool extreme_of_nothing(Op op, DType dtype, int64_t& extreme) {
  if (!is_narrow_integer(dtype) || (op != Op::reduce_max && op != Op::reduce_min)) return false;
  const auto [bits, is_signed] = range_of(dtype);
  const int64_t high = (int64_t{1} << bits) - 1;
  extreme = op == Op::reduce_min ? high : is_signed ? -high - 1 : 0;
  return true;
}

}  // namespace dvm::stream
