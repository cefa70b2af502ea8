#include "vm/allocate.h"

#include <algorithm>

namespace dvm {
namespace {

int64_t bytes_of(const TileBuffer& buffer) {
  return place_bytes(buffer) * (buffer.two_places ? 2 : 1);
}

void find_lives(const TileCode& code, std::vector<AllocatorScratch::Life>& lives) {
  lives.assign(code.buffers.size(), {});
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    const TileInstruction& instruction = code.instructions[i];
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (instruction.operands[k].space != Space::local) continue;
      AllocatorScratch::Life& life = lives[static_cast<size_t>(instruction.operands[k].index)];
      if (life.first < 0) life.first = static_cast<int32_t>(i);
      life.last = static_cast<int32_t>(i);
    }
  }
}

class Allocator {
 public:
  // Of the buffers in one local memory, which begins at an offset; their lives are known.
  Allocator(TileCode& code, Memory memory, int64_t begin, AllocatorScratch& scratch)
      : code_(code), memory_(memory), free_(scratch.free), lives_(scratch.lives), top_(begin) {}

  // Returns where the memory in use ends.
  int64_t run() {
    free_.clear();
    bool shared = false;
    for (size_t b = 0; b < code_.buffers.size(); ++b) {
      if (!is_here(b) || lives_[b].first < 0) continue;
      if (code_.buffers[b].kept) {
        take(code_.buffers[b]);
      } else {
        shared = true;
      }
    }
    if (!shared) return top_;
    for (size_t i = 0; i < code_.instructions.size(); ++i) place(static_cast<int32_t>(i));
    return top_;
  }

 private:
  bool is_here(size_t buffer) const { return code_.buffers[buffer].memory == memory_; }
  bool is_here(const TileOperand& operand) const {
    return operand.space == Space::local && is_here(static_cast<size_t>(operand.index));
  }

  void place(int32_t i) {
    const TileInstruction& instruction = code_.instructions[i];
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (!is_here(instruction.operands[k])) continue;
      TileBuffer& buffer = code_.buffers[instruction.operands[k].index];
      if (buffer.offset >= 0 || buffer.kept) continue;
      if (!take_over_input(instruction, i, buffer)) take(buffer);
    }
    if (moved_ >= 0) lives_[moved_].last = -1;  // it is its successor's to give back
    moved_ = -1;
    // Joined instructions run strip by strip, others by rows: what one of them reads lives as long
    // as all of them.
    if (instruction.flags & (kJoined | kRows)) return;
    for (; group_ <= i; ++group_) give_back_dead(code_.instructions[group_], group_);
  }

  void give_back_dead(const TileInstruction& instruction, int32_t i) {
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (!is_here(instruction.operands[k])) continue;
      const int32_t index = instruction.operands[k].index;
      if (lives_[index].last != i || code_.buffers[index].kept) continue;
      lives_[index].last = -1;  // an operand named twice is freed once
      give_back(code_.buffers[index]);
    }
  }

  bool take_over_input(const TileInstruction& instruction, int32_t i, TileBuffer& buffer) {
    if (!is_elementwise(instruction.family)) return false;
    const TileOperand& out = instruction.operands[0];
    for (int k = 1; k < instruction.operand_count; ++k) {
      const TileOperand& in = instruction.operands[k];
      if (!is_here(in) || in.offset != 0 || out.offset != 0) continue;
      const TileBuffer& source = code_.buffers[in.index];
      if (source.kept || source.bytes != buffer.bytes || lives_[in.index].last != i) continue;
      if (in.inner != out.inner || in.middle != out.middle || in.outer != out.outer) continue;
      buffer.offset = source.offset;
      moved_ = in.index;
      return true;
    }
    return false;
  }

  void take(TileBuffer& buffer) {
    const int64_t bytes = bytes_of(buffer);
    size_t best = free_.size();
    for (size_t f = 0; f < free_.size(); ++f) {
      if (free_[f].bytes < bytes) continue;
      if (best == free_.size() || free_[f].bytes < free_[best].bytes) best = f;
    }
    if (best == free_.size()) {
      // A free range that ends at the top grows.
      if (!free_.empty() && free_.back().offset + free_.back().bytes == top_) {
        buffer.offset = free_.back().offset;
        free_.pop_back();
      } else {
        buffer.offset = top_;
      }
      top_ = buffer.offset + bytes;
      return;
    }
    buffer.offset = free_[best].offset;
    free_[best].offset += bytes;
    free_[best].bytes -= bytes;
    if (free_[best].bytes == 0) free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(best));
  }

  void give_back(const TileBuffer& buffer) {
    AllocatorScratch::Range range{buffer.offset, bytes_of(buffer)};
    auto next = std::lower_bound(free_.begin(), free_.end(), range,
                                 [](const auto& a, const auto& b) { return a.offset < b.offset; });
    if (next != free_.end() && range.offset + range.bytes == next->offset) {
      range.bytes += next->bytes;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->offset + std::prev(next)->bytes == range.offset) {
      std::prev(next)->bytes += range.bytes;
      return;
    }
    free_.insert(next, range);
  }

  TileCode& code_;
  const Memory memory_;
  std::vector<AllocatorScratch::Range>& free_;
  std::vector<AllocatorScratch::Life>& lives_;
  int64_t top_;
  int32_t group_ = 0;   // the first instruction that has not given back what died with it
  int32_t moved_ = -1;  // input whose memory the output of this instruction took over
};

}  // namespace

int64_t place_bytes(const TileBuffer& buffer) { return aligned(buffer.bytes); }

void allocate_local(TileCode& code, const Target& target, AllocatorScratch& scratch) {
  uint32_t used = 0;
  for (const TileBuffer& buffer : code.buffers) used |= 1u << static_cast<int>(buffer.memory);
  find_lives(code, scratch.lives);
  code.local_bytes = 0;
  int64_t begin = 0;
  for (int m = 0; m < kMemories; ++m) {
    const auto memory = static_cast<Memory>(m);
    const int64_t end = begin + target.memory_bytes(memory);
    if (used >> m & 1) {
      code.local_bytes = Allocator(code, memory, begin, scratch).run();
      if (code.local_bytes > end) {
        code.local_bytes = target.memory_end() + 1;
        return;
      }
    }
    begin = end;
  }
}

}  // namespace dvm
