#include "kernels/fold_positions.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/numbers.h"

namespace dvm {
namespace {

// A number that is counted: an affine function of where in the domain it is.
struct Count {
  int64_t first = 0;
  Strides strides = {};

  // *this += other * factor. False: more than numbers hold.
  bool add(const Count& other, int64_t factor) {
    bool fits = accumulate(first, other.first, factor);
    for (size_t axis = 0; axis < strides.size(); ++axis)
      fits = accumulate(strides[axis], other.strides[axis], factor) && fits;
    return fits;
  }

 private:
  static bool accumulate(int64_t& sum, int64_t number, int64_t factor) {
    int64_t product = 0;
    return !__builtin_mul_overflow(number, factor, &product) &&
           !__builtin_add_overflow(sum, product, &sum);
  }
};

bool fits_operand(int64_t stride) { return stride == static_cast<int32_t>(stride); }

class PositionFolder {
 public:
  PositionFolder(NormalPlan& plan, std::vector<int32_t>& iotas) : plan_(plan), iotas_(iotas) {
    iotas_.clear();
  }

  bool run() {
    const bool counts = std::ranges::any_of(
        plan_.nodes, [](const NormalNode& node) { return node.op == PlanOp::iota_; });
    if (!counts) return false;
    bool changed = false;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      NormalNode& node = plan_.nodes[i];
      for (int32_t& input : node.inputs) {
        const int32_t first = input < 0 ? input : first_alike(input);
        changed |= first != input;
        input = first;
      }
      if (node.op == PlanOp::gather_) {
        changed |= fold_gather(node);
      } else if (node.dtype == DType::i64 && combines(node.op)) {
        changed |= become_iota(node);
      }
      if (node.op == PlanOp::iota_) iotas_.push_back(static_cast<int32_t>(i));
    }
    return changed;
  }

 private:
  static bool combines(PlanOp op) {
    return op == PlanOp::add_ || op == PlanOp::sub_ || op == PlanOp::mul_;
  }

  // The first iota that counts as this node does, if it is one.
  int32_t first_alike(int32_t index) const {
    const NormalNode& node = plan_.nodes[index];
    if (node.op != PlanOp::iota_) return index;
    const NormalAccess& numbers = plan_.accesses[node.access];
    const auto alike = std::ranges::find_if(iotas_, [&](int32_t other) {
      const NormalAccess& others = plan_.accesses[plan_.nodes[other].access];
      return plan_.nodes[other].axes == node.axes && others.offset == numbers.offset &&
             others.strides == numbers.strides;
    });
    return alike == iotas_.end() ? index : *alike;
  }

  const NormalNode& input(const NormalNode& node, int k) const {
    return plan_.nodes[node.inputs[k]];
  }

  static std::optional<int64_t> number(const NormalNode& node) {
    if (node.op != PlanOp::fill_ || node.dtype != DType::i64) return std::nullopt;
    return static_cast<int64_t>(node.immediate);
  }

  std::optional<Count> count_of(const NormalNode& node) const {
    if (const auto constant = number(node)) return Count{*constant, {}};
    if (node.op != PlanOp::iota_ || node.dtype != DType::i64) return std::nullopt;
    const NormalAccess& access = plan_.accesses[node.access];
    return Count{access.offset, access.strides};
  }

  // factor * x, where one operand of a product is a number: the other one is x.
  struct Multiple {
    int operand;
    int64_t factor;
  };
  std::optional<Multiple> multiple(const NormalNode& product) const {
    for (const int k : {0, 1}) {
      if (const auto factor = number(input(product, 1 - k))) return Multiple{k, *factor};
    }
    return std::nullopt;
  }

  bool become_iota(NormalNode& node) {
    Count sum;
    if (node.op == PlanOp::mul_) {
      const auto times = multiple(node);
      if (!times) return false;
      const auto counted = count_of(input(node, times->operand));
      if (!counted || !sum.add(*counted, times->factor)) return false;
    } else {
      const auto left = count_of(input(node, 0)), right = count_of(input(node, 1));
      const int64_t sign = node.op == PlanOp::sub_ ? -1 : 1;
      if (!left || !right || !sum.add(*left, 1) || !sum.add(*right, sign)) return false;
    }
    if (beyond(sum.first, kTooFar) || !std::ranges::all_of(sum.strides, fits_operand)) return false;
    NormalAccess numbers;
    numbers.value = kPlainInteger;
    numbers.storage = DType::i64;
    numbers.element_bytes = 1;
    numbers.offset = sum.first;
    numbers.strides = sum.strides;
    node = {.op = PlanOp::iota_, .dtype = DType::i64, .element = node.element, .axes = node.axes};
    node.access = plan_.add(numbers);
    return true;
  }

  // Of a gather's index: beside + factor * (what `check` checks).
  struct Index {
    const NormalNode* check;
    Count beside;
    int64_t factor;
  };
  std::optional<Index> index_of(const NormalNode& gather) const {
    Index index{&input(gather, 0), {}, 1};
    while (index.check->op != PlanOp::check_index_) {
      const NormalNode& node = *index.check;
      int next = -1;
      if (node.op == PlanOp::mul_) {
        const auto times = multiple(node);
        if (!times || __builtin_mul_overflow(index.factor, times->factor, &index.factor))
          return std::nullopt;
        next = times->operand;
      } else if (node.op == PlanOp::add_) {
        for (const int k : {0, 1}) {
          const auto counted = count_of(input(node, 1 - k));
          if (!counted) continue;
          if (!index.beside.add(*counted, index.factor)) return std::nullopt;
          next = k;
          break;
        }
      }
      if (next < 0) return std::nullopt;
      index.check = &input(node, next);
    }
    return index;
  }

  // No valid index leads out of the axis that the gather reads along.
  bool stays_inside(const Index& index, const NormalNode& gather) const {
    if (index.factor <= 0 || index.check->limit <= 0) return false;
    int64_t least = index.beside.first, greatest = least;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      int64_t far = 0;
      if (__builtin_mul_overflow(index.beside.strides[axis], plan_.extents[axis] - 1, &far))
        return false;
      int64_t& end = far < 0 ? least : greatest;
      if (__builtin_add_overflow(end, far, &end)) return false;
    }
    int64_t far = 0;
    return !__builtin_mul_overflow(index.check->limit - 1, index.factor, &far) &&
           !__builtin_add_overflow(greatest, far, &greatest) && least >= 0 &&
           greatest < gather.limit;
  }

  bool fold_gather(NormalNode& gather) {
    const auto index = index_of(gather);
    if (!index || !stays_inside(*index, gather)) return false;
    NormalAccess& access = plan_.accesses[gather.access];
    Count place{access.offset, access.strides};
    if (!place.add(index->beside, gather.axis_stride)) return false;
    for (int axis = 0; axis < plan_.rank; ++axis) {
      if (plan_.extents[axis] == 1) place.strides[axis] = 0;
    }
    if (!std::ranges::all_of(place.strides, fits_operand)) return false;
    access.offset = place.first;
    access.strides = place.strides;
    gather.inputs[0] = index->check->inputs[0];
    gather.limit = index->check->limit;
    gather.axis_stride *= index->factor;
    access.gather_reach = (gather.limit - 1) * gather.axis_stride;
    return true;
  }

  NormalPlan& plan_;
  std::vector<int32_t>& iotas_;  // before the node at hand
};

}  // namespace

bool fold_positions(NormalPlan& plan) {
  thread_local std::vector<int32_t> iotas;
  return PositionFolder(plan, iotas).run();
}

}  // namespace dvm
