#include "runtime/checksum.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace dvm {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Castagnoli's, bits reversed
constexpr size_t kTogether = 4;               // blocks whose chains of one core overlap

constexpr std::array<uint32_t, 256> table_of_bytes() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

uint32_t next_byte(uint32_t crc, std::byte byte) {
  static constexpr auto table = table_of_bytes();
  return crc >> 8 ^ table[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
}

// Continues `count` chains of equal blocks over `words` words of eight bytes each.
using Words = void (*)(uint64_t* chains, const std::byte* from, size_t block, size_t count,
                       size_t words);

void by_table(uint64_t* chains, const std::byte* from, size_t block, size_t count, size_t words) {
  for (size_t i = 0; i < count; i++) {
    auto crc = static_cast<uint32_t>(chains[i]);
    for (size_t at = 0; at < words * 8; at++) crc = next_byte(crc, from[i * block + at]);
    chains[i] = crc;
  }
}

#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))
#define DVM_CRC_INSTRUCTION
#if defined(__x86_64__)
#define DVM_CRC_TARGET __attribute__((target("sse4.2")))
DVM_CRC_TARGET inline uint64_t next_word(uint64_t crc, uint64_t word) {
  return _mm_crc32_u64(crc, word);
}
#else
#define DVM_CRC_TARGET __attribute__((target("+crc")))
DVM_CRC_TARGET inline uint64_t next_word(uint64_t crc, uint64_t word) {
  return __crc32cd(static_cast<uint32_t>(crc), word);
}
#endif

DVM_CRC_TARGET void by_instruction(uint64_t* chains, const std::byte* from, size_t block,
                                   size_t count, size_t words) {
  const auto word = [](const std::byte* at) {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  if (count == kTogether) {
    uint64_t a = chains[0], b = chains[1], c = chains[2], d = chains[3];
    for (size_t i = 0; i < words; i++, from += 8) {
      a = next_word(a, word(from));
      b = next_word(b, word(from + block));
      c = next_word(c, word(from + 2 * block));
      d = next_word(d, word(from + 3 * block));
    }
    chains[0] = a, chains[1] = b, chains[2] = c, chains[3] = d;
    return;
  }
  for (size_t i = 0; i < count; i++) {
    const std::byte* const start = from + i * block;
    for (size_t at = 0; at < words; at++) chains[i] = next_word(chains[i], word(start + at * 8));
  }
}
#endif

Words words_of_this_cpu() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") ? by_instruction : by_table;
#elif defined(DVM_CRC_INSTRUCTION)
  constexpr unsigned long kCrc32 = 1UL << 7;  // HWCAP_CRC32
  return (getauxval(AT_HWCAP) & kCrc32) != 0 ? by_instruction : by_table;
#else
  return by_table;
#endif
}

// Of `count` blocks of `bytes` each, `block` apart.
void add_up(const std::byte* from, size_t block, size_t count, size_t bytes, uint32_t* sums) {
  static const Words words = words_of_this_cpu();
  uint64_t chains[kTogether];
  std::fill_n(chains, count, uint64_t{0xffffffff});
  words(chains, from, block, count, bytes / 8);
  for (size_t i = 0; i < count; i++) {
    auto crc = static_cast<uint32_t>(chains[i]);
    for (size_t at = bytes / 8 * 8; at < bytes; at++) crc = next_byte(crc, from[i * block + at]);
    sums[i] = ~crc;
  }
}

}  // namespace

std::vector<uint32_t> checksums(std::span<const std::byte> contents, size_t block, int threads) {
  std::vector<uint32_t> sums((contents.size() + block - 1) / block);
  const size_t whole = contents.size() / block;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(kTogether); i < whole; i = next.fetch_add(kTogether)) {
      add_up(&contents[i * block], block, std::min(kTogether, whole - i), block, &sums[i]);
    }
  };
  {
    std::vector<std::jthread> others;  // joined at the end, also where one cannot be started
    const auto most = static_cast<int>((whole + kTogether - 1) / kTogether);
    for (int i = 1; i < std::min(threads, most); i++) others.emplace_back(work);
    work();
  }
  if (whole < sums.size()) {
    add_up(&contents[whole * block], block, 1, contents.size() - whole * block, &sums[whole]);
  }
  return sums;
}

}  // namespace dvm
