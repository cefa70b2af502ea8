#include "runtime/spaced_rows.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "runtime/executor.h"
#include "runtime/schedule.h"

namespace dvm {
namespace {

// The axis from which on the shapes differ, which others lie before; 0: there is none.
size_t growing_axis(const ModelValue& from, const ModelValue& to) {
  if (from.shape.size() != to.shape.size()) return 0;
  return static_cast<size_t>(std::ranges::mismatch(from.shape, to.shape).in1 - from.shape.begin());
}

class Spacing {
 public:
  Spacing(const Model& body, const ControlCall& call) : before_(body), body_(body), call_(call) {}

  // False: no state grows.
  bool run() {
    find_growing_symbols();
    if (symbols_.empty()) return false;
    if (make_schedule(before_).segments.size() == 1) space_states();  // layouts are decided at once
    find_growing_slots();
    return true;
  }
  Model take() && { return std::move(body_); }

 private:
  void find_growing_symbols() {
    for (uint32_t i = 0; i < call_.states; i++) {
      const uint32_t state = before_.inputs[call_.told() + i];
      const ModelValue& from = before_.values[state];
      const ModelValue& to = before_.values[before_.outputs[call_.said() + i]];
      if (from.opaque || to.opaque || from.shape.size() != to.shape.size()) continue;
      for (const SymbolBinding& binding : before_.bindings) {
        if (binding.value == state && from.shape[binding.axis] != to.shape[binding.axis])
          symbols_.insert(binding.symbol);
      }
    }
  }

  void find_growing_slots() {
    for (const auto& [op, a, b] : body_.dims.instructions) {
      const auto grows = [&](int64_t slot) {
        return body_.growing[static_cast<size_t>(slot)] != 0;
      };
      const bool leaf = op == DimOp::constant || op == DimOp::symbol;
      body_.growing.push_back(leaf ? op == DimOp::symbol && symbols_.contains(a)
                                   : grows(a) || grows(b));
    }
  }

  void space_states() {
    for (uint32_t i = 0; i < call_.states; i++) {
      const uint32_t from = before_.inputs[call_.told() + i];
      const uint32_t to = before_.outputs[call_.said() + i];
      if (is_growing(from, to)) space(from, to);
    }
  }

  bool is_growing(uint32_t from, uint32_t to) const {
    const ModelValue &given = before_.values[from], &made = before_.values[to];
    if (given.opaque || made.opaque || given.dtype != made.dtype || given.shape == made.shape ||
        given.storage != Storage::input || made.storage != Storage::output) {
      return false;
    }
    const size_t axis = growing_axis(given, made);
    const auto is_one = [&](DimSlot slot) {
      const DimInstruction& instruction = before_.dims.instructions[static_cast<size_t>(slot)];
      return instruction.op == DimOp::constant && instruction.a == 1;
    };
    const auto outer = std::span(given.shape).first(axis);
    if (std::ranges::all_of(outer, is_one)) return false;
    return std::ranges::count(before_.inputs, from) == 1 &&
           std::ranges::count(before_.outputs, to) == 1 &&
           std::ranges::count(before_.outputs, from) == 0 && only_kernels_touch(from, to);
  }

  bool only_kernels_touch(uint32_t from, uint32_t to) const {
    const auto is_one = [&](uint32_t value) { return value == from || value == to; };
    for (const Step& step : before_.steps) {
      const OuterCall* const outer = outer_call(step);
      if (outer != nullptr && (std::ranges::any_of(outer->inputs, is_one) ||
                               std::ranges::any_of(outer->outputs, is_one))) {
        return false;
      }
      if (const auto* const write = std::get_if<DimsWrite>(&step); write && is_one(write->value))
        return false;
    }
    return std::ranges::all_of(before_.kernels, [&](const ModelKernel& kernel) {
      return std::ranges::all_of(kernel.plan.nodes, [&](const PlanNode& node) {
        const auto touches = [&](int32_t access) {
          return access >= 0 && is_one(static_cast<uint32_t>(
                                    kernel.plan.accesses[static_cast<size_t>(access)].value));
        };
        const bool moves = node.op == PlanOp::load_ || node.op == PlanOp::store_;
        return !touches(node.weights) && (moves || !touches(node.access));
      });
    });
  }

  void space(uint32_t from, uint32_t to) {
    SpacedRows rows;
    rows.from = from;
    rows.to = to;
    rows.symbol = static_cast<uint32_t>(body_.dims.symbols.size());
    rows.axis = growing_axis(before_.values[from], before_.values[to]);
    body_.dims.symbols.push_back("rows of " + before_.values[from].name);
    const DimSlot apart = slot(DimOp::symbol, rows.symbol);
    rows.from_row = space_value(from, rows.axis, apart);
    rows.to_row = space_value(to, rows.axis, apart);
    for (size_t i = 0; i < before_.kernels.size(); i++) {
      const KernelPlan& plan = before_.kernels[i].plan;
      for (size_t a = 0; a < plan.accesses.size(); a++) {
        const Access& access = plan.accesses[a];
        const bool of_from = access.value == static_cast<int32_t>(from);
        if (!of_from && access.value != static_cast<int32_t>(to)) continue;
        const DimSlot row = of_from ? rows.from_row : rows.to_row;
        rows.touches.push_back({access, plan.extents, row});
        Access& spaced = body_.kernels[i].plan.accesses[a];
        spaced.offset = spread(access.offset, row, apart);
        for (DimSlot& stride : spaced.strides) stride = spread(stride, row, apart);
      }
    }
    body_.spaced.push_back(std::move(rows));
  }

