#include "reference_plan.h"

#include <stdexcept>
#include <vector>

#include "scalar.h"
#include "vm/isa.h"

namespace dvm::reference {
namespace {

using Coordinates = std::vector<int64_t>;

class Evaluation {
 public:
  Evaluation(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
             std::byte* const* buffers, int columns)
      : plan_(plan), dims_(dims), values_(values), buffers_(buffers), columns_(columns) {
    for (const DimSlot slot : plan.extents) extents_.push_back(dims[slot]);
  }

  void run() {
    results_.resize(plan_.nodes.size());
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& node = plan_.nodes[i];
      results_[i].resize(static_cast<size_t>(volume(node.axes)));
      over(node.axes, [&](const Coordinates& at) { evaluate(i, node, at); });
    }
  }

 private:
  int64_t volume(uint32_t axes) const {
    int64_t n = 1;
    for (size_t a = 0; a < extents_.size(); ++a) {
      if (axes >> a & 1) n *= extents_[a];
    }
    return n;
  }

  template <typename Body>
  void over(uint32_t axes, Body body, Coordinates at = {}) const {
    at.resize(extents_.size(), 0);
    const int64_t n = volume(axes);
    for (int64_t i = 0; i < n; ++i) {
      int64_t rest = i;
      for (size_t a = extents_.size(); a-- > 0;) {
        if (!(axes >> a & 1)) continue;
        at[a] = rest % extents_[a];
        rest /= extents_[a];
      }
      body(at);
    }
  }

  size_t index_in(int32_t node, const Coordinates& at) const {
    int64_t index = 0;
    for (size_t a = 0; a < extents_.size(); ++a) {
      if (plan_.nodes[node].axes >> a & 1) index = index * extents_[a] + at[a];
    }
    return static_cast<size_t>(index);
  }

  Scalar value_of(int32_t node, const Coordinates& at) const {
    return results_[node][index_in(node, at)];
  }

  int64_t slot(DimSlot s) const { return s == kNoSlot ? 0 : dims_[s]; }

  std::byte* address(const PlanNode& node, const Coordinates& at, int64_t extra = 0) const {
    const Access& access = plan_.accesses[node.access];
    int64_t element = slot(access.offset) + extra;
    for (size_t a = 0; a < access.strides.size(); ++a) {
      if (node.axes >> a & 1) element += at[a] * slot(access.strides[a]);
    }
    const auto bytes = static_cast<int64_t>(size_of(storage(node)));
    return buffers_[access.value] + element * bytes;
  }

  DType storage(const PlanNode& node) const {
    return values_[plan_.accesses[node.access].value].dtype;
  }

  int64_t checked_index(int64_t index, int64_t limit) const {
    if (index < 0) index += limit;
    if (index < 0 || index >= limit) throw std::out_of_range("index");
    return index;
  }

  // A level, less its zero, times its scale.
  Scalar unpacked(const Access& access, int64_t n, int64_t k) const {
    const int64_t blocks = (extents_[plan_.k_axis] + access.block - 1) / access.block;
    const int64_t bits = access.block_bits, in_word = word_levels(bits);
    const int64_t first = access.block_rows - access.block / in_word;
    const auto row = [&](DType dtype, int64_t at) {
      const int64_t block = n / columns_ * blocks + k / access.block;
      const int64_t element = (block * access.block_rows + at) * columns_ + n % columns_;
      return read(dtype, buffers_[access.value] + element * 4);
    };
    const int64_t word = row(DType::i32, first + k % access.block / in_word).integer;
    const int64_t mask = (int64_t{1} << bits) - 1;
    const auto level =
        static_cast<double>((word >> bits * (k % in_word) & mask) - middle_level(bits));
    return {(level - (first == 2 ? row(DType::f32, 1).real : 0)) * row(DType::f32, 0).real, 0};
  }

  Scalar panel_element(const PlanNode& node, const Coordinates& at) const {
    const Access& access = plan_.accesses[node.access];
    if (access.block > 0) return unpacked(access, at[plan_.n_axis], at[plan_.k_axis]);
    const int64_t width = node.dtype == DType::f64 ? columns_ / 2 : columns_;
    const bool inner = plan_.inner_k_axis >= 0 && (node.axes >> plan_.inner_k_axis & 1);
    const int n_axis = inner ? plan_.k_axis : plan_.n_axis;
    const int k_axis = inner ? plan_.inner_k_axis : plan_.k_axis;
    const int64_t n_extent = extents_[n_axis], k_extent = extents_[k_axis];
    const int64_t n = at[n_axis], k = at[k_axis];
    const int64_t bundle = bundle_of(node), steps = (k_extent + bundle - 1) / bundle * bundle;
    const int64_t entry = (n_extent + width - 1) / width * width * steps;
    int64_t element =
        n / width * (steps * width) + k / bundle * bundle * width + n % width * bundle + k % bundle;
    for (int a = 0; a < static_cast<int>(extents_.size()); ++a) {
      if (a == n_axis || a == k_axis || !(node.axes >> a & 1)) continue;
      element += at[a] * slot(access.strides[a]) / (n_extent * k_extent) * entry;
    }
    return read(storage(node),
                buffers_[access.value] + element * static_cast<int64_t>(size_of(storage(node))));
  }

