// Emission of one instruction over a tile: finds the few, long loops that all operands share,
// and unrolls what three loops cannot hold.
#pragma once

#include <cstdint>

#include "vm/tile_code.h"

namespace dvm {

// Where the value of a plan node lies, seen from the tile's axes.
struct TileValue {
  Space space = Space::local;
  int32_t index = -1;  // local: buffer; pointer: access of the normal plan
  DType dtype = DType::f32;
  uint64_t immediate = 0;
  Strides strides = {};  // elements, per axis
};

// What differs between instructions over the same loops.
struct Instruction {
  Family family = Family::v_copy;
  DType dtype = DType::f32;
  uint8_t changed_mask = 0, flags = 0;
  uint64_t extra[kMostExtra] = {};
  int32_t window = -1;
};

inline constexpr int kMaxOperands = 5;

class Emitter {
 public:
  Emitter(TileCode& code, const NormalPlan& plan) : code_(code), plan_(plan) {}

  // An instruction with a free order of elements over `axes`. operands[0] is the output.
  // `unit_inner`: inner strides must be 0 or 1 (the output's 1), as vector instructions want.
  void elementwise(const Instruction& instruction, uint32_t axes, const TileValue* operands,
                   int count, bool unit_inner);

  // xd[axes] = reduction of xn over reduce_axes; only the last step of several accumulates.
  void reduce(const Instruction& instruction, uint32_t axes, uint32_t reduce_axes,
              const TileValue& out, const TileValue& in);

  // An operand at a byte offset from the value's start.
  TileOperand operand(const TileValue& value, int64_t element_offset);

  // A dense local tile over these axes.
  TileValue dense_buffer(DType dtype, uint32_t axes, bool kept);

 private:
  struct Loop {
    int64_t extent;  // of a full tile
    int dim;         // ragged along this grid dim; -1: along none
    int64_t strides[kMaxOperands];
  };
  static constexpr Loop kOnce{1, -1, {}};
  struct Loops {
    Loop items[kMaxDomainRank + 1];  // only those that count are set: the rest stays untouched
    int count = 0;
  };

  Loops loops_over(uint32_t axes, const TileValue* operands, int count) const;
  static void collapse(Loops& loops, int operand_count);
  uint32_t reduce_step(uint32_t axes, uint32_t reduce_axes, const TileValue& in) const;
  void emit_reduce_step(const Instruction& instruction, uint32_t axes, uint32_t step_axes,
                        const TileValue& out, const TileValue& in);
  // Emits once per combination of the unrolled loops' coordinates; `set` fills in the rest.
  void emit_unrolled(const Instruction& instruction, const Loop* unrolled, int unrolled_count,
                     const Loop* loops, const TileValue* operands, int count);
  void emit_at(const Instruction& instruction, const Loop* loops, const TileValue* operands,
               int count, const int64_t* offsets);
  uint8_t extent_register(const Loop& loop) {
    return code_.extent_register(
        loop.dim < 0 ? loop.extent : loop.extent / code_.grid[loop.dim].tile, loop.dim);
  }

  TileCode& code_;
  const NormalPlan& plan_;
};

}  // namespace dvm
