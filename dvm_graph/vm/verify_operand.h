// Whether an operand lies where forms.def has it, and is walked as its instruction can.
#pragma once

#include "vm/isa.h"
#include "vm/program.h"
#include "vm/target.h"
#include "vm/verify_fault.h"

namespace dvm {

class OperandVerifier {
 public:
  OperandVerifier(const Program& program, const Target& target, Fault& fail)
      : program_(program), header_(program.header()), target_(target), fail_(fail) {}

  bool check_place(Place place, const Operand& operand);

  // Of operand k of an instruction.
  bool check_strides(Family family, const Operand& operand, DType dtype, int k);

  // What runs only where some grid coordinates change goes where the others do not move.
  bool check_predicate(const Head& head, const Operand& operand);

 private:
  const Program& program_;
  const ProgramHeader& header_;
  const Target& target_;
  Fault& fail_;
};

// Whether it moves a tile without gaps, in one loop.
constexpr bool moves_flat(Family family) {
  return family == Family::d_load || family == Family::d_store;
}

}  // namespace dvm
