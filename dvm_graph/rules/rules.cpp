#include "rules/rules.h"

#include <iterator>
#include <span>

namespace dvm {
namespace {

std::string number(int64_t value) { return std::to_string(value); }

enum class Predicate : int8_t {
#define DVM_PREDICATE(name, holds, refusal) name,
#include "rules/table.def"
  count_
};

bool holds(Predicate predicate, Meeting& m) {
  switch (predicate) {
#define DVM_PREDICATE(name, condition, refusal) \
  case Predicate::name: return condition;
#include "rules/table.def"
    case Predicate::count_: break;
  }
  return false;
}

std::string refusal_of(Predicate predicate, Meeting& m) {
  switch (predicate) {
#define DVM_PREDICATE(name, condition, refusal) \
  case Predicate::name: return refusal;
#include "rules/table.def"
    case Predicate::count_: break;
  }
  return "";
}

constexpr unsigned bit(PartKind kind) { return 1U << static_cast<unsigned>(kind); }
constexpr unsigned kView = bit(PartKind::view), kVector = bit(PartKind::vector),
                   kCube = bit(PartKind::cube);

// The predicates of each pattern.
#define DVM_ASKS(...) {__VA_ARGS__}
#define DVM_PATTERN(name, text, producers, consumers, feeds_matrix, before, after) \
  namespace name##_asks {                                                          \
    using enum Predicate;                                                          \
    constexpr Predicate kBefore[] = before;                                        \
    constexpr Predicate kAfter[] = after;                                          \
  }
#include "rules/table.def"

struct Pattern {
  const char* text;
  unsigned producers, consumers;
  bool feeds_matrix;
  std::span<const Predicate> before, after;
};

constexpr Pattern kPatterns[] = {
#define DVM_PATTERN(name, text, producers, consumers, feeds_matrix, before, after) \
  {text, producers, consumers, feeds_matrix, name##_asks::kBefore, name##_asks::kAfter},
#include "rules/table.def"
};

PatternName find_pattern(unsigned producer, unsigned consumer, bool feeds_matrix) {
  for (size_t i = 0; i < std::size(kPatterns); i++) {
    const Pattern& row = kPatterns[i];
    if ((row.producers & producer) != 0 && (row.consumers & consumer) != 0 &&
        row.feeds_matrix == feeds_matrix) {
      return static_cast<PatternName>(i);
    }
  }
  return PatternName::none;
}

PatternName pattern_of(Meeting& meeting) {
  const unsigned producer = bit(meeting.producer().kind), consumer = bit(meeting.consumer().kind);
  const PatternName feeding = find_pattern(producer, consumer, true);
  if (feeding != PatternName::none && meeting.feeds_matrix()) return feeding;
  return find_pattern(producer, consumer, false);
}

// The first of the predicates that does not hold; -1: all do.
int8_t first_refusal(std::span<const Predicate> predicates, Meeting& meeting) {
  for (const Predicate predicate : predicates) {
    if (!holds(predicate, meeting)) return static_cast<int8_t>(predicate);
  }
  return -1;
}

}  // namespace

const char* name_of(PartKind kind) {
  constexpr const char* names[] = {"view", "vector", "cube", "host"};
  return names[static_cast<int>(kind)];
}

Ruling judge(Meeting& meeting, PatternName name) {
  Ruling ruling;
  ruling.pattern = name == PatternName::none ? pattern_of(meeting) : name;
  if (ruling.pattern == PatternName::none) return ruling;
  const Pattern& pattern = kPatterns[static_cast<size_t>(ruling.pattern)];
  ruling.predicate = first_refusal(pattern.before, meeting);
  if (ruling.predicate >= 0) return ruling;
  ruling.merge = meeting.merge();
  ruling.merged = true;
  try {
    if (ruling.merge != Merge::no) ruling.predicate = first_refusal(pattern.after, meeting);
  } catch (...) {
    meeting.part();
    throw;
  }
  meeting.part();
  if (ruling.merge == Merge::no || ruling.predicate >= 0) return ruling;
  ruling.verdict = ruling.merge == Merge::yes ? Verdict::pattern : Verdict::speculate;
  return ruling;
}

PatternName pattern_from_name(const std::string& name) {
  for (size_t i = 0; i < std::size(kPatterns); i++) {
    if (name == kPatterns[i].text) return static_cast<PatternName>(i);
  }
  return PatternName::none;
}

std::string reason_of(const Ruling& ruling, Meeting& meeting) {
  if (ruling.pattern == PatternName::none) {
    return std::string("no pattern fuses ") + name_of(meeting.producer().kind) + " into " +
           name_of(meeting.consumer().kind);
  }
  if (ruling.predicate >= 0) return refusal_of(static_cast<Predicate>(ruling.predicate), meeting);
  if (ruling.merge == Merge::no) return meeting.merge_reason();
  const char* const text = kPatterns[static_cast<size_t>(ruling.pattern)].text;
  return ruling.merge == Merge::yes ? text : text + ("; " + meeting.merge_reason());
}

}  // namespace dvm
