#include "vm/allocate.h"

#include <algorithm>

namespace dvm {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Every output element depends on the input elements at the same loop coordinates only.
bool is_elementwise(Form form) {
  switch (form) {
    case Form::unary:
    case Form::test:
    case Form::narrow:
    case Form::cast_f32:
    case Form::cast_f64:
    case Form::cast_i32:
    case Form::cast_i64:
    case Form::cast_b8:
    case Form::check_index:
    case Form::binary:
    case Form::compare:
    case Form::select: return true;
    default: return false;
  }
}

class Allocator {
 public:
  Allocator(TileCode& code, AllocatorScratch& scratch)
      : code_(code), free_(scratch.free), lives_(scratch.lives) {}

  void run() {
    find_lives();
    free_.clear();
    for (size_t b = 0; b < code_.buffers.size(); ++b) {
      if (code_.buffers[b].kept && lives_[b].first >= 0) take(code_.buffers[b]);
    }
    for (size_t i = 0; i < code_.instructions.size(); ++i) place(static_cast<int32_t>(i));
    code_.local_bytes = top_;
  }

 private:
  void find_lives() {
    lives_.assign(code_.buffers.size(), {});
    for (size_t i = 0; i < code_.instructions.size(); ++i) {
      const TileInstruction& instruction = code_.instructions[i];
      for (int k = 0; k < instruction.operand_count; ++k) {
        if (instruction.operands[k].space != Space::local) continue;
        AllocatorScratch::Life& life = lives_[instruction.operands[k].index];
        if (life.first < 0) life.first = static_cast<int32_t>(i);
        life.last = static_cast<int32_t>(i);
      }
    }
  }

  void place(int32_t i) {
    const TileInstruction& instruction = code_.instructions[i];
    for (int k = 0; k < instruction.operand_count; ++k) {
      if (instruction.operands[k].space != Space::local) continue;
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
      if (instruction.operands[k].space != Space::local) continue;
      const int32_t index = instruction.operands[k].index;
      if (lives_[index].last != i || code_.buffers[index].kept) continue;
      lives_[index].last = -1;  // an operand named twice is freed once
      give_back(code_.buffers[index]);
    }
  }

  bool take_over_input(const TileInstruction& instruction, int32_t i, TileBuffer& buffer) {
    if (!is_elementwise(info_of(instruction.family).form)) return false;
    const TileOperand& out = instruction.operands[0];
    for (int k = 1; k < instruction.operand_count; ++k) {
      const TileOperand& in = instruction.operands[k];
      if (in.space != Space::local || in.offset != 0 || out.offset != 0) continue;
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
    const int64_t bytes = aligned(buffer.bytes);
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
    AllocatorScratch::Range range{buffer.offset, aligned(buffer.bytes)};
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
  std::vector<AllocatorScratch::Range>& free_;
  std::vector<AllocatorScratch::Life>& lives_;
  int64_t top_ = 0;
  int32_t group_ = 0;   // the first instruction that has not given back what died with it
  int32_t moved_ = -1;  // input whose memory the output of this instruction took over
};

}  // namespace

void allocate_local(TileCode& code, AllocatorScratch& scratch) { Allocator(code, scratch).run(); }

}  // namespace dvm
