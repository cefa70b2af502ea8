// Small models made by hand, for the tests of the executor.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/executor.h"

namespace dvm::testing {

inline constexpr DimSlot kN = 0, kOne = 1, kIsTwo = 3;

// Slots: 0 is the symbol n, 1 is 1, 2 is 2, 3 is n == 2.
inline Model empty_model() {
  Model model;
  model.dims.symbols = {"n"};
  model.dims.instructions = {
      {DimOp::symbol, 0, 0}, {DimOp::constant, 1, 0}, {DimOp::constant, 2, 0}, {DimOp::eq, 0, 2}};
  return model;
}

// A float32 vector of n elements.
inline uint32_t add_vector(Model& model, std::string name, Storage storage) {
  ModelValue value;
  value.name = std::move(name);
  value.storage = storage;
  value.shape = {kN};
  model.values.push_back(std::move(value));
  const auto index = static_cast<uint32_t>(model.values.size() - 1);
  if (storage == Storage::input) {
    if (model.inputs.empty()) model.bindings.push_back({0, index, 0, 1, 0});
    model.inputs.push_back(index);
  }
  if (storage == Storage::output) model.outputs.push_back(index);
  return index;
}

// to = op(from), element by element. Returns the call.
inline uint32_t add_map(Model& model, PlanOp op, const std::vector<uint32_t>& from, uint32_t to,
                        DimSlot guard = kNoSlot, std::vector<uint32_t> fallback = {}) {
  ModelKernel& kernel = model.kernels.emplace_back();
  KernelPlan& plan = kernel.plan;
  plan.name = "map_to_" + model.values[to].name;
  plan.extents = {kN};
  const auto node = [&](PlanOp node_op) -> PlanNode& {
    PlanNode& added = plan.nodes.emplace_back();
    added.op = node_op;
    added.axes = 1;
    return added;
  };
  const auto access = [&](uint32_t value) {
    plan.accesses.push_back({static_cast<int32_t>(value), kNoSlot, {kOne}, false});
    return static_cast<int32_t>(plan.accesses.size() - 1);
  };
  for (const uint32_t value : from) node(PlanOp::load_).access = access(value);
  PlanNode& map = node(op);
  for (size_t i = 0; i < from.size(); i++) map.inputs[i] = static_cast<int32_t>(i);
  PlanNode& store = node(PlanOp::store_);
  store.inputs[0] = static_cast<int32_t>(from.size());
  store.access = access(to);
  model.calls.push_back(
      {static_cast<uint32_t>(model.kernels.size() - 1), guard, std::move(fallback)});
  return static_cast<uint32_t>(model.calls.size() - 1);
}

inline void add_launch(Model& model, std::vector<uint32_t> calls) {
  model.steps.emplace_back(LaunchStage{std::move(calls)});
}

// y = |x| + |x| ... through intermediate values; for n == 2 the last step is speculated to be neg.
inline Model speculating_model() {
  Model model = empty_model();
  const uint32_t x = add_vector(model, "x", Storage::input);
  const uint32_t a = add_vector(model, "a", Storage::arena);
  const uint32_t b = add_vector(model, "b", Storage::arena);
  const uint32_t t = add_vector(model, "t", Storage::arena);
  const uint32_t y = add_vector(model, "y", Storage::output);
  add_launch(model, {add_map(model, PlanOp::abs_, {x}, a), add_map(model, PlanOp::neg_, {x}, b)});
  const uint32_t first = add_map(model, PlanOp::neg_, {b}, t);
  const uint32_t second = add_map(model, PlanOp::add_, {a, t}, y);
  add_launch(model, {add_map(model, PlanOp::neg_, {a}, y, kIsTwo, {first, second})});
  return model;
}

// What speculating_model gives for an element.
inline float speculated(float x, int64_t n) {
  const float absolute = x < 0 ? -x : x;
  return n == 2 ? -absolute : absolute + x;
}

inline Tensor vector_tensor(std::vector<float>& data) {
  data.reserve(1);  // an address even where there are no elements: without one it would be absent
  return {DType::f32,
          {static_cast<int64_t>(data.size())},
          reinterpret_cast<std::byte*>(data.data()),
          nullptr};
}

}  // namespace dvm::testing