  // Steps of k that lie side by side in panels of an operand.
  int64_t bundle_of(const PlanNode& b) const {
    if (b.dtype == DType::i32) return bundle_steps(DType::i8);
    return rounds() ? bundle_steps(DType::bf16) : 1;
  }

  // The products of the plan round their operands to bf16.
  bool rounds() const {
    for (const PlanNode& node : plan_.nodes) {
      if (node.op == PlanOp::matmul_ && node.narrow_to == DType::bf16) return true;
    }
    return false;
  }

  void evaluate(size_t i, const PlanNode& node, const Coordinates& at) {
    Scalar in[3];
    for (int k = 0; k < 3; ++k) {
      if (node.inputs[k] >= 0 && node.op != PlanOp::matmul_ && node.reduce_axes == 0) {
        in[k] = value_of(node.inputs[k], at);
      }
    }
    Scalar& out = results_[i][index_in(static_cast<int32_t>(i), at)];
    switch (node.op) {
      case PlanOp::load_:
        out = plan_.accesses[node.access].packed_panels ? panel_element(node, at)
                                                        : read(storage(node), address(node, at));
        break;
      case PlanOp::store_: write(storage(node), address(node, at), in[0]); break;
      case PlanOp::gather_: {
        const int64_t index = checked_index(in[0].integer, slot(node.limit));
        out = read(storage(node), address(node, at, index * slot(node.offset)));
        break;
      }
      case PlanOp::fill_: out = rounded(node.dtype, {node.scalar, node.integer}); break;
      case PlanOp::iota_:
        out.integer = slot(node.offset);
        for (size_t a = 0; a < node.strides.size(); ++a) {
          if (node.axes >> a & 1) out.integer += at[a] * slot(node.strides[a]);
        }
        break;
      case PlanOp::check_index_:
        out.integer = checked_index(in[0].integer, slot(node.limit));
        break;
      case PlanOp::cast_:
        out = convert(plan_.nodes[node.inputs[0]].dtype, node.dtype, in[0]);
        break;
      case PlanOp::lookup_: {
        const int32_t table = plan_.accesses[node.weights].value;
        const int64_t entry = in[0].integer & (kTableEntries - 1);
        out = read(values_[table].dtype, buffers_[table] + entry);
        break;
      }
      case PlanOp::narrow_: out = rounded(node.narrow_to, in[0]); break;
      case PlanOp::matmul_: out = multiply(node, at); break;
      default: out = node.reduce_axes ? fold(node, at) : map(node, in);
    }
  }

  Scalar map(const PlanNode& node, const Scalar* in) const {
    const DType dtype = node.op == PlanOp::select_ ? node.dtype : plan_.nodes[node.inputs[0]].dtype;
    return apply(node.op, dtype, in[0], in[1], in[2]);
  }

  Scalar fold(const PlanNode& node, const Coordinates& at) const {
    Scalar result = identity(node.op, node.dtype);
    over(
        node.reduce_axes,
        [&](const Coordinates& point) {
          // Sums and products in double: the order of additions is not the plan's business.
          const Scalar x = value_of(node.inputs[0], point);
          if (is_floating(node.dtype) && node.op == PlanOp::reduce_sum_) {
            result.real += x.real;
          } else {
            result = combine(node.op, node.dtype, result, x);
          }
        },
        at);
    return rounded(node.dtype, result);
  }

  // An element of A that is rounded with those that meet the same block of B.
  Scalar rounded_left(const PlanNode& node, const Coordinates& at) const {
    const PlanNode& b = plan_.nodes[static_cast<size_t>(node.inputs[1])];
    const auto axis = static_cast<size_t>(plan_.k_axis);
    const auto element = [&](int64_t k) {
      Coordinates point = at;
      point[axis] = k;
      return value_of(node.inputs[0], point).real;
    };
    const int64_t block = plan_.accesses[static_cast<size_t>(b.access)].block;
    return {rounded_in_block(at[axis], extents_[axis], block, element), 0};
  }

  Scalar multiply(const PlanNode& node, const Coordinates& at) const {
    const bool inner = node.axes >> plan_.k_axis & 1;
    const bool bytes = node.dtype == DType::i32;
    const DType operand = node.narrow_to == DType::bf16 ? DType::bf16 : node.dtype;
    const DType left = bytes ? DType::u8 : operand, right = bytes ? DType::i8 : operand;
    Scalar sum;
    over(
        1u << (inner ? plan_.inner_k_axis : plan_.k_axis),
        [&](const Coordinates& point) {
          const Scalar a = node.narrow_to == DType::i8
                               ? rounded_left(node, point)
                               : rounded(left, value_of(node.inputs[0], point));
          const Scalar b = rounded(right, value_of(node.inputs[1], point));
          sum.real += a.real * b.real;
          sum.integer += a.integer * b.integer;
        },
        at);
    return rounded(node.dtype, sum);
  }

  const KernelPlan& plan_;
  const int64_t* dims_;
  const ValueInfo* values_;
  std::byte* const* buffers_;
  const int columns_;
  std::vector<int64_t> extents_;
  std::vector<std::vector<Scalar>> results_;
};

}  // namespace

void run_plan(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values,
              std::byte* const* buffers, int columns_per_panel) {
  Evaluation(plan, dims, values, buffers, columns_per_panel).run();
}

}  // namespace dvm::reference
