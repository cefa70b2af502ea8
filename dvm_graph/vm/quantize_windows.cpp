#include "vm/quantize_windows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "vm/strips.h"
#include "vm/tile_loops.h"
#include "vm/whole_level.h"

namespace dvm {
namespace {

constexpr int kAddend = 4, kFactor = 5;  // operands of d_depthwise_quantize

// The instructions behind one that sums windows, each of which alone reads what the one before
// writes, over the same loops.
class Chain {
 public:
  Chain(const TileCode& code, const std::vector<int32_t>& last_use, size_t sums)
      : code_(code), last_use_(last_use), sums_(sums), end_(sums + 1) {
    made_ = code.instructions[sums].operands[0];
  }

  size_t end() const { return end_; }  // behind the last instruction of the chain

  // Goes on to the next instruction, if it is of this kind; null: it is not. Valid until the next
  // call.
  const TileInstruction* next(Family family, DType dtype) {
    if (end_ >= code_.instructions.size()) return nullptr;
    const TileInstruction& sums = code_.instructions[sums_];
    at_ = code_.instructions[end_];
    if (at_.family != family || at_.dtype != dtype) return nullptr;
    if (at_.changed_mask != sums.changed_mask || ((at_.flags ^ sums.flags) & kChunks) != 0)
      return nullptr;
    const Loops loops = loops_of(sums);
    if (loops_of(at_) != loops) {
      if (!loops_of(at_).flat() || !splits(code_, at_, loops, 0)) return nullptr;
      split(code_, at_, loops);
    }
    const bool alone = made_.space == Space::local && !code_.buffers[made_.index].kept &&
                       last_use_[made_.index] == static_cast<int32_t>(end_);
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

  // Of the last instruction, which has two operands: what it reads besides.
  const TileOperand& other() const { return at_.operands[read_ == 1 ? 2 : 1]; }

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

  const TileCode& code_;
  const std::vector<int32_t>& last_use_;
  const size_t sums_;
  size_t end_;
  TileOperand made_;  // what the instruction before has written
  TileInstruction at_ = kNoInstruction;
  int read_ = 0;  // the operand that this one reads it as
};

class Quantizer {
 public:
  Quantizer(TileCode& code, QuantizeScratch& scratch) : code_(code), last_use_(scratch.last_use) {}

  void run() {
    auto& instructions = code_.instructions;
    if (std::ranges::none_of(instructions, sums_bytes)) return;
    find_last_uses(code_, last_use_);
    size_t kept = 0;
    for (size_t i = 0; i < instructions.size();) {
      const size_t end = sums_bytes(instructions[i]) ? find(i) : 0;
      instructions[kept++] = end > 0 ? quantized_ : instructions[i];
      i = end > 0 ? end : i + 1;
    }
    instructions.resize(kept);
  }

 private:
  static bool sums_bytes(const TileInstruction& instruction) {
    return instruction.family == Family::d_depthwise_bytes;
  }

  // Makes the one instruction of the chain that begins here, and returns its end; 0: there is none.
  // The chain is what follows products that quantise, too (CubeProblem::find_levels).
  size_t find(size_t sums) {
    Chain chain(code_, last_use_, sums);
    quantized_ = code_.instructions[sums];
    quantized_.family = Family::d_depthwise_quantize;
    quantized_.operand_count = 6;
    TileOperand& addend = quantized_.operands[kAddend];
    addend = TileOperand::of_immediate(0);
    if (chain.next(Family::v_add, DType::i32)) {
      if (!chain.varies_once()) return 0;
      addend = chain.other();
    }
    if (!chain.next(Family::v_cast_to_f32, DType::i32)) return 0;
    if (!chain.next(Family::v_mul, DType::f32) || !chain.varies_once()) return 0;
    quantized_.operands[kFactor] = chain.other();
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
    std::memcpy(quantized_.extra, &levels, sizeof levels);
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
      if (bytes->operands[0].inner != quantized_.operands[0].inner) return false;
      quantized_.dtype = dtype;
      quantized_.operands[0] = bytes->operands[0];
      return true;
    }
    const TileOperand numbers = chain.made();
    const TileInstruction* const bundles = chain.next(Family::d_pack_a_bundles, DType::i32);
    if (bundles == nullptr) {
      quantized_.dtype = DType::i32;
      quantized_.operands[0] = numbers;
      return true;
    }
    if (!joins(*bundles)) return false;
    if (!joins_over(bundles->family, extent_of(code_, bundles->extents[2]))) return false;
    quantized_.dtype = levels.low < 0 ? DType::i8 : DType::u8;
    TileOperand& to = quantized_.operands[0];
    to = bundles->operands[0];
    to.outer *= bundle_steps(DType::i8);
    to.middle *= bundle_steps(DType::i8);
    return are_bytes(levels, quantized_.dtype);
  }

  TileCode& code_;
  std::vector<int32_t>& last_use_;
  TileInstruction quantized_ = kNoInstruction;
};

}  // namespace

void quantize_windows(TileCode& code, QuantizeScratch& scratch) { Quantizer(code, scratch).run(); }

}  // namespace dvm
