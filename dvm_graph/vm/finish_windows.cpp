#include "vm/finish_windows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "vm/bounds.h"
#include "vm/strips.h"
#include "vm/tile_loops.h"
#include "vm/whole_level.h"

namespace dvm {
namespace {

constexpr int kAddend = 4, kFactor = 5;  // operands of d_depthwise, and of d_depthwise_quantize

// The instructions behind one that sums windows, each of which alone reads what the one before
// writes, over the same loops.
class Chain {
 public:
  Chain(const TileCode& code, const std::vector<int32_t>& last_use, size_t sums)
      : code_(&code), last_use_(&last_use), sums_(sums), end_(sums + 1) {
    made_ = code.instructions[sums].operands[0];
  }

  size_t end() const { return end_; }  // behind the last instruction of the chain

  // Goes on to the next instruction, if it is of this kind; null: it is not. Valid until the next
  // call.
  const TileInstruction* next(Family family, DType dtype) {
    if (end_ >= code_->instructions.size()) return nullptr;
    const TileInstruction& sums = code_->instructions[sums_];
    at_ = code_->instructions[end_];
    if (at_.family != family || at_.dtype != dtype) return nullptr;
    if (at_.changed_mask != sums.changed_mask || ((at_.flags ^ sums.flags) & kChunks) != 0)
      return nullptr;
    const Loops loops = loops_of(sums);
    if (loops_of(at_) != loops) {
      if (!loops_of(at_).flat() || !splits(*code_, at_, loops, 0)) return nullptr;
      split(*code_, at_, loops);
    }
    const bool alone = made_.space == Space::local && !code_->buffers[made_.index].kept &&
                       (*last_use_)[made_.index] == static_cast<int32_t>(end_);
    int reads = 0;
    for (int k = 1; k < at_.operand_count; ++k) {
      if (!is_made(at_.operands[k])) continue;
      read_ = k;
      ++reads;
    }
    if (!alone || reads != 1) return nullptr;
    made_ = at_.operands[0];
    ++end_;
    return &at_;
  }

  const TileOperand& made() const { return made_; }  // by the last instruction
  uint8_t flags() const { return at_.flags; }        // of it; none: there is none

  // Of the last instruction, which has two operands: what it reads besides.
  const TileOperand& other() const { return at_.operands[read_ == 1 ? 2 : 1]; }

  // One for each element along the inner loop, side by side, or 0 for all.
  bool is_row_or_zero() const {
    const TileOperand& by = other();
    if (by.space == Space::immediate) return by.immediate() == 0;
    return by.outer == 0 && by.middle == 0 && by.inner == 1;
  }

  // One for all elements, or for those along one loop.
  bool varies_once() const {
    const TileOperand& by = other();
    return by.space == Space::immediate || (by.outer != 0) + (by.middle != 0) + (by.inner != 0) < 2;
  }

  // That number, as a level.
  bool level(int64_t& level) const {
    if (other().space != Space::immediate) return false;
    const auto bits = static_cast<uint32_t>(other().immediate());
    const double number =
        at_.dtype == DType::f32 ? std::bit_cast<float>(bits) : std::bit_cast<int32_t>(bits);
    const auto whole = whole_level(number);
    if (whole) level = *whole;
    return whole.has_value();
  }

 private:
  bool is_made(const TileOperand& operand) const {
    return operand.space == Space::local && operand.index == made_.index &&
           operand.offset == made_.offset && operand.inner == made_.inner &&
           operand.middle == made_.middle && operand.outer == made_.outer;
  }

  const TileCode* code_;
  const std::vector<int32_t>* last_use_;
  size_t sums_, end_;
  TileOperand made_;  // what the instruction before has written
  TileInstruction at_ = kNoInstruction;
  int read_ = 0;  // the operand that this one reads it as
};

class Finisher {
 public:
  Finisher(TileCode& code, FinishScratch& scratch) : code_(code), last_use_(scratch.last_use) {}

  void run() {
    auto& instructions = code_.instructions;
    if (std::ranges::none_of(instructions, sums_windows)) return;
    find_last_uses(code_, last_use_);
    size_t kept = 0;
    for (size_t i = 0; i < instructions.size();) {
      const size_t end = find(i);
      instructions[kept++] = end > 0 ? finished_ : instructions[i];
      i = end > 0 ? end : i + 1;
    }
    instructions.resize(kept);
  }

 private:
  static bool sums_windows(const TileInstruction& instruction) {
    return instruction.family == Family::d_depthwise ||
           instruction.family == Family::d_depthwise_bytes;
  }

  // Makes the one instruction of the chain that begins here, and returns its end; 0: there is none.
  size_t find(size_t sums) {
    switch (code_.instructions[sums].family) {
      case Family::d_depthwise: return find_bounded(sums);
      case Family::d_depthwise_bytes: return find_quantized(sums);
      default: return 0;
    }
  }

