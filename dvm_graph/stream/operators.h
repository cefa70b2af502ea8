// The basic operators that a stream takes: those of kernel plans (kernels/ops.def) and views.
//
// What they take and give is said once, in ir/operators.py, whose rows `declare` hands over when
// the first stream opens.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/dtype.h"
#include "kernels/plan.h"

namespace dvm::stream {

enum class Op : uint8_t {
#define DVM_PLAN_OP(name, kind, arity) name,
#include "kernels/ops.def"
#undef DVM_PLAN_OP
  reshape,
  transpose,
  broadcast_to,
  slice,
  view,
  concat,
  count_
};

enum class Kind : uint8_t { map, reduce, matrix, view, gather, source, other };
enum class Result : uint8_t { same, boolean, attr, sum };

struct OpInfo {
  bool known = false;
  Kind kind = Kind::other;
  int8_t arity = 0;  // -1: any
  Result result = Result::same;
  uint32_t takes = 0;  // dtypes of its last operand, a bit each
};

const OpInfo& info_of(Op op);
const char* name_of(Op op);
bool find_op(const std::string& name, Op& op);  // false: there is none of this name
constexpr PlanOp plan_op(Op op) { return static_cast<PlanOp>(op); }
constexpr bool is_relayout(Op op) {
  return op == Op::reshape || op == Op::transpose || op == Op::broadcast_to;
}
constexpr bool is_strided(Op op) { return op == Op::view || op == Op::slice; }
constexpr bool is_view(Op op) { return is_relayout(op) || is_strided(op); }

void declare(Op op, const OpInfo& info);

constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || is_half(dtype);
}
// As tensors call it in Python: "float32".
const char* long_name_of(DType dtype);
bool find_dtype(const std::string& name, DType& dtype);

// Which operators may leave the range of a narrow storage dtype (kernels/registers.py).
bool needs_narrow(Op op, DType dtype);
bool cast_needs_narrow(DType source, DType target);
// What a maximum or minimum over no elements is, where it is not that of the register dtype.
bool extreme_of_nothing(Op op, DType dtype, int64_t& extreme);

}  // namespace dvm::stream
