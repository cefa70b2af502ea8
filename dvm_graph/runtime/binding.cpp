#include "runtime/binding.h"

#include <algorithm>
#include <set>

#include "runtime/errors.h"
#include "runtime/tensor.h"

namespace dvm {
namespace {

// The symbols of a slot's expression, in order.
std::set<int64_t> symbols_of(const DimTable& table, DimSlot slot) {
  std::set<int64_t> symbols, pending{slot};
  while (!pending.empty()) {
    const int64_t last = *pending.rbegin();  // operands lie before it: each slot is seen once
    pending.erase(last);
    const DimInstruction& instruction = table.instructions[static_cast<size_t>(last)];
    if (instruction.op == DimOp::constant) continue;
    if (instruction.op == DimOp::symbol) {
      symbols.insert(instruction.a);
    } else {
      pending.insert({instruction.a, instruction.b});
    }
  }
  return symbols;
}

std::string at_axis(size_t axis) { return " (axis " + std::to_string(axis) + ")"; }

}  // namespace

DimBinder::DimBinder(const Model& model)
    : model_(model), by_value_(model.values.size()), bound_by_(model.dims.symbols.size(), -1) {
  for (const SymbolBinding& binding : model.bindings) by_value_[binding.value].push_back(&binding);
}

void DimBinder::clear() { bound_by_.assign(bound_by_.size(), -1); }

void DimBinder::bind(uint32_t value, std::span<const int64_t> shape, Dims& dims) {
  const size_t rank = model_.values[value].shape.size();
  if (shape.size() != rank) {
    const std::string what = name_of(value) + " has rank " + std::to_string(shape.size()) +
                             " (shape " + shape_text(shape) + "), but the model wants rank " +
                             std::to_string(rank);
    if (is_input(value) && rank > 0) throw InputError(what);
    throw ContradictionError(what);
  }
  for (const SymbolBinding* binding : by_value_[value]) {
    const int64_t extent = shape[binding->axis];
    const std::string& symbol = model_.dims.symbols[binding->symbol];
    const int64_t scaled = extent - binding->shift;
    if (scaled % binding->scale != 0 || scaled / binding->scale < 0) {
      throw ContradictionError(name_of(value) + at_axis(binding->axis) + " has extent " +
                               std::to_string(extent) + ", which is not " +
                               model_.dims.text(model_.values[value].shape[binding->axis]) +
                               " for any non-negative integer " + symbol);
    }
    const int64_t bound = scaled / binding->scale;
    const auto number = static_cast<int>(binding->symbol);
    if (!dims.is_bound(number)) {
      dims.bind(number, bound);
      bound_by_[binding->symbol] = value;
    } else if (dims.symbol(number) != bound) {
      const int64_t by = bound_by_[binding->symbol];  // -1: whoever runs this as a body
      throw ContradictionError(symbol + " is " + std::to_string(dims.symbol(number)) + " by " +
                               (by < 0 ? "what is around" : name_of(static_cast<uint32_t>(by))) +
                               " and " + std::to_string(bound) + " by " + name_of(value) +
                               at_axis(binding->axis));
    }
  }
}

void DimBinder::check_known(uint32_t value, std::span<const int64_t> shape,
                            const Dims& dims) const {
  const std::vector<DimSlot>& slots = model_.values[value].shape;
  if (std::ranges::all_of(slots, [&](DimSlot slot) { return dims.ok(slot); })) {
    check(value, shape, dims);
  }
}

void DimBinder::check(uint32_t value, std::span<const int64_t> shape, const Dims& dims) const {
  const std::vector<DimSlot>& slots = model_.values[value].shape;
  for (size_t axis = 0; axis < slots.size(); axis++) {
    const int64_t expected = dims.at(slots[axis], name_of(value));
    if (expected == shape[axis]) continue;
    const DimInstruction& dim = model_.dims.instructions[static_cast<size_t>(slots[axis])];
    const std::string text = model_.dims.text(slots[axis]), actual = std::to_string(shape[axis]);
    if (dim.op == DimOp::symbol) {
      throw ContradictionError(text + " is " + std::to_string(expected) +
                               binders_of(slots[axis], dims) + " and " + actual + " by " +
                               name_of(value) + at_axis(axis));
    }
    const std::string because = dim.op == DimOp::constant
                                    ? std::string()
                                    : ", which is " + text + binders_of(slots[axis], dims);
    const std::string what = name_of(value) + at_axis(axis) + " has extent " + actual +
                             ", expected " + std::to_string(expected) + because;
    if (dim.op == DimOp::constant && is_input(value)) throw ShapeError(what);
    throw ContradictionError(what);
  }
}

bool DimBinder::is_input(uint32_t value) const {
  return std::ranges::find(model_.inputs, value) != model_.inputs.end();
}

void DimBinder::check_assumptions(const Dims& dims) const {
  for (const auto& [condition, message] : model_.checks) {
    if (dims.ok(condition) && dims.values()[condition] == 0) {
      throw ShapeError("this run breaks " + message + binders_of(condition, dims));
    }
  }
}

// " by input_ids" for a lone symbol, " with seq = 3 by input_ids" for an expression.
std::string DimBinder::binders_of(DimSlot slot, const Dims& dims) const {
  const bool lone = model_.dims.instructions[static_cast<size_t>(slot)].op == DimOp::symbol;
  std::string text;
  for (const int64_t symbol : symbols_of(model_.dims, slot)) {
    const auto number = static_cast<size_t>(symbol);
    if (bound_by_[number] < 0) continue;
    const std::string& binder = name_of(static_cast<uint32_t>(bound_by_[number]));
    text += lone ? " by " + binder
                 : (text.empty() ? " with " : ", ") + model_.dims.symbols[number] + " = " +
                       std::to_string(dims.symbol(static_cast<int>(symbol))) + " by " + binder;
  }
  return text;
}

}  // namespace dvm