  // A row is added, and results are kept between numbers.
  size_t find_bounded(size_t sums) {
    Chain chain(code_, last_use_, sums);
    finished_ = code_.instructions[sums];
    const DType dtype = finished_.dtype;
    Bounds bounds;
    Chain more = chain;
    if (more.next(Family::v_add, dtype) && more.is_row_or_zero()) {
      finished_.operands[kAddend] = more.other();
      chain = more;
    }
    while (bound(more = chain, dtype, bounds)) chain = more;
    bounds.write(dtype, finished_.extra);
    finished_.operands[0] = chain.made();
    finished_.flags |= chain.flags() & kStream;
    return chain.end();
  }

  static bool bound(Chain& chain, DType dtype, Bounds& bounds) {
    const bool above = chain.next(Family::v_max, dtype) != nullptr;
    if (!above && !chain.next(Family::v_min, dtype)) return false;
    const TileOperand& number = chain.other();
    return number.space == Space::immediate &&
           bounds.keep(above, real_of(dtype, number.immediate()));
  }

  // The chain is what follows products that quantise, too (CubeProblem::find_levels).
  size_t find_quantized(size_t sums) {
    Chain chain(code_, last_use_, sums);
    finished_ = code_.instructions[sums];
    finished_.family = Family::d_depthwise_quantize;
    finished_.operand_count = 6;
    TileOperand& addend = finished_.operands[kAddend];
    addend = TileOperand::of_immediate(0);
    if (chain.next(Family::v_add, DType::i32)) {
      if (!chain.varies_once()) return 0;
      addend = chain.other();
    }
    if (!chain.next(Family::v_cast_to_f32, DType::i32)) return 0;
    if (!chain.next(Family::v_mul, DType::f32) || !chain.varies_once()) return 0;
    finished_.operands[kFactor] = chain.other();
    Levels levels{};
    if (!chain.next(Family::v_round, DType::f32)) return 0;
    if (chain.next(Family::v_add, DType::f32) && !chain.level(levels.zero)) return 0;
    if (!chain.next(Family::v_min, DType::f32) || !chain.level(levels.high)) return 0;
    if (!chain.next(Family::v_cast_to_i32, DType::f32)) return 0;
    if (!chain.next(Family::v_max, DType::i32) || !chain.level(levels.low)) return 0;
    if (chain.next(Family::v_add, DType::i32)) {  // signed bytes become unsigned ones
      int64_t more = 0;
      if (!chain.level(more)) return 0;
      levels = levels.moved(more);
    }
    if (!store(chain, levels)) return 0;
    std::memcpy(finished_.extra, &levels, sizeof levels);
    return chain.end();
  }

  // As bytes of a result, as bundles, or as numbers that others read.
  bool store(Chain& chain, const Levels& levels) {
    if (levels.low > levels.high) return false;
    for (const DType dtype : {DType::u8, DType::i8}) {
      if (chain.next(Family::v_narrow, dtype) && !are_bytes(levels, dtype)) return false;
    }
    for (const DType dtype : {DType::u8, DType::i8}) {
      const TileInstruction* bytes = chain.next(Family::d_store, dtype);
      if (bytes == nullptr) bytes = chain.next(Family::d_store_view, dtype);
      if (bytes == nullptr) continue;
      if (!are_bytes(levels, dtype)) return false;
      // What is turned around is so in tiles, not byte by byte.
      if (bytes->operands[0].inner != finished_.operands[0].inner) return false;
      finished_.dtype = dtype;
      finished_.operands[0] = bytes->operands[0];
      return true;
    }
    const TileOperand numbers = chain.made();
    const TileInstruction* const bundles = chain.next(Family::d_pack_a_bundles, DType::i32);
    if (bundles == nullptr) {
      finished_.dtype = DType::i32;
      finished_.operands[0] = numbers;
      return true;
    }
    if (!joins(*bundles)) return false;
    if (!joins_over(bundles->family, extent_of(code_, bundles->extents[2]))) return false;
    finished_.dtype = levels.low < 0 ? DType::i8 : DType::u8;
    TileOperand& to = finished_.operands[0];
    to = bundles->operands[0];
    to.outer *= bundle_steps(DType::i8);
    to.middle *= bundle_steps(DType::i8);
    return are_bytes(levels, finished_.dtype);
  }

  TileCode& code_;
  std::vector<int32_t>& last_use_;
  TileInstruction finished_ = kNoInstruction;
};

}  // namespace

void finish_windows(TileCode& code, const Target& target, FinishScratch& scratch) {
  if (target.unified_memory) Finisher(code, scratch).run();
}

}  // namespace dvm
