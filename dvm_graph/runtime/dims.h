// The dims of a model: an integer program in SSA form, lowered from symbolic expressions once
// (symbolic/lower.py has the same table of operators) and evaluated at each run.
//
// Arithmetic is checked. A slot whose value cannot be had (its symbol is not bound yet, overflow,
// division by zero) is *bad*, and so is what depends on it; that is an error only where the slot is
// used, because guarded alternatives may rest on dims that make no sense for this run.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/plan.h"

namespace dvm {

// DVM_DIM_OP(enumerator, name in lower.py, infix form). Operands a and b are earlier slots, except
// for the two leaves. Division rounds down, mod has the sign of the divisor; 0 divided by 0 is 0.
// `when` is 0 where its condition a is, even if b is bad.
#define DVM_DIM_OPS(DVM_DIM_OP)           \
  DVM_DIM_OP(constant, "const", "")       \
  DVM_DIM_OP(symbol, "symbol", "")        \
  DVM_DIM_OP(add, "add", " + ")           \
  DVM_DIM_OP(sub, "sub", " - ")           \
  DVM_DIM_OP(mul, "mul", "*")             \
  DVM_DIM_OP(floordiv, "floordiv", "//")  \
  DVM_DIM_OP(mod, "mod", " % ")           \
  DVM_DIM_OP(min, "min", " min ")         \
  DVM_DIM_OP(max, "max", " max ")         \
  DVM_DIM_OP(eq, "eq", " == ")            \
  DVM_DIM_OP(ne, "ne", " != ")            \
  DVM_DIM_OP(lt, "lt", " < ")             \
  DVM_DIM_OP(le, "le", " <= ")            \
  DVM_DIM_OP(logical_and, "and", " and ") \
  DVM_DIM_OP(logical_or, "or", " or ")    \
  DVM_DIM_OP(when, "when", " ? ")

enum class DimOp : uint8_t {
#define DVM_DIM_OP(enumerator, name, infix) enumerator,
  DVM_DIM_OPS(DVM_DIM_OP)
#undef DVM_DIM_OP
};

DimOp dim_op_from_name(const std::string& name);  // throws CompileError

struct DimInstruction {
  DimOp op = DimOp::constant;
  int64_t a = 0, b = 0;
};

struct DimTable {
  std::vector<std::string> symbols;  // names
  std::vector<DimInstruction> instructions;

  // For messages: "seq + 1". Expressions nested deeper than `depth` are cut short.
  std::string text(DimSlot slot, int depth = 6) const;
  // By slot: whether it is 0 or more whatever its symbols are, as far as its operands tell.
  std::vector<char> nonnegative() const;
};

// Never a size: what bad slots hold, so that comparing values compares states too.
inline constexpr int64_t kBadDim = std::numeric_limits<int64_t>::min();

enum class DimState : uint8_t { ok, unbound, overflow, division_by_zero };

// Values of all slots for given symbols.
class Dims {
 public:
  explicit Dims(const DimTable& table);

  void clear();  // no symbol is bound any more
  void bind(int symbol, int64_t value);
  bool is_bound(int symbol) const { return bound_[static_cast<size_t>(symbol)]; }
  int64_t symbol(int number) const { return symbols_[static_cast<size_t>(number)]; }

  void evaluate();  // all slots, after symbols were bound

  const int64_t* values() const { return values_.data(); }
  size_t size() const { return values_.size(); }
  DimState state(DimSlot slot) const { return states_[static_cast<size_t>(slot)]; }
  bool is_constant(DimSlot slot) const {
    return table_->instructions[static_cast<size_t>(slot)].op == DimOp::constant;
  }
  bool ok(DimSlot slot) const { return state(slot) == DimState::ok; }
  bool all_ok() const { return all_ok_; }
  const std::vector<int64_t>& all() const { return values_; }

  // The value; throws ShapeError, mentioning `what`, where the slot is bad.
  int64_t at(DimSlot slot, const std::string& what) const;

 private:
  DimState step(const DimInstruction& instruction, int64_t& out) const;

  const DimTable* table_;
  std::vector<int64_t> symbols_;
  std::vector<char> bound_;
  std::vector<int64_t> values_;  // kBadDim + state where bad
  std::vector<DimState> states_;
  bool all_ok_ = false;
};

}  // namespace dvm
