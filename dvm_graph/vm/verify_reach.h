// How far operands reach: the least and greatest offset that one has over its loops and all tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/numbers.h"
#include "vm/core.h"
#include "vm/isa.h"
#include "vm/panels.h"
#include "vm/program.h"
#include "vm/target.h"

namespace dvm {

// The least and greatest offset that something adds to an address, in elements or bytes.
struct Reach {
  int64_t low = 0, high = 0;

  void add(int64_t offset) { (offset < 0 ? low : high) += offset; }
};

// Of a program whose header is sound. What is looked at for every operand is here to be inlined.
class Reaches {
 public:
  // How an operand's address follows the loops e0, e1, e2, in elements.
  struct Steps {
    int64_t strides[3];
    int64_t panel_columns = 0;  // not 0: loop e2 counts columns of panels, strides[2] is per panel
    bool padded = false;        // the last panel is touched in full
    int bundled_loop = -1;      // it counts elements, of which a bundle is one of the operand's
    int64_t steps = 1;          // of a bundle

    // Longer loops do not reach less far.
    bool rises() const {
      return panel_columns == 0 && bundled_loop < 0 && (strides[0] | strides[1] | strides[2]) >= 0;
    }
  };

  // A loop over what an extent register holds.
  struct Loop {
    int dim;             // that it depends on; -1: none
    int64_t full, tail;  // in a full tile, in the last one of the dim
    int64_t most;        // in any tile
  };

  // Those of an instruction, which all its operands run over.
  struct Loops {
    const Loop* at[3];

    const Loop& operator[](int loop) const { return *at[loop]; }
    bool follow_none() const { return (at[0]->dim & at[1]->dim & at[2]->dim) < 0; }
    bool follow(int dim) const {
      return at[0]->dim == dim || at[1]->dim == dim || at[2]->dim == dim;
    }
  };

  Reaches(const Program& program, const Target& target);

  Loops loops_of(const Head& head) const {
    return {{&loops_[head.e0], &loops_[head.e1], &loops_[head.e2]}};
  }
  // Extents of a loop in the tiles where it is shortest and longest.
  int64_t narrowest(uint8_t e) const { return loops_[e].dim < 0 ? widest(e) : loops_[e].tail; }
  int64_t widest(uint8_t e) const { return loops_[e].full; }

  // `made_of`: the dtype of the instruction, `dtype` that of the operand.
  Steps steps_of(const OperandInfo& info, DType made_of, const Operand& operand,
                 DType dtype) const {
    const int64_t outer = operand.outer_stride, middle = operand.middle_stride,
                  inner = operand.inner_stride;
    const bool bundles = info.type == Type::bundles;
    const auto columns = [&] { return panel_columns(dtype, target_); };
    switch (info.walk) {
      case Walk::folded: return {{outer, 0, inner}};
      case Walk::rows:
      case Walk::steps: return {{0, middle, inner}};
      case Walk::bundled_rows: return {{0, middle, inner}, 0, false, 2, bundle_steps(made_of)};
      case Walk::panels:
        return {{0, columns(), outer}, columns(), true, bundles ? 1 : -1, bundle_steps(made_of)};
      case Walk::product: return {{middle, 0, inner}};
      case Walk::product_rows: return {{middle, inner, 0}};
      case Walk::columns:
        if (inner != 1) return {{0, middle, inner}};
        return {{0, middle, outer}, columns(), false};
      case Walk::transformed:
      case Walk::panel_columns: return {{0, middle, outer}, columns(), true};
      case Walk::panel_blocks:
        return {{0, middle, outer}, columns(), true, 1};  // steps: check_reach
      case Walk::row: return {{0, 0, inner}};
      default: return {{outer, middle, inner}};
    }
  }

  // Offsets over all tiles; `steps` of a pointer register by grid dim, null in local memory.
  Reach reach_of(const Loops& loops, const Steps& walk, int64_t element,
                 const int64_t* steps) const {
    Reach reach;
    if (steps == nullptr && walk.rises()) {
      for (int loop = 0; loop < 3; ++loop) {
        const int64_t last = std::max<int64_t>(loops[loop].most - 1, 0);
        reach.high += std::min(walk.strides[loop] * last, kTooFar) * element;
      }
      return reach;
    }
    return reach_over_tiles(loops, walk, element, steps);
  }

  // Over the tiles that are at a slot of a ring, from where it begins.
  Reach reach_in_slot(const Loops& loops, const Steps& walk, int64_t element,
                      const PointerRegister& pointer) const;

  // From the first element to the last of a loop.
  static int64_t last_offset(const Steps& walk, int loop, int64_t extent) {
    if (extent <= 0) return 0;
    if (loop == walk.bundled_loop) extent = (extent + walk.steps - 1) / walk.steps;
    if (loop != 2 || walk.panel_columns == 0) {
      return std::clamp(walk.strides[loop] * (extent - 1), -kTooFar, kTooFar);
    }
    const int64_t panels = (extent + walk.panel_columns - 1) / walk.panel_columns;
    const int64_t last = extent - (panels - 1) * walk.panel_columns - 1;
    return std::clamp(walk.strides[2] * (panels - 1), -kTooFar, kTooFar) +
           (walk.padded ? walk.panel_columns - 1 : last);
  }

 private:
  Loop loop_of(const ExtentRegister& extent) const;
  Reach reach_over_tiles(const Loops& loops, const Steps& walk, int64_t element,
                         const int64_t* steps) const;

  const Program& program_;
  const ProgramHeader& header_;
  const Target& target_;
  Loop loops_[kExtentRegisters];  // by extent register; 0: no loop
};

}  // namespace dvm
