#include "runtime/dims.h"

#include <algorithm>

#include "runtime/errors.h"

namespace dvm {
namespace {

struct DimOpInfo {
  const char* name;
  const char* infix;
};

constexpr DimOpInfo kDimOps[] = {
#define DVM_DIM_OP(enumerator, name, infix) {name, infix},
    DVM_DIM_OPS(DVM_DIM_OP)
#undef DVM_DIM_OP
};

DimState checked(bool overflow) { return overflow ? DimState::overflow : DimState::ok; }

DimState divide(int64_t a, int64_t b, int64_t& quotient, int64_t& remainder) {
  if (b == 0) return a == 0 ? DimState::ok : DimState::division_by_zero;
  if (b == -1) return checked(__builtin_sub_overflow(int64_t{0}, a, &quotient));
  quotient = a / b;
  remainder = a % b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    quotient--;
    remainder += b;
  }
  return DimState::ok;
}

DimState apply(DimOp op, int64_t a, int64_t b, int64_t& out) {
  int64_t unused = 0;
  switch (op) {
    case DimOp::add: return checked(__builtin_add_overflow(a, b, &out));
    case DimOp::sub: return checked(__builtin_sub_overflow(a, b, &out));
    case DimOp::mul: return checked(__builtin_mul_overflow(a, b, &out));
    case DimOp::floordiv: return divide(a, b, out, unused);
    case DimOp::mod: return divide(a, b, unused, out);
    case DimOp::min: out = std::min(a, b); break;
    case DimOp::max: out = std::max(a, b); break;
    case DimOp::eq: out = a == b; break;
    case DimOp::ne: out = a != b; break;
    case DimOp::lt: out = a < b; break;
    case DimOp::le: out = a <= b; break;
    case DimOp::logical_and: out = a != 0 && b != 0; break;
    case DimOp::logical_or: out = a != 0 || b != 0; break;
    case DimOp::when: out = b; break;  // where it is 0: see Dims::step
    case DimOp::constant:
    case DimOp::symbol: break;  // leaves: see Dims::step
  }
  return DimState::ok;
}

const char* complaint(DimState state) {
  switch (state) {
    case DimState::unbound: return "is not known yet";
    case DimState::overflow: return "does not fit 64 bits";
    case DimState::division_by_zero: return "divides by zero";
    default: return "is fine";
  }
}

}  // namespace

DimOp dim_op_from_name(const std::string& name) {
  for (size_t i = 0; i < std::size(kDimOps); i++) {
    if (name == kDimOps[i].name) return static_cast<DimOp>(i);
  }
  throw CompileError("unknown dim operator " + name);
}

std::string DimTable::text(DimSlot slot, int depth) const {
  const DimInstruction& instruction = instructions[static_cast<size_t>(slot)];
  if (instruction.op == DimOp::constant) return std::to_string(instruction.a);
  if (instruction.op == DimOp::symbol) return symbols[static_cast<size_t>(instruction.a)];
  if (depth == 0) return "...";
  const auto operand = [&](int64_t index) {
    const DimOp op = instructions[static_cast<size_t>(index)].op;
    const std::string inner = text(static_cast<DimSlot>(index), depth - 1);
    return op == DimOp::constant || op == DimOp::symbol ? inner : "(" + inner + ")";
  };
  return operand(instruction.a) + kDimOps[static_cast<size_t>(instruction.op)].infix +
         operand(instruction.b);
}

std::vector<char> DimTable::nonnegative() const {
  std::vector<char> known;
  for (const auto& [op, a, b] : instructions) {
    const auto is = [&](int64_t slot) { return known[static_cast<size_t>(slot)] != 0; };
    switch (op) {
      case DimOp::constant: known.push_back(a >= 0); break;
      case DimOp::symbol: known.push_back(true); break;
      case DimOp::add:
      case DimOp::mul:
      case DimOp::floordiv:
      case DimOp::mod:
      case DimOp::min: known.push_back(is(a) && is(b)); break;
      case DimOp::max: known.push_back(is(a) || is(b)); break;
      default: known.push_back(false);
    }
  }
  return known;
}

Dims::Dims(const DimTable& table)
    : table_(&table),
      symbols_(table.symbols.size()),
      bound_(table.symbols.size()),
      values_(table.instructions.size()),
      states_(table.instructions.size(), DimState::unbound) {}

void Dims::clear() { std::fill(bound_.begin(), bound_.end(), char{0}); }

void Dims::bind(int symbol, int64_t value) {
  symbols_[static_cast<size_t>(symbol)] = value;
  bound_[static_cast<size_t>(symbol)] = 1;
}

DimState Dims::step(const DimInstruction& instruction, int64_t& out) const {
  const auto a = static_cast<size_t>(instruction.a), b = static_cast<size_t>(instruction.b);
  if (instruction.op == DimOp::constant) {
    out = instruction.a;
    return DimState::ok;
  }
  if (instruction.op == DimOp::symbol) {
    if (!bound_[a]) return DimState::unbound;
    out = symbols_[a];
    return DimState::ok;
  }
  if (states_[a] != DimState::ok) return states_[a];
  if (instruction.op == DimOp::when && values_[a] == 0) {
    out = 0;
    return DimState::ok;
  }
  if (states_[b] != DimState::ok) return states_[b];
  return apply(instruction.op, values_[a], values_[b], out);
}

void Dims::evaluate() {
  all_ok_ = true;
  for (size_t i = 0; i < values_.size(); i++) {
    int64_t value = 0;
    states_[i] = step(table_->instructions[i], value);
    const bool ok = states_[i] == DimState::ok;
    values_[i] = ok ? value : kBadDim + static_cast<int64_t>(states_[i]);
    all_ok_ &= ok;
  }
}

int64_t Dims::at(DimSlot slot, const std::string& what) const {
  if (ok(slot)) return values_[static_cast<size_t>(slot)];
  throw ShapeError("a dim of " + what + ", " + table_->text(slot) + ", " + complaint(state(slot)));
}

}  // namespace dvm
