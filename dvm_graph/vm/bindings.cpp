// Python's way to the run-time compiler's choices: what a target's numbers make of a problem.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/transforms.h"
#include "vm/bindings.h"
#include "vm/block_cost.h"
#include "vm/core.h"
#include "vm/tiling.h"
#include "vm/window_tiles.h"

namespace nb = nanobind;

namespace dvm {
namespace {

constexpr DType kHalves[] = {DType::f16, DType::bf16};

// What is only moved needs no unit that computes.
bool is_computed(Family family, DType dtype) {
  const FamilyInfo& info = info_of(family);
  return (info.dtypes & dtype_list::bit(dtype)) != 0 && info.queue == Queue::vector &&
         is_in_halves(family, dtype) && family != Family::v_copy && family != Family::v_broadcast;
}

std::vector<std::pair<std::string, std::string>> half_instructions() {
  std::vector<std::pair<std::string, std::string>> found;
  for (const DType dtype : kHalves) {
    for (int f = 0; f < kFamilies; ++f) {
      const auto family = static_cast<Family>(f);
      if (is_computed(family, dtype)) found.emplace_back(name_of(dtype), name_of(family));
    }
  }
  return found;
}

std::pair<Family, uint16_t> computed_in(const std::string& name, const std::string& dtype_name) {
  for (const DType dtype : kHalves) {
    for (int f = 0; f < kFamilies; ++f) {
      const auto family = static_cast<Family>(f);
      if (is_computed(family, dtype) && name == name_of(family) && dtype_name == name_of(dtype))
        return {family, dtype_list::bit(dtype)};
    }
  }
  throw nb::value_error((name + " is not done in " + dtype_name).c_str());
}

// Instructions by the names of dtypes.
using Arithmetic = std::map<std::string, std::vector<std::string>>;

Target target_of(const Numbers& numbers, const Arithmetic& arithmetic, const Numbers& cycles) {
  Target target;
  target.cycles = cycles_of(cycles);
  for (const auto& [dtype, names] : arithmetic) {
    for (const std::string& name : names) {
      const auto [family, bit] = computed_in(name, dtype);
      target.computes_in[static_cast<size_t>(family)] |= bit;
    }
  }
  FieldSetter setter(numbers);
#define DVM_SIZE(name, unit, least, most, meaning) setter.set(#name, target.name);
#define DVM_FLAG(name, meaning)                    setter.set(#name, target.name);
#define DVM_COST(name, unit, least, most, meaning) setter.set(#name, target.costs.name);
#include "vm/target.def"
  setter.finish();
  target.name = "described";
  return target;
}

BlockProblem problem_of(const Numbers& numbers, const Target& target) {
  BlockProblem problem;
  problem.columns_per_panel = static_cast<int>(target.matmul_nr);
  FieldSetter setter(numbers);
  setter.set_any("batch", problem.batch);
  setter.set_any("m", problem.m);
  setter.set_any("n", problem.n);
  setter.set_any("k", problem.k);
  setter.set_any("b_batch", problem.b_batch);
  setter.set_any("panels", problem.panels);
  setter.set_any("pack_a", problem.pack_a);
  setter.set_any("pack_b", problem.pack_b);
  setter.set_any("readable_b", problem.readable_b);
  setter.set_any("rows_per_set", problem.rows_per_set);
  setter.set_any("whole_rows", problem.whole_rows);
  setter.set_any("local_c", problem.local_c);
  setter.set_any("epilogue_nodes", problem.epilogue_nodes);
  setter.finish();
  return problem;
}

// The shape, and its predicted cost by terms.
std::map<std::string, double> block(const Target& target, const Numbers& numbers) {
  const BlockProblem problem = problem_of(numbers, target);
  const BlockShape shape = choose_block(problem, target, target.local_bytes);
  std::map<std::string, double> out = {{"rows", static_cast<double>(shape.rows)},
                                       {"columns", static_cast<double>(shape.columns)},
                                       {"k_block", static_cast<double>(shape.k_block)},
                                       {"rows_outer", shape.rows_outer},
                                       {"pack_a", shape.pack_a},
                                       {"keep_a", shape.keep_a},
                                       {"keep_b", shape.keep_b}};
  if (shape.rows == 0) return out;
  out["pieces_of_k"] = static_cast<double>(choose_piece(problem, target, shape.cost));
  const BlockCost cost = cost_of(problem, target, shape);
  out["cost"] = cost.total();
  out["waves"] = cost.waves;
  return out;
}

// How a convolution by 3 x 3 taps of an image [images, height, width, channels] is tiled.
std::tuple<int64_t, int64_t, bool> windows(const Target& target,
                                           const std::array<int32_t, 4>& image, int64_t results) {
  const auto& [images, height, width, channels] = image;
  Window window{};
  window.images = images;
  window.depth = window.out_depth = window.kernel_depth = 1;
  window.height = window.out_height = height;
  window.width = window.out_width = width;
  window.pixel = window.channels = channels;
  window.weights = 1;
  window.kernel_height = window.kernel_width = kTransformTaps;
  window.stride_depth = window.stride_height = window.stride_width = 1;
  window.dilation_depth = window.dilation_height = window.dilation_width = 1;
  window.pad_top = window.pad_left = 1;
  BlockProblem problem;
  problem.columns_per_panel = static_cast<int>(target.matmul_nr);
  problem.m = window.windows();
  problem.n = results;
  problem.k = window.taps() * channels;
  problem.panels = problem.pack_a = true;
  const BlockShape shape = choose_block(problem, target, target.local_bytes);
  const WindowTile tile = choose_window_tile(window, problem, shape, true, target);
  return {tile.windows, tile.columns, tile.transformed};
}

// The tile of a vector kernel that adds two values and, where axes are reduced, sums them up.
std::vector<int64_t> tile(const Target& target, const std::vector<int64_t>& extents,
                          uint32_t reduced) {
  if (extents.empty() || extents.size() > kMaxDomainRank) throw nb::value_error("extents");
  NormalPlan plan;
  plan.rank = static_cast<int>(extents.size());
  const uint32_t all = (1u << plan.rank) - 1;
  NormalAccess access;
  int64_t volume = 1;
  for (int axis = plan.rank; axis-- > 0;) {
    plan.extents[axis] = extents[axis];
    access.strides[axis] = volume;
    volume *= extents[axis];
  }
  access.value_bytes = volume * access.element_bytes;
  for (int32_t i = 0; i < 2; ++i) {
    access.value = i;
    plan.add_load(DType::f32, all, access);
  }
  int32_t result = plan.add({.op = PlanOp::add_, .axes = all, .inputs = {0, 1, -1}});
  if (reduced != 0) {
    result = plan.add({.op = PlanOp::reduce_sum_,
                       .axes = all & ~reduced,
                       .reduce_axes = reduced,
                       .inputs = {result, -1, -1}});
  }
  access.value = 2;
  for (int axis = plan.rank; axis-- > 0;) {
    if (reduced >> axis & 1) access.strides[axis] = 0;
  }
  plan.add_store(result, access);
  TileCode code;
  TilingRequest request;
  request.live = peak_live_bytes(plan, target);
  if (!tile_whole(plan, target, request, code)) tile_chunks(plan, target, request, code);
  std::vector<int64_t> tiles;
  for (int axis = 0; axis < plan.rank; ++axis) tiles.push_back(code.space.axes[axis].tile);
  return tiles;
}

}  // namespace

void bind_target(nb::module_& module) {
  nb::class_<Target>(module, "Target", "See vm/target.h.")
      .def(
          "__init__",
          [](Target* target, const Numbers& numbers, const Arithmetic& arithmetic,
             const Numbers& cycles) {
            new (target) Target(target_of(numbers, arithmetic, cycles));
          },
          nb::arg("numbers"), nb::arg("arithmetic") = Arithmetic(), nb::arg("cycles") = Numbers());
  module.attr("SCRATCH_BYTES") = kScratchBytes;
  module.attr("TRANSFORM_TAPS") = kTransformTaps;
  module.attr("TRANSFORM_POINTS") = kTransformPoints;
  module.attr("TRANSFORMED_ROWS") = kTransformedRows;
  module.def("transform_squares", &transform_squares, nb::arg("results"), nb::arg("apart"),
             "See kernels/transforms.h.");
  module.def("half_instructions", &half_instructions,
             "Dtype and name of the vector instructions that a device may do in 16 bits.");
  module.def(
      "target_fields",
      [] {
        std::vector<Field> fields;
#define DVM_SIZE(name, unit, least, most, meaning) \
  fields.emplace_back("size", #name, unit, least, most, meaning);
#define DVM_FLAG(name, meaning) fields.emplace_back("flag", #name, "", 0, 1, meaning);
#define DVM_COST(name, unit, least, most, meaning) \
  fields.emplace_back("cost", #name, unit, least, most, meaning);
#include "vm/target.def"
        return fields;
      },
      "Kind, name, unit, least, most and meaning of every number of a target.");
  module.def("choose_block", &block, nb::arg("target"), nb::arg("problem"),
             "Block and predicted cost of a product on a device.");
  module.def(
      "choose_windows", &windows, nb::arg("target"), nb::arg("image"), nb::arg("results"),
      "Windows and columns of a tile of a convolution by 3 x 3 taps of images [images, height, "
      "width, channels], and whether by transforms; 0 windows: their patches are packed.");
  module.def("choose_tile", &tile, nb::arg("target"), nb::arg("extents"), nb::arg("reduced"),
             "Tile of a sum of two values, summed over `reduced` axes, which is a mask.");
}

}  // namespace dvm
