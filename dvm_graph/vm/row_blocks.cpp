#include "vm/row_blocks.h"

#include <cmath>

#include "vm/strips.h"

namespace dvm {
namespace {

constexpr int kMostNodes = 64;

// Elements; the passes over shorter rows cost less than what it takes to begin one for every block.
int64_t least_row(const Target& target) {
  return std::lround(target.costs.in_vector_elements(target.costs.pass_start));
}

class Marker {
 public:
  Marker(TileCode& code, const Target& target, RowScratch& scratch)
      : code_(code), uses_(scratch.uses), least_row_(least_row(target)) {}

  bool run() {
    const size_t count = code_.instructions.size();
    bool all = false;
    for (size_t i = 0; i < count;) {
      const size_t end = end_of_block(i);
      all = i == 0 && end == count;
      for (; i + 1 < end; ++i) code_.instructions[i].flags |= kRows;
      i = end > i ? i + 1 : group_end(i);
    }
    return all;
  }

 private:
  // Behind the last of the instructions from `begin` on that may run together; `begin`: none.
  size_t end_of_block(size_t begin) {
    rows_ = rows_of(code_.instructions[begin]);
    if (rows_ == 0) return begin;
    uses_.clear();
    size_t end = begin;
    int groups = 0, passes = 0;  // those that go over rows, not over one value of each
    bool reduces = false;
    while (end < code_.instructions.size() && groups < kMostRowGroups) {
      const size_t next = group_end(end);
      bool fits = true;
      for (size_t i = end; i < next && fits; ++i) fits = add(code_.instructions[i]);
      if (!fits) break;
      const TileInstruction& last = code_.instructions[next - 1];
      reduces |= is_reduction(last);
      passes += row_loop(last) != 2;
      end = next;
      ++groups;
    }
    return passes > 1 && reduces ? end : begin;
  }

  size_t group_end(size_t i) const {
    const size_t last = code_.instructions.size() - 1;
    while (i < last && (code_.instructions[i].flags & kJoined) != 0) ++i;
    return i + 1;
  }

  // The extent register of the rows; 0: none that could be told from elements.
  static uint8_t rows_of(const TileInstruction& instruction) {
    if (is_reduction(instruction)) return instruction.extents[0];
    return instruction.extents[0] == 0 ? instruction.extents[1] : 0;
  }

  // The loop that goes over the rows; -1: none does.
  int row_loop(const TileInstruction& instruction) const {
    const uint8_t* e = instruction.extents;
    if (is_reduction(instruction)) {
      return e[0] == rows_ && e[2] == 0 && instruction.operands[1].middle == 1 ? 0 : -1;
    }
    if (e[0] != 0) return -1;
    if (e[1] == rows_) return 1;
    return e[1] == 0 && e[2] == rows_ ? 2 : -1;
  }

  bool add(const TileInstruction& instruction) {
    constexpr uint8_t kOther = kChunks | kAccumulate | kAccumulateAlways;
    if (!joins(instruction)) return false;
    if (instruction.changed_mask != 0 || (instruction.flags & kOther) != 0) return false;
    const int loop = row_loop(instruction);
    if (loop < 0) return false;
    if (loop != 2 && (elements(instruction) < least_row_ || keeps_rows(instruction))) return false;
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (!add(instruction, k, loop)) return false;
    }
    return true;
  }

  bool add(const TileInstruction& instruction, int k, int loop) {
    const TileOperand& operand = instruction.operands[k];
    if (operand.space == Space::immediate) return true;
    const bool local = operand.space == Space::local;
    const int32_t strides[] = {operand.outer, operand.middle, operand.inner};
    const int32_t stride = strides[loop];
    const bool aligned = stride > 0 && span(instruction, k, loop) <= stride;
    const int32_t id = local ? operand.index : code_.pointers[operand.index].buffer;
    for (RowScratch::Use& use : uses_) {
      if (use.space != operand.space || use.id != id) continue;
      const bool alike =
          use.index == operand.index && use.offset == operand.offset && use.stride == stride;
      use.aligned &= aligned && alike;
      use.written |= k == 0;
      return use.aligned || (alike ? !use.written : !use.written && !local);
    }
    uses_.push_back({operand.space, id, operand.index, operand.offset, stride, k == 0, aligned});
    return aligned || k != 0;
  }

  // Rows that local memory keeps from pass to pass are in a cache as they are.
  static bool keeps_rows(const TileInstruction& instruction) {
    return instruction.operands[0].space == Space::local && !is_reduction(instruction) &&
           (instruction.flags & kTransient) == 0;
  }

  // Of a row, in a full tile.
  int64_t elements(const TileInstruction& instruction) const {
    return code_.full_extent(instruction.extents[is_reduction(instruction) ? 1 : 2]);
  }

  // Elements from the first to the last of a row.
  int64_t span(const TileInstruction& instruction, int k, int loop) const {
    const TileOperand& operand = instruction.operands[k];
    const bool folded = is_reduction(instruction);
    if (loop == 2 || (folded && k == 0)) return 1;
    return (elements(instruction) - 1) * (folded ? operand.middle : operand.inner) + 1;
  }

  TileCode& code_;
  std::vector<RowScratch::Use>& uses_;
  const int64_t least_row_;
  uint8_t rows_ = 0;
};

}  // namespace

namespace {

// Computed anew for a second reader (strips.cpp).
bool is_cheap(const NormalPlan& plan, const NormalNode& node, uint32_t row) {
  if (node.op != PlanOp::add_ && node.op != PlanOp::sub_ && node.op != PlanOp::mul_) return false;
  int rows = 0;
  for (int i = 0; i < 2; ++i) {
    const NormalNode& input = plan.nodes[node.inputs[i]];
    if ((input.axes & row) == 0) continue;
    if (input.op != PlanOp::load_) return false;
    ++rows;
  }
  return rows == 1;
}

}  // namespace

bool passes_by_rows(const NormalPlan& plan, const Target& target) {
  if (plan.rank < 2 || plan.nodes.size() > kMostNodes) return false;
  const uint32_t row = 1u << (plan.rank - 1);
  if (plan.reduced_axes() != row) return false;
  if (plan.extents[plan.rank - 1] < least_row(target)) return false;
  int uses[kMostNodes] = {};
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    if (plan.nodes[i].axes != 0 && plan.nodes[i].dtype != DType::f32) return false;
    const NormalNode* last = nullptr;
    for (const int32_t input : plan.nodes[i].inputs) {
      if (input < 0 || &plan.nodes[input] == last) continue;
      last = &plan.nodes[input];
      if (last->op == PlanOp::load_ || (last->axes & row) == 0) continue;
      const int most = is_cheap(plan, *last, row) ? 2 : 1;
      if (++uses[input] > most) return false;
    }
  }
  return true;
}

bool mark_row_blocks(TileCode& code, const Target& target, RowScratch& scratch) {
  return Marker(code, target, scratch).run();
}

}  // namespace dvm
