#include "vm/move_loads.h"

#include <algorithm>
#include <span>

#include "vm/steps.h"
#include "vm/strips.h"
#include "vm/tile_loops.h"

namespace dvm {
namespace {

constexpr size_t kMostCopies = 8;  // of an instruction: readers have at most three inputs each

class LoadMover {
 public:
  LoadMover(TileCode& code, int64_t least_row) : code_(code), least_row_(least_row) {}

  void run() {
    Steps steps = steps_over(code_.instructions.size(), kMostCopies, "moving of loads");
    for (size_t i = 0; i < code_.instructions.size();) {
      steps.take();
      if (!is_load(at(i).family)) {
        ++i;
      } else if (!suits_readers(i)) {
        hoist(i++);
      } else if (!give_to_readers(i)) {
        ++i;
      }
    }
  }

 private:
  TileInstruction& at(size_t i) { return code_.instructions[i]; }
  auto place(size_t i) { return code_.instructions.begin() + static_cast<std::ptrdiff_t>(i); }

  // Every reader can run together with a load of its own.
  bool suits_readers(size_t i) {
    const TileInstruction& load = at(i);
    const TileOperand& out = load.operands[0];
    if (!joins(load) || load.changed_mask != 0 || out.space != Space::local) return false;
    if (code_.buffers[out.index].kept) return false;
    bool any = false;
    for (size_t j = 0; j < code_.instructions.size(); ++j) {
      if (j == i) continue;
      const TileInstruction& other = at(j);
      if (names(other.operands[0], out.index)) return false;
      if (!reads(other, out.index)) continue;
      if (j < i || !joins(other) || other.changed_mask != 0) return false;
      if (is_reduction(other) && other.extents[2] != 0) return false;
      const Loops here = loops_of(load), there = loops_of(other);
      if (here != there && !(here.flat() && splits(code_, load, there, least_row_)) &&
          !(there.flat() && !is_reduction(other) && splits(code_, other, here, least_row_))) {
        return false;
      }
      any = true;
    }
    return any;
  }

  // True: the load is elsewhere now.
  bool give_to_readers(size_t i) {
    const int32_t buffer = at(i).operands[0].index;
    const size_t count = code_.instructions.size();
    size_t first = i + 1;
    while (first < count && !reads(at(first), buffer)) ++first;
    if (first == count) return false;
    for (size_t j = code_.instructions.size(); --j > first;) {
      if (!reads(at(j), buffer)) continue;
      TileInstruction copy = at(i);
      copy.operands[0].index = code_.add_buffer(code_.buffers[buffer].bytes, false);
      copy.flags |= at(j).flags & kChunks;
      read_instead(at(j), buffer, copy.operands[0].index);
      code_.instructions.insert(place(j), copy);
    }
    at(i).flags |= at(first).flags & kChunks;
    size_t next = i + 1;
    while (next < first && is_load(at(next).family)) ++next;
    if (next == first) return false;
    std::rotate(place(i), place(i + 1), place(first));
    return true;
  }

  void hoist(size_t i) {
    if (at(i).operands[0].space == Space::pointer) return;  // others may read what it overwrites
    const TileOperand from = at(i).operands[1];
    size_t to = i;
    for (; to > 0; --to) {
      const TileInstruction& before = at(to - 1);
      const TileOperand& out = before.operands[0];
      if (!joins(before) || (is_load(before.family) && before.changed_mask != 0)) break;
      if (out.space == Space::pointer &&
          code_.pointers[out.index].buffer == code_.pointers[from.index].buffer) {
        break;
      }
    }
    std::rotate(place(to), place(i), place(i + 1));
  }

  TileCode& code_;
  const int64_t least_row_;
};

bool writes(const TileCode& code, int32_t buffer) {
  return std::ranges::any_of(code.instructions, [&](const TileInstruction& instruction) {
    const TileOperand& out = instruction.operands[0];
    return out.space == Space::pointer && code.pointers[out.index].buffer == buffer;
  });
}

// Others may read what it overwrites, or have written what it reads.
bool keeps_its_place(const TileCode& code, const TileInstruction& instruction) {
  const std::span operands(instruction.operands, instruction.operand_count);
  return std::ranges::any_of(operands, [&](const TileOperand& operand) {
    return operand.space == Space::pointer && writes(code, code.pointers[operand.index].buffer);
  });
}

// What does not run for every tile, and so reads nothing that does.
void rare_first(TileCode& code) {
  std::vector<TileInstruction>& all = code.instructions;
  const auto is_rare = [](const TileInstruction& instruction) {
    return instruction.changed_mask != 0;
  };
  for (const TileInstruction& instruction : all)
    if (is_rare(instruction) && keeps_its_place(code, instruction)) return;
  auto next = std::ranges::find_if_not(all, is_rare);
  for (auto it = next; it != all.end(); ++it)
    if (is_rare(*it)) std::rotate(next++, it, it + 1);
}

}  // namespace

void move_loads(TileCode& code, const Target& target) {
  rare_first(code);
  LoadMover(code, least_row(target)).run();
}

}  // namespace dvm
