#include "runtime/work.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace dvm {
namespace {

int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

int64_t plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

class Counter {
 public:
  Counter(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values)
      : plan_(plan), dims_(dims), values_(values) {}

  KernelWork count() {
    for (const PlanNode& node : plan_.nodes) visit(node);
    for (const auto& [place, bytes] : traffic_) {
      const auto [value, written] = place;
      int64_t& total = written ? work_.written_bytes : work_.read_bytes;
      total = plus(total, std::min(bytes, values_[value].bytes));
    }
    return work_;
  }

 private:
  void visit(const PlanNode& node) {
    const PlanOpInfo& info = info_of(node.op);
    switch (info.kind) {
      case PlanOpKind::access: count_access(node); break;
      case PlanOpKind::map:
        if (info.arity > 0) work_.vector_flops = plus(work_.vector_flops, elements(node.axes));
        break;
      case PlanOpKind::reduce: {
        const uint32_t folded = plan_.nodes[static_cast<size_t>(node.inputs[0])].axes;
        work_.vector_flops = plus(work_.vector_flops, elements(folded));
        break;
      }
      case PlanOpKind::matrix:
        work_.matmul_flops =
            plus(work_.matmul_flops, times(2, elements(node.axes | 1u << folded_axis(node))));
        break;
    }
  }

  // The result of the inner product is what the outer one folds (plan.h).
  int folded_axis(const PlanNode& product) const {
    const bool inner = (product.axes >> plan_.k_axis & 1) != 0;
    return inner ? plan_.inner_k_axis : plan_.k_axis;
  }

  // Along axes of stride 0 an access meets the same elements again; a gather goes where its index
  // says, and panels lie in an order of their own.
  void count_access(const PlanNode& node) {
    const Access& access = plan_.accesses[static_cast<size_t>(node.access)];
    uint32_t axes = node.axes;
    if (node.op != PlanOp::gather_ && !access.packed_panels) {
      for (size_t axis = 0; axis < plan_.extents.size(); axis++) {
        const DimSlot stride = axis < access.strides.size() ? access.strides[axis] : kNoSlot;
        if (stride == kNoSlot || dims_[stride] == 0) axes &= ~(1u << axis);
      }
    }
    const auto element = static_cast<int64_t>(size_of(values_[access.value].dtype));
    int64_t& bytes = traffic_[{access.value, node.op == PlanOp::store_}];
    bytes = plus(bytes, times(elements(axes), element));
  }

  int64_t elements(uint32_t axes) const {
    int64_t count = 1;
    for (size_t axis = 0; axis < plan_.extents.size(); axis++) {
      if ((axes >> axis & 1) != 0) count = times(count, std::max<int64_t>(extent(axis), 0));
    }
    return count;
  }
  int64_t extent(size_t axis) const { return dims_[plan_.extents[axis]]; }

  const KernelPlan& plan_;
  const int64_t* dims_;
  const ValueInfo* values_;
  KernelWork work_;
  std::map<std::pair<int32_t, bool>, int64_t> traffic_;  // by value and direction
};

}  // namespace

void KernelWork::add(const KernelWork& other, int64_t count) {
  matmul_flops = plus(matmul_flops, times(other.matmul_flops, count));
  vector_flops = plus(vector_flops, times(other.vector_flops, count));
  read_bytes = plus(read_bytes, times(other.read_bytes, count));
  written_bytes = plus(written_bytes, times(other.written_bytes, count));
}

KernelWork work_of(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values) {
  return Counter(plan, dims, values).count();
}

}  // namespace dvm
