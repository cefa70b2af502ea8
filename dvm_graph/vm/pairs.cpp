#include "vm/pairs.h"

#include <algorithm>

namespace dvm {
namespace {

constexpr DType kHalf = DType::f16;  // stands for 16 bits, whatever they are

bool is_even(int64_t number) { return number % 2 == 0; }

class Pairing {
 public:
  Pairing(NormalPlan& plan, const Target& target)
      : plan_(plan), target_(target), inner_(plan.rank - 1) {}

  void run() {
    if (plan_.kind != KernelKind::vector) return;
    const auto moves = [&](const NormalNode& node) { return moves_halves(node); };
    if (std::ranges::none_of(plan_.nodes, moves)) return;
    if (!std::ranges::all_of(plan_.nodes, [&](const NormalNode& node) { return only_moves(node); }))
      return;
    const auto allows = [&](const NormalNode& node) { return allows_pairs(node); };
    if (inner_ >= 0 && !plan_.open[inner_].is_open() && is_even(plan_.extents[inner_]) &&
        std::ranges::all_of(plan_.nodes, allows)) {
      for (NormalNode& node : plan_.nodes) {
        if (moves_halves(node)) pair(node);
      }
      plan_.extents[inner_] /= 2;
    } else if (target_.computes(Family::v_copy, kHalf)) {
      for (NormalNode& node : plan_.nodes) {
        if (moves_halves(node)) keep(node);
      }
    }
  }

 private:
  static bool reads(const NormalNode& node) {
    return node.op == PlanOp::load_ || node.op == PlanOp::gather_;
  }
  // Between 16 bits in memory and more of them in a tile.
  bool moves_halves(const NormalNode& node) const {
    if (!reads(node) && node.op != PlanOp::store_) return false;
    const DType storage = plan_.accesses[node.access].storage;
    return size_of(storage) == 2 && node.dtype != storage && !target_.holds(storage);
  }

  // Elements are computed of none of those numbers: what else there is tells where they are.
  bool only_moves(const NormalNode& node) const {
    if (moves_halves(node)) {
      const NormalAccess& access = plan_.accesses[node.access];
      if (access.packed_panels || access.block != 0) return false;
      return node.op != PlanOp::store_ || stores_what_is_read(node);
    }
    return std::ranges::all_of(node.inputs, [&](int32_t input) {
      return input < 0 || !moves_halves(plan_.nodes[static_cast<size_t>(input)]);
    });
  }

  bool allows_pairs(const NormalNode& node) const {
    if (moves_halves(node)) return in_pairs(node);
    return ((node.axes | node.reduce_axes) >> inner_ & 1) == 0;  // it is of rows
  }

  bool stores_what_is_read(const NormalNode& store) const {
    const NormalNode& source = plan_.nodes[static_cast<size_t>(store.inputs[0])];
    return reads(source) && moves_halves(source) &&
           plan_.accesses[source.access].storage == plan_.accesses[store.access].storage;
  }

  bool in_pairs(const NormalNode& node) const {
    const NormalAccess& access = plan_.accesses[node.access];
    if (access.strides[inner_] != 1 || !(node.axes >> inner_ & 1)) return false;
    for (int axis = 0; axis < inner_; axis++) {
      if (!is_even(access.strides[axis])) return false;
    }
    return is_even(access.offset) && is_even(access.tile_step) && is_even(access.gather_reach) &&
           is_even(node.axis_stride);
  }

  // Each access is of one node.
  void pair(NormalNode& node) {
    NormalAccess& access = plan_.accesses[node.access];
    node.dtype = node.element = access.storage = DType::i32;
    access.element_bytes = static_cast<int64_t>(size_of(DType::i32));
    access.offset /= 2;
    access.tile_step /= 2;
    access.gather_reach /= 2;
    node.axis_stride /= 2;
    for (int axis = 0; axis < inner_; axis++) access.strides[axis] /= 2;
  }

  void keep(NormalNode& node) {
    node.dtype = node.element = plan_.accesses[node.access].storage = kHalf;
  }

  NormalPlan& plan_;
  const Target& target_;
  const int inner_;
};

}  // namespace

void move_pairs(NormalPlan& plan, const Target& target) { Pairing(plan, target).run(); }

}  // namespace dvm
