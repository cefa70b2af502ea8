// Whether the halves of a pair (vm/pair.h) hand on every slot of their rings, and what regions
// need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vm/program.h"
#include "vm/target.h"
#include "vm/verify_fault.h"

namespace dvm {

// One half by itself, or a program that is none.
class PairVerifier {
 public:
  PairVerifier(const Program& program, const Target& target, Fault& fail)
      : program_(program), header_(program.header()), target_(target), fail_(fail) {}

  // What the header says of a pair and of regions; the grid and the pointers are sound.
  bool check_sharing();

  // A flag between cores: the halves wait for each other once at a slot of a ring, and signal once.
  bool check_between(Family family, uint64_t word);

  // An operand through a pointer register that reaches a ring: behind the wait and before the
  // signal.
  bool check_at_ring(Queue queue, size_t pointer, bool writes);

  // At the end of the body.
  bool check_handed_on();

  const Ring& ring_at(size_t pointer) const {
    return header_.rings[header_.rings[0].reaches(pointer) ? 0 : 1];
  }

 private:
  bool check_two_rings();
  bool check_ring(Handed handed);
  bool check_pieces();

  // What was met so far.
  struct AtRing {
    int sets = 0, waits = 0;
    bool used = false;
  };

  const Program& program_;
  const ProgramHeader& header_;
  const Target& target_;
  Fault& fail_;
  AtRing at_ring_[kRings];
};

// Whether `half` is that number of a pair with the program of the cube unit.
bool goes_with(const Program& cube, const Program& half, size_t number);

}  // namespace dvm
