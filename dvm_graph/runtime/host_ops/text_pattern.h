// What a regular expression matches, as an automaton over classes of characters, which
// decompose/patterns.py makes: of the matches that begin first, the longest.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dvm {

class TextPattern {
 public:
  // Takes its numbers off the front: how many classes, states and borders there are; borders
  // between intervals of characters, ascending; the class of each interval; of each state whether
  // it is the end of a match; of each state and class the state behind, or -1. Throws CompileError.
  explicit TextPattern(std::span<const int64_t>& numbers);

  struct Match {
    const char *begin = nullptr, *end = nullptr;
    explicit operator bool() const { return begin != nullptr; }
  };
  // In UTF-8 from a character on.
  Match find(const char* from, const char* end) const;
  bool matches(std::string_view text) const;

 private:
  static constexpr uint16_t kNone = 0xffff;

  size_t class_of(const char*& at) const;
  // The end of the longest match that begins there; null: none does.
  const char* longest(const char* at, const char* end) const;

  size_t classes_ = 0;
  std::array<uint16_t, 128> ascii_ = {};
  std::vector<char32_t> borders_;
  std::vector<uint16_t> interval_classes_, next_;
  std::vector<char> accepts_;
  std::array<bool, 256> begins_ = {};  // whether a match may begin with this byte
};

}  // namespace dvm
