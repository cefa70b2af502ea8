// Whether an operand lies where forms.def has it, and is walked as its instruction can.
#pragma once

#include "vm/isa.h"
#include "vm/panels.h"
#include "vm/program.h"
#include "vm/target.h"
#include "vm/verify_fault.h"

namespace dvm {

// Whether it moves a tile without gaps, in one loop.
constexpr bool moves_flat(Family family) {
  return family == Family::d_load || family == Family::d_store;
}

// Here as a whole, to be inlined: it looks at every operand of every compiled kernel.
class OperandVerifier {
 public:
  OperandVerifier(const Program& program, const Target& target, Fault& fail)
      : program_(program), header_(program.header()), target_(target), fail_(fail) {}

  bool check_place(Place place, const Operand& operand) {
    const bool integer = place == Place::integer;
    switch (operand.space()) {
      case Space::local:
      case Space::two_places:
        if (integer) return fail_("an integer comes from a pointer register");
        if (place == Place::memory) return fail_("a memory instruction reads global memory");
        if (memory_of(place) != Memory::main && !target_.has_cube_memories()) {
          return fail_("this target has one local memory");
        }
        return true;
      case Space::pointer: {
        if (operand.offset() >= header_.pointer_registers) {
          return fail_("undefined pointer register");
        }
        const PointerRegister& pointer = program_.pointers()[operand.offset()];
        if (integer != (pointer.buffer == kPlainInteger)) {
          return fail_("an integer is not an address");
        }
        if (integer || place == Place::memory || place == Place::anywhere) return true;
        if (memory_of(place) != Memory::main || !target_.unified_memory) {
          return fail_("only memory instructions touch global memory on this target");
        }
        return true;
      }
      default:
        if (place != Place::value) return fail_("operand cannot be immediate");
        if (operand.inner_stride != 0) return fail_("an immediate has no strides");
        return true;
    }
  }

  // Of operand k of an instruction.
  // Handlers of vector and cube instructions run over rows of neighbouring elements.
  bool check_strides(Family family, const Operand& operand, DType dtype, int k) {
    const FamilyInfo& info = info_of(family);
    if (operand.space() == Space::immediate) return true;
    const OperandInfo& form = form_info(info.form).operands[k];
    const bool rows =
        (info.queue == Queue::vector || info.form == Form::lookup) && form.place != Place::integer;
    const int inner = operand.inner_stride;
    if (rows && inner != 1 && (k == 0 || inner != 0)) {
      return fail_("a vector operand needs an inner stride of 0 or 1, an output of 1");
    }
    const bool two_places = operand.space() == Space::two_places;
    if (two_places & (form.walk != Walk::rows)) return fail_("such an operand has one place");
    if (two_places & (operand.outer_stride < 0))
      return fail_("the second place lies before the first");
    switch (form.walk) {
      case Walk::columns:
        if (inner == 1) break;
        if (operand.middle_stride != 1 ||
            operand.outer_stride != int64_t{inner} * panel_columns(dtype, target_)) {
          return fail_("neither rows nor columns of a matmul's B are contiguous");
        }
        break;
      case Walk::product:
      case Walk::product_rows:
      case Walk::panel_columns:
      case Walk::panel_blocks:
      case Walk::transformed:
      case Walk::steps:
        if (inner != 1) return fail_("rows of a matmul are contiguous");
        break;
      case Walk::row:
        if (inner != 1) return fail_("a row that is added or scales is contiguous");
        break;
      default: break;
    }
    if (moves_flat(family) && inner != 1) return fail_("a contiguous tile has stride 1");
    return true;
  }

  // What runs only where some grid coordinates change goes where the others do not move.
  bool check_predicate(const Head& head, const Operand& operand) {
    if (head.changed_mask == 0 || operand.space() != Space::pointer) return true;
    const PointerRegister& pointer = program_.pointers()[operand.offset()];
    for (uint32_t d = 0; d < header_.grid_rank; ++d) {
      if (pointer.steps[d] != 0 && !(head.changed_mask >> d & 1)) {
        return fail_("runs for some tiles only, but its operand moves with each");
      }
    }
    return true;
  }

 private:
  const Program& program_;
  const ProgramHeader& header_;
  const Target& target_;
  Fault& fail_;
};

}  // namespace dvm
