#include "kernels/narrow_integers.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "kernels/numbers.h"

namespace dvm {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(),
                  kGreatest = std::numeric_limits<int32_t>::max();

// Ends of what a node computes.
struct Range {
  int64_t least, greatest;

  bool fits() const { return least >= kLeast && greatest <= kGreatest; }
};
using Known = std::optional<Range>;

// Of ends that fit: their sums and products do not overflow.
Range sum(const Range& a, const Range& b) { return {a.least + b.least, a.greatest + b.greatest}; }
Range negative(const Range& a) { return {-a.greatest, -a.least}; }
Range product(const Range& a, const Range& b) {
  const auto [least, greatest] = std::minmax(
      {a.least * b.least, a.least * b.greatest, a.greatest * b.least, a.greatest * b.greatest});
  return {least, greatest};
}
Range either(const Range& a, const Range& b) {
  return {std::min(a.least, b.least), std::max(a.greatest, b.greatest)};
}

bool compares(PlanOp op) {
  switch (op) {
    case PlanOp::eq_:
    case PlanOp::ne_:
    case PlanOp::lt_:
    case PlanOp::le_:
    case PlanOp::gt_:
    case PlanOp::ge_: return true;
    default: return false;
  }
}

// What is there in 64 bits and, at the cost of a few elements or of none, in 32.
bool is_source(const NormalNode& node) {
  return node.op == PlanOp::fill_ || node.op == PlanOp::iota_ || node.op == PlanOp::cast_;
}

// Where a node of the plan is in the one that is rebuilt; -1: nowhere yet.
struct Place {
  int32_t wide = -1, narrow = -1;
};

struct Scratch {
  std::vector<Known> ranges;  // of nodes that have 32 bits
  std::vector<Place> places;
  std::vector<NormalNode> nodes;  // as they were
};

class IntegerNarrower {
 public:
  IntegerNarrower(NormalPlan& plan, Scratch& scratch)
      : plan_(plan), ranges_(scratch.ranges), places_(scratch.places), old_(scratch.nodes) {}

  bool run() {
    const bool counts = std::ranges::any_of(plan_.nodes, [](const NormalNode& node) {
      return node.dtype == DType::i64 && (node.op == PlanOp::iota_ || node.op == PlanOp::cast_);
    });
    if (!counts) return false;
    ranges_.assign(plan_.nodes.size(), std::nullopt);
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      ranges_[i] = range_of(plan_.nodes[i]);
      if (ranges_[i] && !ranges_[i]->fits()) ranges_[i].reset();
    }
    while (!settled()) {
    }
    if (!any_use()) return false;
    rebuild();
    return true;
  }

 private:
  // Operands that are numbers: a condition is none.
  static std::span<const int32_t> numbers_of(const NormalNode& node) {
    const auto arity = static_cast<size_t>(info_of(node.op).arity);
    const std::span<const int32_t> all(node.inputs, arity);
    return node.op == PlanOp::select_ ? all.subspan(1) : all;
  }

  const Known& range(int32_t index) const { return ranges_[static_cast<size_t>(index)]; }

  Known range_of(const NormalNode& node) const {
    if (node.dtype != DType::i64) return std::nullopt;
    if (node.op == PlanOp::fill_) {
      const auto number = static_cast<int64_t>(node.immediate);
      return Range{number, number};
    }
    if (node.op == PlanOp::iota_) return counted(plan_.accesses[node.access]);
    if (node.op == PlanOp::cast_) return converted(plan_.nodes[node.inputs[0]]);
    const auto numbers = numbers_of(node);
    if (numbers.empty()) return std::nullopt;
    for (const int32_t input : numbers) {
      if (!range(input)) return std::nullopt;
    }
    return computed(node, *range(numbers.front()), *range(numbers.back()));
  }

  Known counted(const NormalAccess& numbers) const {
    if (numbers.value != kPlainInteger) return std::nullopt;
    Range all{numbers.offset, numbers.offset};
    for (int axis = 0; axis < plan_.rank; ++axis) {
      int64_t far = 0;
      if (__builtin_mul_overflow(numbers.strides[axis], plan_.extents[axis] - 1, &far))
        return std::nullopt;
      int64_t& end = far < 0 ? all.least : all.greatest;
      if (__builtin_add_overflow(end, far, &end)) return std::nullopt;
    }
    return all;
  }

  static Known converted(const NormalNode& source) {
    if (source.dtype == DType::b8) return Range{0, 1};
    if (source.dtype == DType::i32) return Range{kLeast, kGreatest};
    return std::nullopt;
  }

  Known computed(const NormalNode& node, const Range& a, const Range& b) const {
    switch (node.op) {
      case PlanOp::add_: return sum(a, b);
      case PlanOp::sub_: return sum(a, negative(b));
      case PlanOp::mul_: return product(a, b);
      case PlanOp::neg_: return negative(a);
      case PlanOp::min_:
      case PlanOp::max_:
      case PlanOp::select_: return either(a, b);
      case PlanOp::reduce_min_:
      case PlanOp::reduce_max_: return a;
      case PlanOp::reduce_sum_: return summed(node, a);
      default: return std::nullopt;
    }
  }

  Known summed(const NormalNode& node, const Range& each) const {
    const int64_t count = plan_.elements(node.reduce_axes);
    Range all{};
    if (__builtin_mul_overflow(each.least, count, &all.least) ||
        __builtin_mul_overflow(each.greatest, count, &all.greatest))
      return std::nullopt;
    return either(all, Range{0, 0});  // as are the sums of parts
  }