  // The elements of its rows.
  DimSlot space_value(uint32_t value, size_t axis, DimSlot apart) {
    const std::vector<DimSlot>& shape = before_.values[value].shape;
    DimSlot row = shape[axis];
    for (size_t i = axis + 1; i < shape.size(); i++) row = slot(DimOp::mul, row, shape[i]);
    std::vector<DimSlot>& room = body_.values[value].room;
    room.assign(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(axis));
    room.push_back(slot(DimOp::max, row, apart));
    return row;
  }

  // Elements of the tensor as elements of its memory. Constants stay within a row.
  DimSlot spread(DimSlot elements, DimSlot row, DimSlot apart) {
    if (elements == kNoSlot || is_constant(elements)) return elements;
    const DimSlot rows = slot(DimOp::floordiv, elements, slot(DimOp::max, row, constant(1)));
    const DimSlot room = slot(DimOp::max, slot(DimOp::sub, apart, row), constant(0));
    return slot(DimOp::add, elements, slot(DimOp::mul, rows, room));
  }

  bool is_constant(DimSlot slot) const {
    return body_.dims.instructions[static_cast<size_t>(slot)].op == DimOp::constant;
  }
  DimSlot constant(int64_t value) { return slot(DimOp::constant, value); }

  DimSlot slot(DimOp op, int64_t a, int64_t b = 0) {
    std::vector<DimInstruction>& known = body_.dims.instructions;
    const auto at = std::ranges::find_if(known, [&](const DimInstruction& instruction) {
      return instruction.op == op && instruction.a == a && instruction.b == b;
    });
    const auto index = static_cast<DimSlot>(at - known.begin());
    if (at == known.end()) known.push_back({op, a, b});
    return index;
  }

  const Model& before_;
  Model body_;
  const ControlCall& call_;
  std::set<int64_t> symbols_;  // that states bind anew in every turn
};

}  // namespace

void space_rows(ControlCall& call, const std::shared_ptr<SharedDevice>& device) {
  Body& turns = call.bodies[0];
  Spacing spacing(turns.program->model(), call);
  if (!spacing.run()) return;
  turns.program = std::make_shared<const Executor>(std::move(spacing).take(), device, nullptr);
}

bool may_space(const SpacedRows& rows, const Dims& dims) {
  const auto value = [&](DimSlot slot) { return slot == kNoSlot ? 0 : dims.values()[slot]; };
  const auto lies_in_rows = [&](const SpacedRows::Touch& touch) {
    const int64_t row = value(touch.row);
    const Access& access = touch.access;
    if (access.offset != kNoSlot && !dims.ok(access.offset)) return true;  // it does not run
    int64_t low = 0, high = 0;                                             // within a row
    for (size_t axis = 0; axis < access.strides.size(); axis++) {
      const DimSlot slot = access.strides[axis];
      const int64_t extent = value(touch.extents[axis]), stride = value(slot);
      if (!dims.ok(touch.extents[axis]) || extent == 0) return true;
      if (slot == kNoSlot || extent == 1 || stride == 0) continue;
      if (!dims.ok(slot) || row == 0) return false;
      const bool is_constant = dims.is_constant(slot);
      if (!is_constant && stride % row == 0) continue;
      int64_t reach = 0;
      if ((stride < 0 && !is_constant) || __builtin_mul_overflow(extent - 1, stride, &reach) ||
          __builtin_add_overflow(reach, reach < 0 ? low : high, reach < 0 ? &low : &high)) {
        return false;
      }
    }
    const int64_t offset = value(access.offset);
    const bool fixed = access.offset == kNoSlot || dims.is_constant(access.offset);
    if (offset < 0 || row == 0) return false;
    const int64_t begin = fixed ? offset : offset % row;
    return begin + low >= 0 && high < row - begin;
  };
  return dims.ok(rows.from_row) && dims.ok(rows.to_row) && value(rows.from_row) >= 0 &&
         value(rows.to_row) >= value(rows.from_row) &&
         std::ranges::all_of(rows.touches, lies_in_rows);
}

void copy_rows(const RowLayout& rows, const std::byte* from, std::byte* to, int64_t to_pitch) {
  if (rows.bytes == 0) return;
  for (int64_t i = 0; i < rows.count; i++) {
    std::memcpy(to + i * to_pitch, from + i * rows.pitch, static_cast<size_t>(rows.bytes));
  }
}

}  // namespace dvm
