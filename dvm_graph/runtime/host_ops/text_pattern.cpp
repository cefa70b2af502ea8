#include "runtime/host_ops/text_pattern.h"

#include <algorithm>

#include "runtime/errors.h"
#include "runtime/texts.h"

namespace dvm {
namespace {

constexpr int64_t kMost = 0xffff;

std::span<const int64_t> taken(std::span<const int64_t>& numbers, int64_t count) {
  if (count < 0 || count > static_cast<int64_t>(numbers.size())) {
    throw CompileError("a pattern of text lacks numbers");
  }
  const auto first = numbers.first(static_cast<size_t>(count));
  numbers = numbers.subspan(static_cast<size_t>(count));
  return first;
}

uint16_t below(int64_t number, int64_t limit) {
  if (number < 0 || number >= limit) throw CompileError("a pattern of text has no such part");
  return static_cast<uint16_t>(number);
}

}  // namespace

TextPattern::TextPattern(std::span<const int64_t>& numbers) {
  const auto sizes = taken(numbers, 3);
  for (const int64_t size : sizes) below(size, kMost);
  if (sizes[0] == 0 || sizes[1] == 0) throw CompileError("a pattern of text is empty");
  classes_ = static_cast<size_t>(sizes[0]);
  for (const int64_t border : taken(numbers, sizes[2])) {
    borders_.push_back(static_cast<char32_t>(border));
  }
  for (const int64_t number : taken(numbers, sizes[2] + 1)) {
    interval_classes_.push_back(below(number, sizes[0]));
  }
  for (const int64_t accepts : taken(numbers, sizes[1])) accepts_.push_back(accepts != 0 ? 1 : 0);
  for (const int64_t state : taken(numbers, sizes[0] * sizes[1])) {
    next_.push_back(state == -1 ? kNone : below(state, sizes[1]));
  }
  for (char32_t character = 0; character < ascii_.size(); character++) {
    const auto interval = std::ranges::upper_bound(borders_, character) - borders_.begin();
    ascii_[character] = interval_classes_[static_cast<size_t>(interval)];
  }
  for (size_t byte = 0; byte < begins_.size(); byte++) {
    begins_[byte] = byte >= 0x80 || accepts_[0] != 0 || next_[ascii_[byte]] != kNone;
  }
}

inline size_t TextPattern::class_of(const char*& at) const {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) {
    at++;
    return ascii_[byte];
  }
  const char32_t character = take_character(at);
  const auto interval = std::ranges::upper_bound(borders_, character) - borders_.begin();
  return interval_classes_[static_cast<size_t>(interval)];
}

inline const char* TextPattern::longest(const char* at, const char* end) const {
  const char* found = accepts_[0] != 0 ? at : nullptr;
  size_t state = 0;
  while (at < end) {
    state = next_[state * classes_ + class_of(at)];
    if (state == kNone) break;
    if (accepts_[state] != 0) found = at;
  }
  return found;
}

TextPattern::Match TextPattern::find(const char* from, const char* end) const {
  for (const char* at = from; at <= end; at += at == end ? 1 : bytes_behind(*at)) {
    if (at < end && !begins_[static_cast<unsigned char>(*at)]) continue;
    const char* const found = longest(at, end);
    if (found != nullptr) return {at, found};
  }
  return {};
}

bool TextPattern::matches(std::string_view text) const {
  size_t state = 0;
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    state = next_[state * classes_ + class_of(at)];
    if (state == kNone) return false;
  }
  return accepts_[state] != 0;
}

}  // namespace dvm
