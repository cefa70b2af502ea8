// One AI core to run single instructions on: extent registers, pointer registers over guarded
// memory, and an encoder for one instruction.
//
// Guarded memory ends at an inaccessible page, so an instruction that reads or writes past its
// operand crashes; bytes in front of it and in its gaps are checked by the tests' comparisons.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <vector>

#include "npu/host/levels.h"

namespace dvm::test {

class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes / page + 2) * page;
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(base);
    mprotect(base_ + mapped_ - page, page, PROT_NONE);
    data_ = base_ + mapped_ - page - bytes;
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_, mapped_;
  std::byte* base_;
  std::byte* data_;
};

struct Shape {
  int64_t outer = 1, middle = 1, inner = 1;
  int64_t count() const { return outer * middle * inner; }
};

struct Strides {
  int64_t outer = 0, middle = 0, inner = 0;
  int64_t at(int64_t o, int64_t m, int64_t i) const { return o * outer + m * middle + i * inner; }
  // Elements an operand of this shape spans (strides not negative).
  int64_t span(const Shape& shape) const {
    if (shape.count() == 0) return 0;
    return at(shape.outer - 1, shape.middle - 1, shape.inner - 1) + 1;
  }
};

// An operand in guarded memory, or an immediate (then `immediate` holds its bits).
struct Place {
  std::byte* at = nullptr;
  Strides strides;
  bool is_immediate = false;
  uint64_t immediate = 0;
};

class Machine {
 public:
  explicit Machine(const InstructionTable& table) : table_(table) {
    for (int32_t& extent : core.extents) extent = 1;
    core.local_bytes = size_t{768} << 10;  // loops are sized by it; nothing is placed there
  }

  // Runs one instruction with the operands as pointer registers 0, 1, ...
  void execute(Family family, DType dtype, const Shape& shape, std::initializer_list<Place> places,
               const std::vector<int64_t>& extra = {}, uint8_t flags = 0) {
    const Handler handler = table_.handlers[opcode_of(family, dtype)];
    if (handler == nullptr) throw std::logic_error("no handler");
    core.extents[1] = static_cast<int32_t>(shape.outer);
    core.extents[2] = static_cast<int32_t>(shape.middle);
    core.extents[3] = static_cast<int32_t>(shape.inner);
    std::vector<uint64_t> words(1);
    uint32_t reg = 0;
    for (const Place& place : places) append(words, place, reg++);
    for (const int64_t word : extra) words.push_back(static_cast<uint64_t>(word));
    const Head head{opcode_of(family, dtype),
                    static_cast<uint8_t>(words.size()),
                    0,
                    static_cast<uint8_t>(flags | hints),
                    1,
                    2,
                    3};
    std::memcpy(words.data(), &head, sizeof head);
    core.trap = Trap{};
    handler(core, words.data());
  }

  // Or takes it away. Whatever is in it, bits of NaN here, must not matter.
  void lend_scratch(bool lend) {
    if (lend) std::fill(scratch_.begin(), scratch_.end(), Line{});
    core.scratch = lend ? scratch_.front().bytes : nullptr;
    core.splitting = {.rows = 16, .multiply = 0.5, .a = 1, .b = 1};
  }

  Core core;
  uint8_t hints = 0;  // flags that must not change results

 private:
  struct alignas(64) Line {
    Line() { std::fill(std::begin(bytes), std::end(bytes), std::byte{0xff}); }
    std::byte bytes[64];
  };

  void append(std::vector<uint64_t>& words, const Place& place, uint32_t reg) {
    if (place.is_immediate) {
      words.push_back(static_cast<uint64_t>(Space::immediate) << kSpaceShift);
      words.push_back(place.immediate);
      return;
    }
    core.pointers[reg] = place.at;
    Operand operand{(static_cast<uint32_t>(Space::pointer) << kSpaceShift) | reg,
                    static_cast<int32_t>(place.strides.inner),
                    static_cast<int32_t>(place.strides.outer),
                    static_cast<int32_t>(place.strides.middle)};
    for (const uint64_t word : std::bit_cast<std::array<uint64_t, 2>>(operand)) {
      words.push_back(word);
    }
  }

  const InstructionTable& table_;
  std::vector<Line> scratch_ = std::vector<Line>(kScratchBytes / sizeof(Line));
};

}  // namespace dvm::test
