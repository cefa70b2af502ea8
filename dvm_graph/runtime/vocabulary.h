// Strings that are known, and a number for each: a hash table over their bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dvm {

class Vocabulary {
 public:
  // As many numbers as words; of equal words the last counts.
  Vocabulary(std::span<const std::string> words, std::span<const int64_t> numbers);

  int64_t number_of(std::string_view word, int64_t other) const {
    const uint64_t hash = hash_of(word);
    for (uint64_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
      const Slot& entry = slots_[slot];
      if (entry.length == kFree) return other;
      if (entry.hash == static_cast<uint32_t>(hash >> 32) && entry.length == word.size() &&
          (word.empty() ||
           std::memcmp(bytes_.data() + entry.start, word.data(), word.size()) == 0)) {
        return entry.number;
      }
    }
  }

  static uint64_t hash_of(std::string_view word) {
    uint64_t hash = 0x9e3779b97f4a7c15u ^ word.size();
    const char* at = word.data();
    size_t left = word.size();
    for (; left >= 8; at += 8, left -= 8) hash = mixed(hash ^ eight_at(at, 8));
    if (left != 0) hash = mixed(hash ^ eight_at(at, left));
    return hash ^ hash >> 32;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t start = 0, length = kFree;
    int64_t number = 0;
    uint32_t hash = 0;
  };

  static uint64_t mixed(uint64_t hash) {
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ std::rotr(hash, 29);
  }
  static uint64_t eight_at(const char* at, size_t bytes) {
    uint64_t word = 0;
    if (bytes == 8) {
      std::memcpy(&word, at, 8);
    } else {
      for (size_t i = 0; i < bytes; i++) {
        word |= uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
      }
    }
    return word;
  }

  std::string bytes_;
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
};

}  // namespace dvm
