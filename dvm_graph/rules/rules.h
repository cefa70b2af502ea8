// What may fuse: the questions that rules ask about two groups of operators, and the judgement by
// the table of patterns (table.def).
//
// Rules are pure: nothing that a meeting knows is another after `judge`. The static fuser's
// meetings answer by proof (cluster/meeting.py), the streaming fuser's on extents
// (stream/meeting.h).
#pragma once

#include <cstdint>
#include <string>

namespace dvm {

enum class PartKind : uint8_t {
  view,  // relayouts only
  vector,
  cube,
  host,  // not a kernel: a concat that joins the stores of others, dims written by the host
};
const char* name_of(PartKind kind);

enum class Merge : uint8_t { yes, no, unknown };  // whether two iteration spaces are one

enum class Verdict : uint8_t { pattern, speculate, sequence };

struct FusionLimits {
#define DVM_LIMIT(type, name) type name = {};
#include "rules/limits.def"
};

// One of the two groups.
struct Part {
  PartKind kind = PartKind::vector;
  int64_t operators = 0;  // those that compute
  bool reduces = false;   // holds a reduction
  bool gathers = false;   // reads by index
};

// A producer, a consumer, and what lies between them.
class Meeting {
 public:
  virtual const Part& producer() = 0;
  virtual const Part& consumer() = 0;
  virtual const FusionLimits& limits() = 0;

  // The consumer reads by a slice, an index or as a matrix operand: from memory only.
  virtual bool needs_memory() = 0;
  // The consumer reads the producer as the A operand of one matrix product, maybe through views;
  // beside it at most one number for each of its rows, behind the product.
  virtual bool feeds_matrix() = 0;
  // The consumer reads by strides of its own, as a slice does: no view can lie between.
  virtual bool needs_buffer() = 0;
  // A third group lies between the two; its name.
  virtual bool has_detour() = 0;
  virtual std::string detour() = 0;
  // One of the two needs a result of the other, itself or by way of others.
  virtual bool depends() = 0;
  // Distinct tensors that a merged kernel would load or store.
  virtual int64_t accesses() = 0;
  // Nobody else uses the results of the producer.
  virtual bool sole_consumer() = 0;
  // Only the consumer uses the results of the producer, nobody is given them.
  virtual bool is_private() = 0;
  // Matrix products of both.
  virtual int64_t products() = 0;
  // Number of types in which the matrix products of both are summed.
  virtual int64_t arithmetics() = 0;
  // All matrix products of both read one tensor from outside as their A operand.
  virtual bool shares_rows() = 0;
  // Elements of the B operands of both matrix products per column of the producer's, as far as they
  // are numbers: what is read again for each block of rows. 0: the producer holds none.
  virtual int64_t operand_width() = 0;

  // Whether the iteration spaces can be one; they are until `part`, behind which all is as before.
  virtual Merge merge() = 0;
  virtual void part() = 0;
  // Why they cannot, or only under a condition: of the last `merge`.
  virtual std::string merge_reason() = 0;

  // Of merged spaces:
  // Some operator of the merged spaces iterates over all axes.
  virtual bool one_domain() = 0;
  // Both groups iterate over all axes of the merged domain.
  virtual bool same_domain() = 0;
  // The merged domain has axes along which the producer does not vary.
  virtual bool recomputes() = 0;
  // Number of axes of the merged domain, and that a domain may have.
  virtual int64_t rank() = 0;
  virtual int64_t most_axes() = 0;
  // The consumer's results go to reductions only, while others need its operands too.
  virtual bool feeds_reductions_only() = 0;
  // The reductions of the consumer fold whole rows of the matrix product, nothing else.
  virtual bool reduces_rows() = 0;
  // The producer iterates over the rows of the A operand as the product reads it and what it
  // contracts itself, varies along all of them, and folds nothing else than whole rows. What a
  // product of its own has for columns is what the other one contracts, for the same rows, and its
  // B operand is the same for all rows of a tile.
  virtual bool computes_rows() = 0;
  // All axes of the merged spaces are those of the matrix operator's result.
  virtual bool within_matrix() = 0;
  // The matrix products of both, and their B operands, iterate over the same axes, and nothing over
  // others.
  virtual bool one_matrix() = 0;

 protected:
  ~Meeting() = default;
};

enum class PatternName : uint8_t {
#define DVM_PATTERN(name, text, producers, consumers, feeds_matrix, before, after) name,
#include "rules/table.def"
  none
};

PatternName pattern_from_name(const std::string& name);  // none: there is no such pattern

// The answer of a rule, without its subject.
struct Ruling {
  Verdict verdict = Verdict::sequence;
  PatternName pattern = PatternName::none;
  Merge merge = Merge::yes;
  bool merged = false;    // the iteration spaces were looked at
  int8_t predicate = -1;  // the one that refused; -1: none did
};

// By the pattern of the kinds unless one is given.
Ruling judge(Meeting& meeting, PatternName pattern = PatternName::none);

// Of a ruling that this meeting was given last.
std::string reason_of(const Ruling& ruling, Meeting& meeting);

}  // namespace dvm
