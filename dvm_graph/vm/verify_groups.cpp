#include "vm/verify_groups.h"

#include <cstring>

#include "vm/row_blocks.h"
#include "vm/strips.h"

namespace dvm {
namespace {

bool reduces(const Head& head) {
  return info_of(static_cast<Family>(head.opcode / 16)).form == Form::reduce;
}

// The reduction folds rows without gaps, one value for each.
bool folds_rows(const Head& head, const uint64_t* words) {
  return head.e2 == 0 && operand_of(words, 1).middle_stride == 1;
}

}  // namespace

// What moves elements only where it goes over them without gaps.
bool GroupVerifier::may_join(const Head& head, const uint64_t* words) const {
  const auto family = static_cast<Family>(head.opcode / 16);
  if (!joins(family, static_cast<DType>(head.opcode % 16))) return false;
  const ExtentRegister inner = head.e2 == 0 ? ExtentRegister{} : program_.extents()[head.e2 - 1];
  if (!joins_over(family, inner)) return false;
  return !moves(family) ||
         (operand_of(words, 0).inner_stride == 1 && operand_of(words, 1).inner_stride == 1);
}

const char* GroupVerifier::take_together(const Head& head, const uint64_t* words) {
  if (const char* wrong = take_joined(head, words)) return wrong;
  return take_rows(head, words);
}

const char* GroupVerifier::end() const {
  if (open_) return "the last instruction is joined to none";
  return rows_ != 0 ? "the last instruction runs by rows with none" : nullptr;
}

const char* GroupVerifier::take_joined(const Head& head, const uint64_t* words) {
  const bool goes_on = (head.flags & kJoined) != 0;
  const bool by_rows = rows_ != 0 || (head.flags & kRows) != 0;
  if ((head.flags & kTransient) && !goes_on) return "transient, but joined to nothing";
  if (!goes_on && !open_) return nullptr;
  if (!may_join(head, words)) return "cannot be joined";
  if (goes_on && reduces(head)) {
    if (open_) return "a reduction ends its group";
    if (!folds_rows(head, words) || by_rows) return "a reduction that others cannot join";
  }
  if (open_ && reduces(first_)) {
    const bool same = reduces(head) && first_.e0 == head.e0 && first_.e1 == head.e1 && !by_rows &&
                      head.e2 == 0 && head.opcode != first_.opcode &&
                      std::memcmp(folded_, operand_words(words, 1), sizeof(Operand)) == 0;
    if (!same) return "joined to a reduction of other rows";
  } else if (open_) {
    const bool same = reduces(head)
                          ? first_.e0 == 0 && first_.e1 == head.e0 && first_.e2 == head.e1 &&
                                folds_rows(head, words)
                          : first_.e0 == head.e0 && first_.e1 == head.e1 && first_.e2 == head.e2;
    if (!same) return "joined, but over other loops";
  }
  if (open_) {
    if (first_.changed_mask != head.changed_mask || ((first_.flags ^ head.flags) & kChunks)) {
      return "joined, but under another predicate";
    }
    if (++joined_ >= kMostJoined) return "too many are joined";
  } else {
    first_ = head;
    joined_ = 0;
    folded_ = operand_words(words, 1);
  }
  open_ = goes_on;
  return nullptr;
}

const char* GroupVerifier::take_rows(const Head& head, const uint64_t* words) {
  const bool goes_on = (head.flags & kRows) != 0;
  if (!goes_on && rows_ == 0) return nullptr;
  if (!may_join(head, words)) return "cannot run by rows";
  if (head.changed_mask != 0 || (head.flags & kChunks) != 0) {
    return "runs by rows, but under a predicate";
  }
  if ((head.flags & (kAccumulate | kAccumulateAlways)) != 0) {
    return "runs by rows, but accumulates";
  }
  if (rows_ == 0) {
    rows_ = reduces(head) ? head.e0 : head.e1;
    row_groups_ = 0;
  }
  const bool same = reduces(head)
                        ? head.e0 == rows_ && folds_rows(head, words)
                        : head.e0 == 0 && (head.e1 == rows_ || (head.e1 == 0 && head.e2 == rows_));
  if (rows_ == 0 || !same) return "runs by rows, but over other loops";
  if ((head.flags & kJoined) == 0 && ++row_groups_ > kMostRowGroups) {
    return "too many groups run by rows";
  }
  if (!goes_on) rows_ = 0;
  return nullptr;
}

}  // namespace dvm