  bool is_narrow(int32_t index) const { return range(index).has_value(); }
  bool is_computed(int32_t index) const {
    return is_narrow(index) && !is_source(plan_.nodes[static_cast<size_t>(index)]);
  }

  bool is_counted(int32_t index) const {
    return plan_.nodes[static_cast<size_t>(index)].op == PlanOp::iota_;
  }

  bool takes_narrow(size_t reader) const {
    const NormalNode& node = plan_.nodes[reader];
    if (node.op == PlanOp::cast_ || is_computed(static_cast<int32_t>(reader))) return true;
    return compares(node.op) && is_narrow(node.inputs[0]) && is_narrow(node.inputs[1]);
  }

  // Takes back what a node rests on and is read by does not allow. False: something changed.
  bool settled() {
    bool same = true;
    const auto take_back = [&](int32_t i) {
      ranges_[static_cast<size_t>(i)].reset();
      same = false;
    };
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const NormalNode& node = plan_.nodes[i];
      if (!is_computed(static_cast<int32_t>(i))) continue;
      const bool rests =
          std::ranges::all_of(numbers_of(node), [this](int32_t k) { return is_narrow(k); });
      if (!rests) take_back(static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      if (takes_narrow(i)) continue;
      for (const int32_t input : plan_.nodes[i].inputs) {
        if (input < 0 || !is_computed(input)) continue;
        if (!is_reduce(plan_.nodes[static_cast<size_t>(input)].op)) take_back(input);
      }
    }
    return same;
  }

  // Whether anything is computed in 32 bits that was not.
  bool any_use() const {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanOp op = plan_.nodes[i].op;
      const int32_t source = plan_.nodes[i].inputs[0];
      const bool uses = compares(op)          ? takes_narrow(i)
                        : op == PlanOp::cast_ ? is_counted(source) && is_narrow(source)
                                              : is_computed(static_cast<int32_t>(i));
      if (uses) return true;
    }
    return false;
  }

  void rebuild() {
    old_.swap(plan_.nodes);
    plan_.nodes.clear();
    places_.assign(old_.size(), {});
    for (size_t i = 0; i < old_.size(); ++i) add(i);
  }

  const NormalNode& old(int32_t index) const { return old_[static_cast<size_t>(index)]; }

  void add(size_t index) {
    NormalNode node = old_[index];
    Place& place = places_[index];
    const bool computed = range(static_cast<int32_t>(index)) && !is_source(node);
    if (computed || both_narrow(node)) {
      const bool is_select = node.op == PlanOp::select_;
      for (int k = 0; k < info_of(node.op).arity; ++k) {
        int32_t& input = node.inputs[k];
        input = is_select && k == 0 ? wide(input) : narrow(input);
      }
      if (computed) node.dtype = DType::i32;
      (computed ? place.narrow : place.wide) = plan_.add(node);
      return;
    }
    const int32_t source = node.inputs[0];
    if (node.op == PlanOp::cast_ && range(source) && node.dtype != DType::i64) {
      const bool exists = !is_source(old(source)) || old(source).op == PlanOp::iota_;
      if (exists && node.dtype == DType::i32) {
        place.wide = narrow(source);
        return;
      }
      if (exists) {
        node.inputs[0] = narrow(source);
        place.wide = plan_.add(node);
        return;
      }
    }
    for (int32_t& input : node.inputs) {
      if (input >= 0) input = wide(input);
    }
    place.wide = plan_.add(node);
  }

  bool both_narrow(const NormalNode& node) const {
    return compares(node.op) && range(node.inputs[0]) && range(node.inputs[1]);
  }

  int32_t cast(int32_t from, uint32_t axes, DType to) {
    return plan_.add({.op = PlanOp::cast_, .dtype = to, .axes = axes, .inputs = {from, -1, -1}});
  }

  int32_t wide(int32_t index) {
    Place& place = places_[static_cast<size_t>(index)];
    if (place.wide < 0) place.wide = cast(place.narrow, old(index).axes, DType::i64);
    return place.wide;
  }

  int32_t narrow(int32_t index) {
    Place& place = places_[static_cast<size_t>(index)];
    if (place.narrow < 0) place.narrow = narrowed(old(index), place.wide);
    return place.narrow;
  }

  // Of a source.
  int32_t narrowed(const NormalNode& source, int32_t wide) {
    if (source.op == PlanOp::fill_) {
      NormalNode fill = source;
      fill.dtype = DType::i32;
      fill.immediate = immediate_bits(DType::i32, 0, static_cast<int64_t>(source.immediate));
      return plan_.add(fill);
    }
    if (source.op == PlanOp::iota_) {
      NormalNode iota = source;
      iota.dtype = DType::i32;
      return plan_.add(iota);
    }
    const int32_t from = plan_.nodes[static_cast<size_t>(wide)].inputs[0];
    const bool is_there = plan_.nodes[static_cast<size_t>(from)].dtype == DType::i32;
    return is_there ? from : cast(from, source.axes, DType::i32);
  }

  NormalPlan& plan_;
  std::vector<Known>& ranges_;
  std::vector<Place>& places_;
  std::vector<NormalNode>& old_;
};

}  // namespace

bool narrow_integers(NormalPlan& plan) {
  thread_local Scratch scratch;
  return IntegerNarrower(plan, scratch).run();
}

}  // namespace dvm
