#include "plan_builder.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "scalar.h"
#include "vm/interpret.h"

namespace dvm::testing {

DimSlot PlanBuilder::slot(int64_t value) {
  dims.push_back(value);
  return static_cast<DimSlot>(dims.size() - 1);
}

std::vector<DimSlot> PlanBuilder::slots(const std::vector<int64_t>& numbers) {
  std::vector<DimSlot> result;
  for (const int64_t number : numbers) result.push_back(number == 0 ? kNoSlot : slot(number));
  return result;
}

int PlanBuilder::axis(int64_t extent) {
  plan.extents.push_back(slot(extent));
  return static_cast<int>(plan.extents.size()) - 1;
}

int32_t PlanBuilder::value(DType dtype, int64_t elements) {
  values.push_back({dtype, elements * static_cast<int64_t>(size_of(dtype))});
  value_elements.push_back(elements);
  return static_cast<int32_t>(values.size() - 1);
}

Access PlanBuilder::dense(DType dtype, const std::vector<int>& axes, int64_t offset,
                          int64_t padding) {
  std::vector<int64_t> strides(plan.extents.size(), 0);
  int64_t stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    if (i == 0) stride += padding;
    strides[axes[i]] = stride;
    stride *= extent(axes[i]);
  }
  Access access;
  access.value = value(dtype, offset + stride);
  if (offset != 0) access.offset = slot(offset);
  access.strides = slots(strides);
  return access;
}

int32_t PlanBuilder::load(const Access& access, uint32_t axes) {
  PlanNode node{};
  node.op = PlanOp::load_;
  node.dtype = register_dtype(values[access.value].dtype);
  node.axes = axes;
  node.access = static_cast<int32_t>(plan.accesses.size());
  plan.accesses.push_back(access);
  plan.nodes.push_back(node);
  return static_cast<int32_t>(plan.nodes.size() - 1);
}

void PlanBuilder::store(int32_t input, const Access& access, uint32_t axes) {
  PlanNode node{};
  node.op = PlanOp::store_;
  node.dtype = plan.nodes[input].dtype;
  node.axes = axes;
  node.inputs[0] = input;
  node.access = static_cast<int32_t>(plan.accesses.size());
  plan.accesses.push_back(access);
  plan.nodes.push_back(node);
}

std::vector<int> PlanBuilder::axis_list(uint32_t axes) const {
  std::vector<int> list;
  for (int a = 0; a < static_cast<int>(plan.extents.size()); ++a) {
    if (axes >> a & 1) list.push_back(a);
  }
  return list;
}

int32_t PlanBuilder::input(DType dtype, uint32_t axes) {
  return load(dense(dtype, axis_list(axes)), axes);
}

void PlanBuilder::output(int32_t node, DType dtype) {
  const uint32_t axes = plan.nodes[node].axes;
  store(node, dense(dtype, axis_list(axes)), axes);
}

int32_t PlanBuilder::fill(DType dtype, double scalar) {
  PlanNode node{};
  node.op = PlanOp::fill_;
  node.dtype = dtype;
  node.scalar = scalar;
  node.integer = static_cast<int64_t>(scalar);
  plan.nodes.push_back(node);
  return static_cast<int32_t>(plan.nodes.size() - 1);
}

int32_t PlanBuilder::map(PlanOp op, const std::vector<int32_t>& inputs) {
  PlanNode node{};
  node.op = op;
  node.dtype = plan.nodes[inputs[op == PlanOp::select_ ? 1 : 0]].dtype;
  const bool tests =
      (op >= PlanOp::eq_ && op <= PlanOp::ge_) || (op >= PlanOp::isnan_ && op <= PlanOp::isfinite_);
  if (tests) node.dtype = DType::b8;
  for (size_t i = 0; i < inputs.size(); ++i) {
    node.inputs[i] = inputs[i];
    node.axes |= plan.nodes[inputs[i]].axes;
  }
  plan.nodes.push_back(node);
  return static_cast<int32_t>(plan.nodes.size() - 1);
}

int32_t PlanBuilder::cast(int32_t input, DType dtype) {
  const int32_t node = map(PlanOp::cast_, {input});
  plan.nodes[node].dtype = dtype;
  return node;
}

int32_t PlanBuilder::reduce(PlanOp op, int32_t input, uint32_t axes) {
  const int32_t node = map(op, {input});
  plan.nodes[node].reduce_axes = axes;
  plan.nodes[node].axes &= ~axes;
  return node;
}

int32_t PlanBuilder::matmul(int32_t a, int32_t b) {
  const int32_t node = map(PlanOp::matmul_, {a, b});
  plan.nodes[node].axes =
      (plan.nodes[node].axes | 1u << plan.m_axis | 1u << plan.n_axis) & ~(1u << plan.k_axis);
  return node;
}

