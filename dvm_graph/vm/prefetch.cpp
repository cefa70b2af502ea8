#include "vm/prefetch.h"

#include "vm/block_cost.h"
#include "vm/core.h"

namespace dvm {
namespace {

constexpr int64_t kFarCaches = 4;    // a B as large as so many caches comes from far
constexpr double kLeastRuns = 2;     // of memory: less comes quickly enough by itself
constexpr double kMemoryIsIdle = 3;  // rows of a product over those that wait for B from memory

class Prefetcher {
 public:
  Prefetcher(TileCode& code, const Target& target)
      : code_(code),
        cache_bytes_(target.local_bytes),
        least_bytes_(static_cast<int64_t>(kLeastRuns * target.costs.memory_run)),
        least_rows_(kMemoryIsIdle * CubeTerms(target).from_rows) {}

  // From the last product to the first, so that places of those before stay what they are.
  void run() {
    size_t end = code_.instructions.size();
    for (size_t i = end; i-- > 0;) {
      if (!is_matmul(form_of(i))) continue;
      const TileInstruction& product = code_.instructions[i];
      if (product.changed_mask == 0 && has_rows(product)) {
        const bool last = end == code_.instructions.size();
        announce(i, end);
        if (last) announce_next_tile(i);
      }
      end = i;
    }
  }

 private:
  // With fewer rows a product waits for memory itself.
  bool has_rows(const TileInstruction& product) const {
    return static_cast<double>(code_.full_extent(product.extents[0])) >= least_rows_;
  }

  Form form_of(size_t i) const { return info_of(code_.instructions[i].family).form; }

  // Before a product, the operands of what follows up to `end`.
  void announce(size_t product, size_t end) {
    int64_t room = cache_bytes_ - code_.local_bytes - bytes_of(product, 1);
    found_ = 0;
    for (size_t i = product + 1; i < end; ++i) {
      const TileInstruction& instruction = code_.instructions[i];
      if (instruction.changed_mask != 0 || (instruction.flags & kStream) != 0) continue;
      const bool packs = is_pack(instruction);
      if (packs && !worth_fetching(instruction)) continue;
      for (int k = instruction.operand_count; k-- > 0 && found_ < kMostLater;) {
        const int64_t bytes =
            walks_rows(instruction, k) && !is_known(instruction.operands[k]) ? bytes_of(i, k) : 0;
        // What is packed takes the place of what the product has read by then.
        if (bytes < least_bytes_ || (bytes > room && !packs)) continue;
        if (!packs) room -= bytes;
        announced_[found_++] = prefetch_of(instruction, k);
      }
    }
    code_.instructions.insert(code_.instructions.begin() + static_cast<std::ptrdiff_t>(product),
                              announced_, announced_ + found_);
  }

  // Before the last product, what the next tile packs before its first one. What joined
  // instructions behind the product would fetch for the next tile instead, its products would push
  // out again.
  void announce_next_tile(size_t product) {
    if (code_.grid.empty()) return;
    for (size_t i = 0; i < product && !is_matmul(form_of(i)); ++i) {
      const TileInstruction& pack = code_.instructions[i];
      if (!is_pack(pack) || pack.changed_mask != 0) continue;
      if (!walks_rows(pack, 1) || !worth_fetching(pack)) continue;
      const int32_t pointer = pack.operands[1].index;
      if (code_.pointers[pointer].steps[code_.grid.size() - 1] == 0) continue;
      TileInstruction prefetch = prefetch_of(pack, 1);
      prefetch.family = Family::d_prefetch_next;
      code_.ahead[0] = static_cast<uint8_t>(pointer + 1);
      code_.ahead[1] = code_.ahead_lines = 0;
      code_.instructions.insert(
          code_.instructions.begin() + static_cast<std::ptrdiff_t>(product + found_), prefetch);
      return;
    }
  }

  static bool is_pack(const TileInstruction& instruction) {
    const Form form = info_of(instruction.family).form;
    return instruction.family == Family::d_pack_a || form == Form::pack_a_bundles ||
           form == Form::pack_b;
  }

  // Rows of A lie far apart; a B that is near comes quickly enough while it is packed.
  bool worth_fetching(const TileInstruction& pack) const {
    const TileOperand& from = pack.operands[1];
    if (from.space != Space::pointer) return false;
    return info_of(pack.family).form != Form::pack_b ||
           code_.pointers[from.index].high >= kFarCaches * cache_bytes_;
  }

  // The operand lies in global memory, row by row.
  static bool walks_rows(const TileInstruction& instruction, int k) {
    const TileOperand& operand = instruction.operands[k];
    switch (info_of(instruction.family).form) {
      case Form::load:
      case Form::store:
      case Form::pack_a_bundles:
      case Form::pack_b:
      case Form::unary:
      case Form::test:
      case Form::narrow:
      case Form::binary:
      case Form::compare:
      case Form::select: break;
      default: return false;
    }
    return operand.space == Space::pointer && operand.inner == 1 && instruction.extents[0] == 0 &&
           instruction.extents[2] != 0 && (operand.middle != 0 || instruction.extents[1] == 0);
  }

  bool is_known(const TileOperand& operand) const {
    for (int i = 0; i < found_; ++i) {
      if (announced_[i].operands[0].index == operand.index) return true;
    }
    return false;
  }

  static TileInstruction prefetch_of(const TileInstruction& instruction, int k) {
    TileInstruction prefetch;
    prefetch.family = Family::d_prefetch;
    prefetch.dtype = dtype_of(instruction, k);
    prefetch.extents[1] = instruction.extents[1];
    prefetch.extents[2] = instruction.extents[2];
    prefetch.operand_count = 1;
    prefetch.operands[0] = instruction.operands[k];
    prefetch.operands[0].outer = 0;
    return prefetch;
  }

  static DType dtype_of(const TileInstruction& instruction, int k) {
    return operand_dtype(info_of(instruction.family).form, instruction.dtype, k);
  }

  // Of an operand in global memory, in a full tile.
  int64_t bytes_of(size_t i, int k) const {
    const TileInstruction& instruction = code_.instructions[i];
    if (instruction.operands[k].space != Space::pointer) return 0;
    const bool product = is_matmul(info_of(instruction.family).form);
    const uint8_t* e = instruction.extents;
    const int64_t elements = product ? code_.full_extent(e[0]) * code_.full_extent(e[1])
                                     : code_.full_extent(e[1]) * code_.full_extent(e[2]);
    return elements * static_cast<int64_t>(size_of(dtype_of(instruction, k)));
  }

  TileCode& code_;
  const int64_t cache_bytes_, least_bytes_;
  const double least_rows_;
  TileInstruction announced_[kMostLater];
  int found_ = 0;
};

}  // namespace

void prefetch_under_products(TileCode& code, const Target& target) {
  Prefetcher(code, target).run();
}

}  // namespace dvm
