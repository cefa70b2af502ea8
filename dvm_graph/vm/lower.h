// Lowering of a plan's nodes to tile code, once the tile is chosen; shared by vector, cube and mix
// kernels.
//
// Absorption (unified memory only): a load that changes nothing about its elements is not executed,
// its consumers read global memory; the producer of a stored value writes global memory itself.
// Loads and everything computed from them alone run only when their grid coordinates change.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/emit.h"
#include "vm/target.h"

namespace dvm {

struct NodeState {
  TileValue value;
  bool lowered = false;
  bool elided = false;       // load: consumers read through the pointer
  bool late = false;         // follows an accumulating reduction: runs on the last chunk
  bool computed_on = false;  // some consumer is not a store
  bool used = false;
  int32_t stored_by = -1;  // store whose place the node writes directly
  TileValue spread;        // its elements once for each of some axes that it lacks
  uint32_t spread_axes = 0;
  uint32_t dims = 0;  // grid dims the value changes with
};

struct LoweringScratch {
  std::vector<NodeState> nodes;
};

class Lowering {
 public:
  // `code` has its space and grid. `chunk_axes`: axes whose grid dims are chunks of a reduction.
  Lowering(const NormalPlan& plan, const Target& target, TileCode& code, LoweringScratch& scratch,
           uint32_t chunk_axes);

  // Lowers every node that is not lowered yet. Loads, fills and iotas wait for their first use.
  void lower_all();
  void lower(int32_t node);

  NodeState& state(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  Emitter& emitter() { return emitter_; }
  TileValue access_value(int32_t access, DType dtype) const;

  // Head fields of an instruction that computes the node.
  Instruction begin(int32_t node, Family family, DType dtype);
  // Where the node's result goes: its store's place, or a new buffer over the node's axes.
  TileValue place_for(int32_t node, bool kept);
  // The predicate under which an instruction must run whose value changes with these grid dims.
  uint8_t changed_mask(uint32_t dims) const;
  // Nobody reads the stored value before it would have left the caches.
  bool streams(int32_t store) const;

 private:
  struct Mark {
    size_t instructions, pointers, buffers;
  };

  void decide_absorption();
  bool load_suits(int32_t load, int32_t consumer) const;
  bool store_suits(int32_t store, int32_t producer) const;
  void depend_on_inputs(int32_t node);
  void load_to_local(int32_t node);
  void lower_gather(int32_t node);
  void lower_iota(int32_t node);
  void lower_window(int32_t node);
  void lower_map(int32_t node);
  TileValue operand_of(int32_t node, uint32_t axes);
  uint32_t short_axes(int32_t node, uint32_t axes) const;
  TileValue repeated(int32_t load);
  void lower_reduce(int32_t node);
  bool lies_across(const NormalNode& store, const TileValue& source) const;
  void lower_store(int32_t node);
  void materialise_immediate(int32_t node);
  template <typename Emit>
  void emit_compactly(int32_t node, Emit emit);
  int innermost_axis(uint32_t axes) const;

  const NormalPlan& plan_;
  const Target& target_;
  TileCode& code_;
  std::vector<NodeState>& nodes_;
  const uint32_t chunk_axes_;
  uint32_t wide_axes_ = 0;  // axes with more than one element in a tile
  Emitter emitter_;
};

// Computes nothing: it is lowered where it is first used.
bool is_lazy(PlanOp op);

// The instruction family of a map, reduce or matrix operator.
Family family_of(PlanOp op);
// That of a map or reduce operator of this plan, where casts are told apart.
Family family_of(const NormalPlan& plan, const NormalNode& node);
// The dtype of the instruction that a map becomes.
DType dtype_of_map(const NormalPlan& plan, const NormalNode& map);

}  // namespace dvm