int32_t PlanBuilder::inner_matmul(int32_t a, int32_t b) {
  const int32_t node = map(PlanOp::matmul_, {a, b});
  plan.nodes[node].axes =
      (plan.nodes[node].axes | 1u << plan.m_axis | 1u << plan.k_axis) & ~(1u << plan.inner_k_axis);
  return node;
}

int32_t PlanBuilder::iota(int64_t base, const std::vector<int64_t>& strides, uint32_t axes) {
  PlanNode node{};
  node.op = PlanOp::iota_;
  node.dtype = DType::i64;
  node.axes = axes;
  node.offset = slot(base);
  node.strides = slots(strides);
  plan.nodes.push_back(node);
  return static_cast<int32_t>(plan.nodes.size() - 1);
}

int32_t PlanBuilder::lookup(int32_t bytes, DType dtype) {
  const int32_t node = map(PlanOp::lookup_, {bytes});
  Access table;
  table.value = value(dtype, kTableEntries);
  table.strides.assign(plan.extents.size(), kNoSlot);
  plan.nodes[node].weights = static_cast<int32_t>(plan.accesses.size());
  plan.accesses.push_back(table);
  return node;
}

int32_t PlanBuilder::gather(int32_t index, const Access& access, int64_t limit, int64_t stride,
                            uint32_t axes) {
  const int32_t node = load(access, axes);
  plan.nodes[node].op = PlanOp::gather_;
  plan.nodes[node].inputs[0] = index;
  plan.nodes[node].limit = slot(limit);
  plan.nodes[node].offset = slot(stride);
  return node;
}

Buffers::Buffers(const std::vector<ValueInfo>& values, int64_t workspace_bytes) {
  const auto add = [this](int64_t bytes) {
    // Exactly as large as it says, so that an address sanitizer sees the first byte too many.
    storage_.emplace_back(static_cast<size_t>(bytes));
    table_.push_back(storage_.back().data());
  };
  add(workspace_bytes);
  add(0);
  table_[1] = nullptr;
  for (const ValueInfo& value : values) add(value.bytes);
}

void Buffers::randomise(const std::vector<ValueInfo>& values, std::mt19937& random) {
  for (size_t v = 0; v < values.size(); ++v) {
    const auto bytes = static_cast<int64_t>(size_of(values[v].dtype));
    for (int64_t i = 0; i < values[v].bytes / bytes; ++i) {
      const int64_t integer = static_cast<int64_t>(random() % 17) - 8;
      reference::write(values[v].dtype, at(v) + i * bytes,
                       {static_cast<double>(integer) * 0.25,
                        values[v].dtype == DType::b8 ? integer & 1 : integer});
    }
  }
}

void Buffers::copy_from(const Buffers& other, const std::vector<ValueInfo>& values) {
  for (size_t v = 0; v < values.size(); ++v) {
    std::copy_n(other.at(v), values[v].bytes, at(v));
  }
}

std::string difference(const std::vector<ValueInfo>& values, const Buffers& want,
                       const Buffers& got, double tolerance) {
  for (size_t v = 0; v < values.size(); ++v) {
    const DType dtype = values[v].dtype;
    const auto bytes = static_cast<int64_t>(size_of(dtype));
    for (int64_t i = 0; i < values[v].bytes / bytes; ++i) {
      const auto x = reference::read(dtype, want.at(v) + i * bytes);
      const auto y = reference::read(dtype, got.at(v) + i * bytes);
      const bool same = x.real == y.real || (std::isnan(x.real) && std::isnan(y.real)) ||
                        std::fabs(x.real - y.real) <= tolerance * (1 + std::fabs(x.real));
      if (same && x.integer == y.integer) continue;
      char text[160];
      std::snprintf(text, sizeof text, "v%zu[%lld] of %s: wants %g, got %g", v,
                    static_cast<long long>(i), name_of(dtype),
                    x.real + static_cast<double>(x.integer),
                    y.real + static_cast<double>(y.integer));
      return text;
    }
  }
  return {};
}

Trap run_kernel(const CompiledKernel& kernel, const InstructionTable& table, int cores,
                size_t local_bytes, std::byte* const* buffers) {
  std::vector<std::vector<std::byte>> local(cores,
                                            std::vector<std::byte>(local_bytes, std::byte{0xa5}));
  for (const CompiledKernel::Stage& stage : kernel.stages) {
    for (uint32_t p = 0; p < stage.program_count; ++p) {
      const Program& program = kernel.programs[stage.first_program + p];
      const int64_t claim = program.header().preferred_claim;
      int turn = 0;
      for (int64_t begin = 0; begin < program.header().tiles; begin += claim, ++turn) {
        Core core;
        core.local = local[turn % cores].data();
        core.local_bytes = local_bytes;
        run_tiles(program, table, core, buffers, begin,
                  std::min(begin + claim, program.header().tiles));
        if (core.trap.kind != TrapKind::none) return core.trap;
      }
    }
  }
  return {};
}

}  // namespace dvm::testing
