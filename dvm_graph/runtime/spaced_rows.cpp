#include "runtime/spaced_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "runtime/executor.h"
#include "runtime/growing_states.h"
#include "runtime/schedule.h"

namespace dvm {
namespace {

using By = SpacedRows::By;

// The axis from which on the shapes differ, which others lie before; 0: there is none.
size_t growing_axis(const ModelValue& from, const ModelValue& to) {
  if (from.shape.size() != to.shape.size()) return 0;
  return static_cast<size_t>(std::ranges::mismatch(from.shape, to.shape).in1 - from.shape.begin());
}

class Spacing {
 public:
  Spacing(const Model& body, const ControlCall& call)
      : before_(body),
        body_(body),
        call_(call),
        appended_(growing_states(body, call.states, call.told(), call.said())) {}

  // False: no extent is another from turn to turn.
  bool run() {
    find_growing_symbols();
    if (symbols_.empty()) return false;
    find_growing_slots();
    if (make_schedule(before_).segments.size() == 1) {  // layouts are decided at once
      space_states();
      space_results();
      find_growing_slots();
    }
    return true;
  }
  Model take() && { return std::move(body_); }

 private:
  void find_growing_symbols() {
    for (const SymbolBinding& binding : before_.bindings) {  // by what a turn finds
      if (before_.values[binding.value].storage != Storage::input) symbols_.insert(binding.symbol);
    }
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

  // Of the slots that are new since.
  void find_growing_slots() {
    for (size_t i = body_.growing.size(); i < body_.dims.instructions.size(); i++) {
      const auto& [op, a, b] = body_.dims.instructions[i];
      const bool leaf = op == DimOp::constant || op == DimOp::symbol;
      body_.growing.push_back(leaf ? op == DimOp::symbol && symbols_.contains(a)
                                   : grows(a) || grows(b));
    }
  }
  bool grows(int64_t slot) const { return body_.growing[static_cast<size_t>(slot)] != 0; }

  void space_states() {
    for (uint32_t i = 0; i < call_.states; i++) {
      const uint32_t from = before_.inputs[call_.told() + i];
      const uint32_t to = before_.outputs[call_.said() + i];
      if (!may_change_places(from, to)) continue;
      const bool appended = std::ranges::any_of(
          appended_, [&](const GrowingState& state) { return state.from == from; });
      if (appended) {
        space(By::room, {from, to}, growing_axis(before_.values[from], before_.values[to]));
      } else if (const size_t axis = row_axis(from); axis > 0 && axis == row_axis(to)) {
        space(By::place, {from}, axis);
        replaced_.insert(to);
      }
    }
  }

  // Whether only kernels know where the state is, before and behind a turn.
  bool may_change_places(uint32_t from, uint32_t to) const {
    const ModelValue &given = before_.values[from], &made = before_.values[to];
    if (given.opaque || made.opaque || given.dtype != made.dtype || given.shape == made.shape ||
        given.storage != Storage::input || made.storage != Storage::output) {
      return false;
    }
    return has_several(given.shape, growing_axis(given, made)) &&
           std::ranges::count(before_.inputs, from) == 1 &&
           std::ranges::count(before_.outputs, to) == 1 &&
           std::ranges::count(before_.outputs, from) == 0 && only_kernels_touch(from) &&
           only_kernels_touch(to);
  }

  // Whether there may be more than one row behind the first axes.
  bool has_several(std::span<const DimSlot> shape, size_t axes) const {
    return !std::ranges::all_of(shape.first(axes), [&](DimSlot slot) {
      const DimInstruction& instruction = before_.dims.instructions[static_cast<size_t>(slot)];
      return instruction.op == DimOp::constant && instruction.a == 1;
    });
  }

  // The last axis whose extent is another from turn to turn, where others lie before it; 0: there
  // is none.
  size_t row_axis(uint32_t value) const {
    const std::vector<DimSlot>& shape = before_.values[value].shape;
    size_t axis = shape.size();
    while (axis > 0 && !grows(shape[axis - 1])) axis--;
    return axis > 0 && has_several(shape, axis - 1) ? axis - 1 : 0;
  }

  // What kernels leave for others, or for the turn behind. Values whose rows are equally long get
  // equal steps, as those have that one is stored in the place of.
  void space_results() {
    std::map<DimSlot, size_t> known;
    for (uint32_t value = 0; value < before_.values.size(); value++) {
      const ModelValue& made = before_.values[value];
      if (made.storage != Storage::arena && !replaced_.contains(value)) continue;
      const size_t axis = row_axis(value);
      if (axis == 0 || !only_kernels_touch(value)) continue;
      const auto [at, added] = known.emplace(row_of(value, axis), body_.spaced.size());
      if (added) begin(By::length, made.name);
      space(body_.spaced[at->second], value, axis);
    }
  }

  bool only_kernels_touch(uint32_t value) const {
    for (const Step& step : before_.steps) {
      const OuterCall* const outer = outer_call(step);
      if (outer != nullptr && (std::ranges::count(outer->inputs, value) > 0 ||
                               std::ranges::count(outer->outputs, value) > 0)) {
        return false;
      }
      if (const auto* const write = std::get_if<DimsWrite>(&step); write && write->value == value)
        return false;
    }
    return std::ranges::all_of(before_.kernels, [&](const ModelKernel& kernel) {
      return std::ranges::all_of(kernel.plan.nodes, [&](const PlanNode& node) {
        const auto touches = [&](int32_t access) {
          return access >= 0 && kernel.plan.accesses[static_cast<size_t>(access)].value ==
                                    static_cast<int32_t>(value);
        };
        const bool moves =
            node.op == PlanOp::load_ || node.op == PlanOp::store_ || node.op == PlanOp::gather_;
        return !touches(node.weights) && (moves || !touches(node.access));
      });
    });
  }

  SpacedRows& begin(By by, const std::string& name) {
    SpacedRows& rows = body_.spaced.emplace_back();
    rows.by = by;
    rows.symbol = static_cast<uint32_t>(body_.dims.symbols.size());
    body_.dims.symbols.push_back("rows of " + name);
    return rows;
  }

  void space(By by, std::initializer_list<uint32_t> values, size_t axis) {
    SpacedRows& rows = begin(by, before_.values[*values.begin()].name);
    for (const uint32_t value : values) space(rows, value, axis);
  }

  void space(SpacedRows& rows, uint32_t value, size_t axis) {
    const DimSlot apart = slot(DimOp::symbol, rows.symbol);
    const std::vector<DimSlot>& shape = before_.values[value].shape;
    const DimSlot row = row_of(value, axis);
    rows.values.push_back({value, axis, row});
    std::vector<DimSlot>& room = body_.values[value].room;
    room.assign(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(axis));
    room.push_back(slot(DimOp::max, row, apart));
    for (size_t i = 0; i < before_.kernels.size(); i++) {
      const KernelPlan& plan = before_.kernels[i].plan;
      for (size_t a = 0; a < plan.accesses.size(); a++) {
        const Access& access = plan.accesses[a];
        if (access.value != static_cast<int32_t>(value)) continue;
        KernelPlan& changed = body_.kernels[i].plan;
        SpacedRows::Touch touch{access, plan.extents, row};
        Access& spaced = changed.accesses[a];
        spaced.offset = spread(access.offset, row, apart);
        for (DimSlot& stride : spaced.strides) stride = spread(stride, row, apart);
        for (size_t n = 0; n < plan.nodes.size(); n++) {
          const PlanNode& node = plan.nodes[n];
          if (node.op != PlanOp::gather_ || node.access != static_cast<int32_t>(a)) continue;
          touch.access.strides.push_back(node.offset);
          touch.extents.push_back(node.limit);
          changed.nodes[n].offset = spread(node.offset, row, apart);
        }
        rows.touches.push_back(std::move(touch));
      }
    }
  }

  DimSlot row_of(uint32_t value, size_t axis) {
    const std::vector<DimSlot>& shape = before_.values[value].shape;
    DimSlot row = shape[axis];
    for (size_t i = axis + 1; i < shape.size(); i++) row = slot(DimOp::mul, row, shape[i]);
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
  const std::vector<GrowingState> appended_;
  std::set<int64_t> symbols_;    // that are bound anew in every turn
  std::set<uint32_t> replaced_;  // results that are states of the turn behind, anew
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
  const auto may_lie = [&](const SpacedRows::Value& known) {
    return dims.ok(known.row) && value(known.row) >= value(rows.values[0].row);
  };
  return std::ranges::all_of(rows.values, may_lie) && value(rows.values[0].row) >= 0 &&
         std::ranges::all_of(rows.touches, lies_in_rows);
}

int64_t aligned_row(int64_t bytes) {
  constexpr uint64_t kLine = 64;
  const auto count = static_cast<uint64_t>(bytes);
  return static_cast<int64_t>(count < kLine ? std::bit_ceil(count)
                                            : (count + kLine - 1) / kLine * kLine);
}

int64_t first_row(int64_t count) {
  constexpr int64_t kBytes = int64_t{1} << 14;  // in all
  return aligned_row(kBytes / count);
}

int64_t distance_of(const SpacedRows& rows, const Model& model, const Dims& dims, int64_t most) {
  if (!may_space(rows, dims)) return 0;
  int64_t count = 1, most_size = 1, least_size = most;
  for (const SpacedRows::Value& known : rows.values) {
    const ModelValue& value = model.values[known.value];
    const auto size = static_cast<int64_t>(size_of(value.dtype));
    most_size = std::max(most_size, size);
    least_size = std::min(least_size, size);
    int64_t before = 1;
    for (size_t axis = 0; axis < known.axis; axis++) {
      const DimSlot extent = value.shape[axis];
      if (!dims.ok(extent) || __builtin_mul_overflow(before, dims.values()[extent], &before))
        return 0;
    }
    count = std::max(count, before);
  }
  const int64_t row = dims.values()[rows.values[0].row];
  if (row == 0 || row > most / most_size / count) return 0;
  int64_t bytes = first_row(count);
  while (bytes / least_size < row) bytes = aligned_row(bytes + bytes / 2 + 1);
  const int64_t apart = bytes / least_size;
  return apart > most / most_size / count ? 0 : apart;
}

void copy_rows(const RowLayout& rows, const std::byte* from, std::byte* to, int64_t to_pitch) {
  if (rows.bytes == 0) return;
  for (int64_t i = 0; i < rows.count; i++) {
    std::memcpy(to + i * to_pitch, from + i * rows.pitch, static_cast<size_t>(rows.bytes));
  }
}

}  // namespace dvm
