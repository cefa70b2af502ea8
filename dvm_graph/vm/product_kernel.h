// Kernels of a product on cores whose cube unit has local memories of its own (vm/product.h): in
// one program, else beside vector programs, as a pair (vm/pair.h), else between stages of those.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/cut_product.h"
#include "vm/product.h"
#include "vm/stage_writer.h"

namespace dvm {

// Tiles of what computes rows of A.
struct RowCut {
  uint8_t lanes;
  int64_t rows, depth;  // of a tile
  double seconds;       // of a slot
};

struct ProductScratch {
  CutProduct cut;
  CutChain chain;
  NormalPlan scaled;              // of products whose rows are scaled before
  NormalPlan prologue, epilogue;  // of a pair
  std::vector<RowCut> cuts;
};

class ProductKernel {
 public:
  ProductKernel(StageWriter& stages, ProductScratch& scratch)
      : target_(stages.target()), stages_(stages), scratch_(scratch) {}

  // Stages behind those that are there. They stay, for the caller to take back, where it is not ok:
  // the cube unit lacks something, or the plan's fallback costs less.
  CompileStatus compile(const NormalPlan& plan);

  // The whole plan in one program. False: that is not possible, and nothing was added.
  bool one_stage(const NormalPlan& plan);

 private:
  // What the cube unit does of a product that was cut.
  struct CubeHalf {
    ProductPlan product;
    const NormalPlan* plan = nullptr;  // of it
    bool whole = false;                // nothing is left behind it
    bool paired = false;               // a vector half takes over its sums
  };

  CompileStatus compile(const NormalPlan& plan, int64_t used);
  CompileStatus compile_chain(const NormalPlan& plan);
  CubeHalf describe_half(const NormalPlan& plan);
  bool fed_pair(const NormalPlan& plan, CubeHalf half, int64_t used);
  double behind(const CubeHalf& half, double lanes) const;
  bool pair_stage(CubeHalf half, const ProductBlock& block, int64_t used);
  bool sums_half(const ProductPlan& product, const ProductBlock& block, const ProgramHeader& cube);
  bool rows_half(const ProductPlan& product, const ProductBlock& block, ProgramHeader& cube);
  void list_cuts(const ProductProblem& problem, const ProductBlock& block, uint8_t most_lanes);
  bool lane_program(const NormalPlan& plan, const ProductPlan& product, ProgramHeader& header);
  bool synchronised(KernelKind kind, const ProductPlan& product, ProgramHeader& header);
  void set_regions(const ProductProblem& problem, const ProductBlock& block,
                   ProgramHeader& header) const;
  double piece_elements() const;
  double lane_room() const;

  const Target& target_;
  StageWriter& stages_;
  ProductScratch& scratch_;
};

}  // namespace dvm
