#include "vm/finish_windows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "vm/ending.h"
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
    if (!find(family, dtype)) return nullptr;
    const bool again = forked_ && made_ == fork_;
    if (!(again || is_last_read(made_)) || reads_of(made_) != 1) return nullptr;
    made_ = at_.operands[0];
    ++end_;
    return &at_;
  }

  // As Ending::follow asks for.
  bool fork() {
    fork_ = made_;
    forked_ = true;
    return true;
  }
  bool join(PlanOp op) {
    const Family family = op == PlanOp::mul_ ? Family::v_mul : Family::v_max;
    if (!find(family, dtype())) return false;
    if (!is_last_read(made_) || !is_last_read(fork_)) return false;
    const int reads = made_ == fork_ ? 2 : 1;
    if (reads_of(made_) != reads || reads_of(fork_) != reads) return false;
    made_ = at_.operands[0];
    forked_ = false;
    ++end_;
    return true;
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

  template <class Take>
  bool next_with_number(Take take) {
    static constexpr std::pair<Family, PlanOp> kOperations[] = {{Family::v_max, PlanOp::max_},
                                                                {Family::v_min, PlanOp::min_},
                                                                {Family::v_add, PlanOp::add_},
                                                                {Family::v_mul, PlanOp::mul_},
                                                                {Family::v_div, PlanOp::div_}};
    for (const auto& [family, op] : kOperations) {
      if (!next(family, dtype())) continue;
      return other().space == Space::immediate &&
             take(op, real_of(dtype(), other().immediate()), read_ == 1);
    }
    return false;
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
  DType dtype() const { return code_->instructions[sums_].dtype; }

  // Whether the next instruction is of this kind and goes over the same loops.
  bool find(Family family, DType dtype) {
    if (end_ >= code_->instructions.size()) return false;
    const TileInstruction& sums = code_->instructions[sums_];
    at_ = code_->instructions[end_];
    if (at_.family != family || at_.dtype != dtype) return false;
    if (at_.changed_mask != sums.changed_mask || ((at_.flags ^ sums.flags) & kChunks) != 0)
      return false;
    const Loops loops = loops_of(sums);
    if (loops_of(at_) != loops) {
      if (!loops_of(at_).flat() || !splits(*code_, at_, loops, 0)) return false;
      split(*code_, at_, loops);
    }
    return true;
  }

  // Of a value by the instruction at hand.
  bool is_last_read(const TileOperand& value) const {
    return value.space == Space::local && !code_->buffers[value.index].kept &&
           (*last_use_)[value.index] == static_cast<int32_t>(end_);
  }
  int reads_of(const TileOperand& value) {
    int reads = 0;
    for (int k = 1; k < at_.operand_count; ++k) {
      if (value.space != Space::local || at_.operands[k] != value) continue;
      read_ = k;
      ++reads;
    }
    return reads;
  }

  const TileCode* code_;
  const std::vector<int32_t>* last_use_;
  size_t sums_, end_;
  TileOperand made_;  // what the instruction before has written
  TileOperand fork_;  // what has been written before, and is read further on
  bool forked_ = false;
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
      case Family::d_depthwise: return find_ended(sums);
      case Family::d_depthwise_bytes: return find_quantized(sums);
      default: return 0;
    }
  }

  // A row is added, and results end.
  size_t find_ended(size_t sums) {
    Chain chain(code_, last_use_, sums);
    finished_ = code_.instructions[sums];
    const DType dtype = finished_.dtype;
    Ending ending;
    Chain more = chain;
    if (more.next(Family::v_add, dtype) && more.is_row_or_zero()) {
      finished_.operands[kAddend] = more.other();
      chain = more;
    }
    ending.follow(chain, dtype);
    ending.write(dtype, finished_.extra);
    finished_.operands[0] = chain.made();
    finished_.flags |= chain.flags() & kStream;
    return chain.end();
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
