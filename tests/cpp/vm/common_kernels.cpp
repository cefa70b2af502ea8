#include "common_kernels.h"

namespace dvm::testing {
namespace {

constexpr uint32_t kRows = 1, kColumns = 2, kBoth = 3;

PlanBuilder matrix(int64_t rows, int64_t columns) {
  PlanBuilder b;
  b.axis(rows);
  b.axis(columns);
  return b;
}

int32_t add_gelu(PlanBuilder& b, int32_t x) {
  const int32_t half = b.fill(DType::f32, 0.5), root = b.fill(DType::f32, 0.70710678118654752);
  const int32_t one = b.fill(DType::f32, 1);
  const int32_t erf = b.map(PlanOp::erf_, {b.map(PlanOp::mul_, {x, root})});
  return b.map(PlanOp::mul_, {b.map(PlanOp::mul_, {x, half}), b.map(PlanOp::add_, {erf, one})});
}

int32_t add_softmax(PlanBuilder& b, int32_t x, uint32_t axis) {
  const int32_t greatest = b.reduce(PlanOp::reduce_max_, x, axis);
  const int32_t e = b.map(PlanOp::exp_, {b.map(PlanOp::sub_, {x, greatest})});
  return b.map(PlanOp::div_, {e, b.reduce(PlanOp::reduce_sum_, e, axis)});
}

}  // namespace

PlanBuilder layer_norm(int64_t rows, int64_t columns) {
  PlanBuilder b = matrix(rows, columns);
  b.plan.name = "layer_norm";
  const int32_t x = b.input(DType::f32, kBoth);
  const int32_t share = b.fill(DType::f32, 1.0 / static_cast<double>(columns));
  const int32_t mean = b.map(PlanOp::mul_, {b.reduce(PlanOp::reduce_sum_, x, kColumns), share});
  const int32_t centred = b.map(PlanOp::sub_, {x, mean});
  const int32_t squares = b.map(PlanOp::mul_, {centred, centred});
  const int32_t variance =
      b.map(PlanOp::mul_, {b.reduce(PlanOp::reduce_sum_, squares, kColumns), share});
  const int32_t epsilon = b.fill(DType::f32, 1e-5);
  const int32_t scale = b.map(PlanOp::rsqrt_, {b.map(PlanOp::add_, {variance, epsilon})});
  const int32_t normal = b.map(PlanOp::mul_, {centred, scale});
  const int32_t gain = b.input(DType::f32, kColumns), bias = b.input(DType::f32, kColumns);
  b.output(b.map(PlanOp::add_, {b.map(PlanOp::mul_, {normal, gain}), bias}), DType::f32);
  return b;
}

PlanBuilder softmax(int64_t rows, int64_t columns) {
  PlanBuilder b = matrix(rows, columns);
  b.plan.name = "softmax";
  b.output(add_softmax(b, b.input(DType::f32, kBoth), kColumns), DType::f32);
  return b;
}

PlanBuilder attention(int64_t heads, int64_t queries, int64_t keys, int64_t size, bool weighed) {
  PlanBuilder b;
  b.plan.name = "attention";
  b.plan.kind = KernelKind::mix;
  b.plan.weighed = weighed;
  const uint32_t head = 1u << b.axis(heads);
  b.plan.m_axis = b.axis(queries);
  b.plan.n_axis = b.axis(size);
  b.plan.k_axis = b.axis(keys);
  b.plan.inner_k_axis = b.axis(size);
  const uint32_t m = 1u << b.plan.m_axis, n = 1u << b.plan.n_axis, k = 1u << b.plan.k_axis;
  const uint32_t inner_k = 1u << b.plan.inner_k_axis;
  const int32_t q = b.input(DType::f32, head | m | inner_k);
  const int32_t scores = b.inner_matmul(q, b.input(DType::f32, head | k | inner_k));
  const int32_t weights = add_softmax(b, scores, k);
  b.output(b.matmul(weights, b.input(DType::f32, head | k | n)), DType::f32);
  return b;
}

PlanBuilder matmul_softmax(int64_t m, int64_t n, int64_t k, bool weighed) {
  PlanBuilder b;
  b.plan.name = "matmul_softmax";
  b.plan.kind = KernelKind::mix;
  b.plan.weighed = weighed;
  b.plan.m_axis = b.axis(m);
  b.plan.n_axis = b.axis(n);
  b.plan.k_axis = b.axis(k);
  const int32_t c = b.matmul(b.input(DType::f32, 0b101), b.input(DType::f32, 0b110));
  b.output(add_softmax(b, c, 1u << b.plan.n_axis), DType::f32);
  return b;
}

PlanBuilder gelu(int64_t elements) {
  PlanBuilder b;
  b.plan.name = "gelu";
  b.axis(elements);
  b.output(add_gelu(b, b.input(DType::f32, kRows)), DType::f32);
  return b;
}

PlanBuilder exp_and_sum(int64_t rows, int64_t columns) {
  PlanBuilder b = matrix(rows, columns);
  b.plan.name = "exp_and_sum";
  const int32_t e = b.map(PlanOp::exp_, {b.input(DType::f32, kBoth)});
  b.output(e, DType::f32);
  b.output(b.reduce(PlanOp::reduce_sum_, e, kColumns), DType::f32);
  return b;
}

PlanBuilder matmul_bias_gelu(int64_t m, int64_t n, int64_t k, int columns_per_panel) {
  PlanBuilder b;
  b.plan.name = "matmul_bias_gelu";
  b.plan.kind = KernelKind::mix;
  b.plan.m_axis = b.axis(m);
  b.plan.n_axis = b.axis(n);
  b.plan.k_axis = b.axis(k);
  const int32_t a = b.input(DType::f32, 0b101);
  Access panels = b.dense(DType::f32, {2, 1});
  panels.packed_panels = true;
  panels.value =
      b.value(DType::f32, (n + columns_per_panel - 1) / columns_per_panel * columns_per_panel * k);
  const int32_t c = b.matmul(a, b.load(panels, 0b110));
  b.output(add_gelu(b, b.map(PlanOp::add_, {c, b.input(DType::f32, 0b010)})), DType::f32);
  return b;
}

}  // namespace dvm::testing
