// The matrix products of a cube or mix kernel for the shape at hand: where their operands lie, how
// they can get to the cube unit, and what the choice of blocks depends on. It is described once;
// whether the kernel runs whole, split along k or as its fallback is decided from it.
#pragma once

#include <array>
#include <span>

#include "kernels/normalise.h"
#include "vm/block_shape.h"
#include "vm/isa.h"
#include "vm/target.h"
#include "vm/window_tiles.h"

namespace dvm {

// What the cube unit makes of a product in passing: its sum with as many elements that are
// loaded, or with a row of them, ended (vm/ending.h); or, of sums of bytes, that sum times a
// factor, rounded, as one of some levels.
struct Finish {
  int nodes = 0;        // behind the product that are no instructions of their own
  int32_t node = -1;    // the last of them; the product where there are none
  int32_t addend = -1;  // load, or fill of sums of bytes; -1: there is none
  uint64_t ending[kEndingWords] = {};
  int32_t factor = -1;  // load or fill; -1: nothing is quantised
  int32_t store = -1;   // of a quantised result, as bytes; -1: it is left to who reads it
  Levels levels = {};
  bool bundles = false;  // of them, which are the A of another product as they are

  bool quantizes() const { return factor >= 0; }
};

// One matrix product of the kernel.
struct Product {
  int32_t node = -1, a = -1, b = -1;
  int n_axis = -1, k_axis = -1;
  int64_t n = 1, k = 1, steps = 1;  // steps: k in elements of A and B, which may be bundles
  bool panels = false;              // B is packed already
  bool transformed = false;         // and transforms of it lie behind it
  int64_t block = 0, block_bits = 0, block_rows = 0;  // of levels, as in Access
  bool readable_b = false;                            // B can be read in place
  bool columns_b = false;                             // and so it is, its columns being contiguous
  bool pack_a = false, pack_b = false;
  Finish finish;
};

class CubeProblem {
 public:
  CubeProblem(const NormalPlan& plan, const Target& target);

  const NormalPlan& plan() const { return plan_; }
  const Target& target() const { return target_; }
  bool possible() const { return possible_; }  // false: cube kernels cannot do the plan
  const Product& outer() const { return products_[0]; }
  // Those side by side, `outer` first: they differ in node and B.
  std::span<const Product> beside() const {
    return {products_.data(), static_cast<size_t>(blocks_.products)};
  }
  const Product& inner() const { return inner_; }  // whose result A of the outer one is made from
  bool has_inner() const { return inner_.node >= 0; }
  DType dtype() const { return dtype_; }
  int64_t bundle() const { return bundle_; }  // steps of k that are one element of A and B
  DType multiplied() const { return dtype_ == DType::i32 ? DType::i8 : DType::bf16; }  // in bundles
  const BlockProblem& blocks() const { return blocks_; }
  const BlockShape& shape() const { return shape_; }  // the best one, with all of local memory
  // The tile where windows are read without packing their patches; `windows` 0: they are packed.
  const WindowTile& windows() const { return windows_; }
  double cost() const { return shape_.cost - windows_.saved; }  // predicted, of one core

  const NormalAccess& access_of(int32_t node) const;
  bool storage_is_register(int32_t node) const;
  bool bundled_patches(int32_t node) const;  // of images whose bundles are elements of A
  bool is_computed(int32_t node) const;
  bool widens(const Product& product) const;  // B lies packed in a narrower dtype, and is read so
  int64_t panel_bytes(const Product& product) const;  // of an element of a row of packed panels

  // Whether the plan, which keeps rows in local memory, is predicted to take longer than separate
  // kernels that keep them in global memory.
  bool costs_more() const;

  // The k of a piece where the plan is predicted to be faster split along k; 0: where it is not, or
  // cannot be.
  int64_t piece() const;

 private:
  Product& outer() { return products_[0]; }
  void find_products();
  bool rounds_alike(bool rounds) const;
  bool describe();
  bool describe_beside();
  bool describe_operands(Product& product) const;
  int32_t only_user(int32_t node) const;
  int32_t addend_of(int32_t product, int32_t sum) const;
  bool adds_nothing(int32_t product, int32_t sum) const;
  bool rows_in_place(int32_t node) const;
  bool has_all_elements(int32_t node) const;
  bool is_row_for_all(int32_t node) const;
  bool bundled_in_place(const Product& product) const;
  int vector_nodes_until(int32_t last) const;
  void find_finish();
  void find_sum(Product& product) const;
  void find_levels(Product& product) const;
  bool follow(Finish& finish, PlanOp op) const;
  void follow_to_bytes(Finish& finish) const;
  int32_t other_of(int32_t user, int32_t node) const;
  bool is_level(int32_t node, int64_t& level) const;
  bool is_row_or_number(int32_t node, int axis, DType dtype) const;
  bool stores_rows(int32_t store) const;
  bool describe_vector_nodes();
  void extend(Prologue& prologue, const NormalNode& node) const;
  int64_t batch_of(int32_t node) const;
  int rows_per_set() const;
  bool reads_windows() const;
  bool counts_windows(const NormalAccess& numbers, const Window& window) const;

  const NormalPlan& plan_;
  const Target& target_;
  std::array<Product, kMaxProducts> products_;
  Product inner_;
  DType dtype_ = DType::f32;
  int64_t bundle_ = 1;
  BlockProblem blocks_;
  BlockShape shape_;
  WindowTile windows_;
  bool possible_ = false;
};

}  // namespace dvm
