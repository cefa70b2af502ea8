// Whether instructions that are marked to run together may: groups of joined ones (vm/strips.h),
// and groups that go over the same rows (vm/row_blocks.h), as far as memory is concerned. The
// device decodes a group as a whole, with the loops of its first instruction.
#pragma once

#include "vm/isa.h"
#include "vm/program.h"

namespace dvm {

class GroupVerifier {
 public:
  explicit GroupVerifier(const Program& program) : program_(program) {}

  // Takes the instructions of a body in turn, each of known opcode and length. What is wrong with
  // this one; null: nothing.
  const char* take(const Head& head, const uint64_t* words) {
    const bool alone = (head.flags & (kJoined | kTransient | kRows)) == 0 && !open_ && rows_ == 0;
    return alone ? nullptr : take_together(head, words);
  }

  // What is wrong with the end of the body here; null: nothing.
  const char* end() const;

 private:
  bool may_join(const Head& head, const uint64_t* words) const;
  const char* take_together(const Head& head, const uint64_t* words);
  const char* take_joined(const Head& head, const uint64_t* words);
  const char* take_rows(const Head& head, const uint64_t* words);

  const Program& program_;
  bool open_ = false;                 // a group goes on
  Head first_ = {};                   // its first instruction
  const uint64_t* folded_ = nullptr;  // the operand of that, where it is a reduction
  int joined_ = 0;                    // its instructions after that
  uint8_t rows_ = 0;    // extent register of the rows that groups go over together; 0: none do
  int row_groups_ = 0;  // of joined instructions, or single ones, by those rows
};

}  // namespace dvm
