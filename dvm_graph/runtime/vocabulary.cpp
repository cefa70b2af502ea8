#include "runtime/vocabulary.h"

#include <algorithm>

namespace dvm {

Vocabulary::Vocabulary(std::span<const std::string> words, std::span<const int64_t> numbers) {
  slots_.resize(std::bit_ceil(2 * words.size() + 1));
  mask_ = slots_.size() - 1;
  for (size_t i = 0; i < words.size(); i++) {
    const std::string& word = words[i];
    const uint64_t hash = hash_of(word);
    uint64_t slot = hash & mask_;
    const auto is = [&](const Slot& entry) {
      return entry.length == word.size() && bytes_.compare(entry.start, word.size(), word) == 0;
    };
    while (slots_[slot].length != kFree && !is(slots_[slot])) slot = (slot + 1) & mask_;
    slots_[slot] = {bytes_.size(), word.size(), numbers[i], static_cast<uint32_t>(hash >> 32)};
    bytes_ += word;
  }
}

}  // namespace dvm
