#include "vm/halves.h"

#include <bit>
#include <cmath>
#include <span>

#include "kernels/half.h"
#include "vm/lower.h"

namespace dvm {
namespace {

constexpr DType kHalf = DType::f16;  // the one that is computed in; others are only held

// Of a node.
constexpr uint8_t kSource = 1;  // is there in 16 bits: a load, a gather, a rounding of the model
constexpr uint8_t kNative = 2;  // is computed in them

// Operands that are numbers: a condition is none.
std::span<const int32_t> numbers_of(const NormalNode& node) {
  const std::span<const int32_t> all(node.inputs);
  return node.op == PlanOp::select_ ? all.subspan(1) : all;
}

bool is_read(PlanOp op) { return op == PlanOp::load_ || op == PlanOp::gather_; }

class Halver {
 public:
  Halver(NormalPlan& plan, const Target& target, HalvesScratch& scratch)
      : plan_(plan), target_(target), scratch_(scratch), roles_(scratch.roles) {}

  void run() {
    if (!holds_any()) return;
    roles_.assign(plan_.nodes.size(), 0);
    begin();
    while (!settled()) {
    }
    rebuild();
  }

 private:
  const NormalNode& node(size_t index) const { return plan_.nodes[index]; }
  DType storage_of(const NormalNode& node) const { return plan_.accesses[node.access].storage; }

  bool holds_any() const {
    for (const NormalNode& node : plan_.nodes) {
      const bool moves = is_read(node.op) || node.op == PlanOp::store_;
      if (moves && is_held(node)) return true;
    }
    return false;
  }
  // A load, gather or store of f32 that lies there in 16 bits.
  bool is_held(const NormalNode& node) const {
    const DType storage = storage_of(node);
    return node.dtype == DType::f32 && is_half(storage) && target_.holds(storage);
  }
  bool rounds(const NormalNode& node) const {
    return node.op == PlanOp::narrow_ && node.dtype == DType::f32 && node.narrow_to == kHalf &&
           target_.holds(kHalf);
  }

  void begin() {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const NormalNode& at = node(i);
      const PlanOpKind kind = info_of(at.op).kind;
      if (is_read(at.op) ? is_held(at) && storage_of(at) == kHalf : rounds(at)) roles_[i] = kSource;
      const Family family = family_of(at.op);
      if (at.element == kHalf && (kind == PlanOpKind::map || kind == PlanOpKind::reduce) &&
          family != Family::count_ && target_.computes(family, kHalf))
        roles_[i] = kNative;
    }
  }

  // Takes back what a node rests on and is read by does not allow. False: something changed.
  bool settled() {
    bool same = true;
    const auto take_back = [&](size_t i) {
      roles_[i] = 0;
      same = false;
    };
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (roles_[i] == kNative && !has_halves(node(i))) take_back(i);
    }
    for (size_t i = plan_.nodes.size(); i-- > 0;) {
      if (roles_[i] == kNative || node(i).op == PlanOp::store_) continue;
      for (const int32_t input : numbers_of(node(i))) {
        if (input >= 0 && is_half_number(input)) take_back(static_cast<size_t>(input));
      }
    }
    for (const NormalNode& at : plan_.nodes) {
      if (at.op != PlanOp::store_ || storage_of(at) == kHalf || !is_half_number(at.inputs[0]))
        continue;
      take_back(static_cast<size_t>(at.inputs[0]));
    }
    return same;
  }

  // The result of a native node, which is no condition.
  bool is_half_number(int32_t index) const {
    return roles_[static_cast<size_t>(index)] == kNative && node(index).dtype == DType::f32;
  }

  bool has_halves(const NormalNode& at) const {
    for (const int32_t input : numbers_of(at)) {
      if (input < 0 || roles_[static_cast<size_t>(input)] != 0) continue;
      if (node(input).op != PlanOp::fill_ || !fits(node(input))) return false;
    }
    return true;
  }
  // A number that is not too large.
  static bool fits(const NormalNode& fill) {
    const float value = number_of(fill);
    return !std::isfinite(value) || std::isfinite(float_of_half(half_of_float(value)));
  }
  static float number_of(const NormalNode& fill) {
    return std::bit_cast<float>(static_cast<uint32_t>(fill.immediate));
  }

  void rebuild() {
    scratch_.nodes.clear();
    scratch_.places.assign(plan_.nodes.size(), {});
    for (size_t i = 0; i < plan_.nodes.size(); ++i) add(i);
    plan_.nodes.swap(scratch_.nodes);
  }

  void add(size_t index) {
    NormalNode at = node(index);
    HalvesScratch::Place& place = scratch_.places[index];
    if (is_read(at.op) && is_held(at)) {
      if (at.inputs[0] >= 0) at.inputs[0] = wide(at.inputs[0]);
      at.dtype = storage_of(at);
      place.half = push(at);
    } else if (at.op == PlanOp::store_ && is_held(at)) {
      at.dtype = storage_of(at);
      at.inputs[0] = half(at.inputs[0], at.dtype);
      push(at);
    } else if (roles_[index] == kSource) {
      place.half = cast(wide(at.inputs[0]), at.axes, kHalf);
    } else if (roles_[index] == kNative) {
      const size_t conditions = at.op == PlanOp::select_ ? 1 : 0;
      if (conditions > 0) at.inputs[0] = wide(at.inputs[0]);
      for (size_t k = conditions; k < std::size(at.inputs); ++k) {
        if (at.inputs[k] >= 0) at.inputs[k] = half(at.inputs[k], kHalf);
      }
      const bool is_number = at.dtype == DType::f32;
      if (is_number) at.dtype = kHalf;
      (is_number ? place.half : place.wide) = push(at);
    } else {
      for (int32_t& input : at.inputs) {
        if (input >= 0) input = wide(input);
      }
      place.wide = push(at);
    }
  }

  int32_t push(const NormalNode& node) {
    scratch_.nodes.push_back(node);
    return static_cast<int32_t>(scratch_.nodes.size()) - 1;
  }

  int32_t cast(int32_t from, uint32_t axes, DType to) {
    return push({.op = PlanOp::cast_, .dtype = to, .axes = axes, .inputs = {from, -1, -1}});
  }

  // Of a node of the plan: the one that has it in f32, or as it always was.
  int32_t wide(int32_t index) {
    HalvesScratch::Place& place = scratch_.places[static_cast<size_t>(index)];
    if (place.wide < 0) place.wide = cast(place.half, node(index).axes, DType::f32);
    return place.wide;
  }

  int32_t half(int32_t index, DType dtype) {
    HalvesScratch::Place& place = scratch_.places[static_cast<size_t>(index)];
    if (place.half >= 0 && scratch_.nodes[static_cast<size_t>(place.half)].dtype == dtype)
      return place.half;
    const NormalNode& at = node(index);
    int32_t found = -1;
    if (at.op == PlanOp::fill_ && dtype == kHalf) {
      NormalNode fill = at;
      fill.dtype = dtype;
      fill.immediate = immediate_bits(dtype, static_cast<double>(number_of(at)), 0);
      found = push(fill);
    } else {
      found = cast(wide(index), at.axes, dtype);
    }
    if (place.half < 0) place.half = found;
    return found;
  }

  NormalPlan& plan_;
  const Target& target_;
  HalvesScratch& scratch_;
  std::vector<uint8_t>& roles_;
};

}  // namespace

void compute_halves(NormalPlan& plan, const Target& target, HalvesScratch& scratch) {
  if (target.holds(DType::f16) || target.holds(DType::bf16)) Halver(plan, target, scratch).run();
}

}  // namespace dvm
