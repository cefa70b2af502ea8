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

// What does not run for every tile, or for one element of it, comes before what does, as far as
// that is independent of it, and parts none of it.
void few_first(TileCode& code) {
  std::vector<TileInstruction>& all = code.instructions;
  const auto is_few = [&](const TileInstruction& instruction) {
    return instruction.changed_mask != 0 ||
           std::ranges::all_of(instruction.extents,
                               [&](uint8_t extent) { return code.full_extent(extent) == 1; });
  };
  for (size_t i = 0; i < all.size(); ++i) {
    if (!is_few(all[i])) continue;
    size_t to = i;
    while (to > 0 && !is_few(all[to - 1]) && may_change_places(code, all[to - 1], all[i])) --to;
    std::rotate(all.begin() + static_cast<ptrdiff_t>(to), all.begin() + static_cast<ptrdiff_t>(i),
                all.begin() + static_cast<ptrdiff_t>(i + 1));
  }
}

// Stores of rows too short to join come behind what reads the same, which they would part, and
// before what is stored next, which may be written over what a later load would read
// (runtime/in_place.h).
void short_stores_last(TileCode& code, int64_t least_row) {
  std::vector<TileInstruction>& all = code.instructions;
  for (size_t i = all.size(); i-- > 0;) {
    const TileInstruction& store = all[i];
    const TileOperand& from = store.operands[1];
    if (store.family != Family::d_store_view || from.space != Space::local) continue;
    if (code.full_extent(store.extents[2]) >= least_row) continue;
    size_t last = i, to = i;
    for (size_t j = i + 1; j < all.size() && may_change_places(code, store, all[j]); ++j) {
      if (all[j].operands[0].space == Space::pointer) break;
      if (all[j].changed_mask != store.changed_mask || ((all[j].flags ^ store.flags) & kChunks))
        break;
      to = j;
      if (reads(all[j], from.index)) last = j;
    }
    if (last == i) continue;
    std::rotate(all.begin() + static_cast<ptrdiff_t>(i),
                all.begin() + static_cast<ptrdiff_t>(i + 1),
                all.begin() + static_cast<ptrdiff_t>(to + 1));
  }
}

}  // namespace

void move_loads(TileCode& code, const Target& target) {
  few_first(code);
  short_stores_last(code, least_row(target));
  LoadMover(code, least_row(target)).run();
}

}  // namespace dvm
