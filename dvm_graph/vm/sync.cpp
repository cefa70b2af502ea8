#include "vm/sync.h"

#include <algorithm>
#include <cstdint>

#include "vm/allocate.h"

namespace dvm {
namespace {

class Synchroniser {
 public:
  Synchroniser(TileCode& code, const Target& target, SyncScratch& scratch)
      : code_(code), target_(target), scratch_(scratch) {}

  void run() {
    scratch_.insertions.clear();
    note_touches();
    for (int from = 0; from < kQueues; ++from) {
      for (int to = 0; to < kQueues; ++to) {
        const SyncScratch::Reach &first = scratch_.reaches[from], &second = scratch_.reaches[to];
        if (from == to || !meet(first, second)) continue;
        order(static_cast<Queue>(from), static_cast<Queue>(to));
      }
    }
    merge();
  }

 private:
  const TileInstruction& at(int32_t i) const { return code_.instructions[i]; }
  int32_t count() const { return static_cast<int32_t>(code_.instructions.size()); }
  const std::vector<int32_t>& steps_of(Queue queue) const {
    return scratch_.reaches[static_cast<int>(queue)].steps;
  }

  void note_touches() {
    scratch_.touches.clear();
    scratch_.steps.clear();
    for (SyncScratch::Reach& reach : scratch_.reaches) {
      reach.steps.clear();
      reach.low = INT64_MAX;
      reach.high = INT64_MIN;
    }
    for (int32_t i = 0; i < count(); ++i) {
      const FamilyInfo& info = info_of(at(i).family);
      const FormInfo& form = form_info(info.form);
      SyncScratch::Reach& reach = scratch_.reaches[static_cast<int>(info.queue)];
      const auto first = static_cast<int32_t>(scratch_.touches.size());
      for (int k = 0; k < at(i).operand_count; ++k) {
        const TileOperand& operand = at(i).operands[k];
        if (operand.space != Space::local) continue;
        const TileBuffer& buffer = code_.buffers[operand.index];
        const int64_t bytes = buffer.two_places ? 2 * place_bytes(buffer) : buffer.bytes;
        scratch_.touches.push_back({buffer.offset, buffer.offset + bytes, operand.index,
                                    buffer.two_places, form.operands[k].role == Role::reads});
        reach.low = std::min(reach.low, buffer.offset);
        reach.high = std::max(reach.high, buffer.offset + bytes);
      }
      const auto end = static_cast<int32_t>(scratch_.touches.size());
      scratch_.steps.push_back({info.queue, first, end});
      if (end > first) reach.steps.push_back(i);
    }
  }

  template <class Range>
  static bool meet(const Range& a, const Range& b) {
    return a.low < b.high && b.low < a.high;
  }

  // In tiles that are `distance` apart. What lies in two places meets in every other tile.
  bool conflict(int32_t i, int32_t j, int distance) const {
    const SyncScratch::Step &first = scratch_.steps[i], &second = scratch_.steps[j];
    for (int32_t a = first.first; a < first.end; ++a) {
      const SyncScratch::Touch& x = scratch_.touches[a];
      for (int32_t b = second.first; b < second.end; ++b) {
        const SyncScratch::Touch& y = scratch_.touches[b];
        if ((x.reads && y.reads) || !meet(x, y)) continue;
        if (x.buffer != y.buffer || !x.two_places || distance % 2 == 0) return true;
      }
    }
    return false;
  }

  void order(Queue from, Queue to) {
    find_within(from, to);
    find_across(from, to);
    const auto events = static_cast<int>(target_.event_flags);
    fold_across(std::max(1, events - 1));
    int event = events;
    for (const SyncScratch::Pair& pair : scratch_.across) {
      insert_pair(pair, sync_word(from, to, --event, pair.distance));
    }
    for (size_t i = 0; i < scratch_.within.size(); ++i) {
      const auto turn = static_cast<int>(i) % std::max(1, event);
      insert_pair(scratch_.within[i], sync_word(from, to, turn, 0));
    }
  }

  void insert_pair(const SyncScratch::Pair& pair, uint64_t word) {
    scratch_.insertions.push_back({pair.last + 1, 0, Family::s_set_flag, word});
    scratch_.insertions.push_back({pair.first, 1, Family::s_wait_flag, word});
  }

  // The pairs within a tile of which none follows from the one before.
  void find_within(Queue from, Queue to) {
    scratch_.within.clear();
    const std::vector<int32_t>& others = steps_of(from);
    int32_t ordered = -1;  // instructions of `from` up to here are known to be done
    size_t before = 0;     // of the others, those before j
    for (const int32_t j : steps_of(to)) {
      while (before < others.size() && others[before] < j) ++before;
      for (size_t o = before; o-- > 0 && others[o] > ordered;) {
        if (!conflict(others[o], j, 0)) continue;
        ordered = others[o];
        scratch_.within.push_back({ordered, j, 0});
        break;
      }
    }
  }

  // The pairs across tiles of which none follows from another one. What has ended within its tile
  // has ended before any later one begins.
  void find_across(Queue from, Queue to) {
    std::vector<SyncScratch::Pair>& pairs = scratch_.across;
    pairs.clear();
    if (code_.grid.empty()) return;
    const std::vector<int32_t>& others = steps_of(from);
    const int32_t ended = scratch_.within.empty() ? -1 : scratch_.within.back().last;
    for (int distance = 1; distance <= kMostDistance; ++distance) {
      int32_t ordered = ended;
      for (const int32_t j : steps_of(to)) {
        for (size_t o = others.size(); o-- > 0 && others[o] > ordered;) {
          if (!conflict(others[o], j, distance)) continue;
          ordered = others[o];
          if (!follows({ordered, j, distance})) pairs.push_back({ordered, j, distance});
          break;
        }
      }
    }
  }

  // What ends by the next tile has ended by the one after it, too.
  bool follows(const SyncScratch::Pair& pair) const {
    return std::ranges::any_of(scratch_.across, [&](const SyncScratch::Pair& known) {
      const bool sooner = known.distance < pair.distance;
      return known.distance <= pair.distance && known.last >= pair.last &&
             (sooner || known.first <= pair.first);
    });
  }

  // Two pairs at a time become one that orders as much.
  void fold_across(int most) {
    std::vector<SyncScratch::Pair>& pairs = scratch_.across;
    while (static_cast<int>(pairs.size()) > most) {
      SyncScratch::Pair &a = pairs[pairs.size() - 2], &b = pairs.back();
      a = {std::max(a.last, b.last), std::min(a.first, b.first), std::min(a.distance, b.distance)};
      pairs.pop_back();
    }
  }

  void merge() {
    std::stable_sort(
        scratch_.insertions.begin(), scratch_.insertions.end(), [](const auto& a, const auto& b) {
          return a.position != b.position ? a.position < b.position : a.order < b.order;
        });
    scratch_.merged.clear();
    size_t next = 0;
    for (int32_t i = 0; i <= count(); ++i) {
      for (; next < scratch_.insertions.size() && scratch_.insertions[next].position == i; ++next) {
        const SyncScratch::Insertion& insertion = scratch_.insertions[next];
        TileInstruction& sync = scratch_.merged.emplace_back();
        sync.family = insertion.family;
        sync.extra[0] = insertion.word;
      }
      if (i < count()) scratch_.merged.push_back(at(i));
    }
    std::swap(code_.instructions, scratch_.merged);
  }

  TileCode& code_;
  const Target& target_;
  SyncScratch& scratch_;
};

}  // namespace

Queue queue_of(const uint64_t* words) {
  const Family family = family_of(head_of(words));
  const uint64_t word = *operand_words(words, 0);
  switch (family) {
    case Family::s_set_flag: return sync_from(word);
    case Family::s_wait_flag: return sync_to(word);
    default: return info_of(family).queue;
  }
}

const char* name_of(Queue queue) {
  constexpr const char* names[] = {"scalar", "vector", "cube", "mte1", "mte2", "mte3", "fixp"};
  return names[static_cast<int>(queue)];
}

void separate_loads(TileCode& code) {
  for (const TileInstruction& instruction : code.instructions) {
    if (info_of(instruction.family).queue != Queue::mte2) continue;
    code.buffers[instruction.operands[0].index].kept = true;
  }
}

void synchronise(TileCode& code, const Target& target, SyncScratch& scratch) {
  Synchroniser(code, target, scratch).run();
}

// A slot is filled by fixp and emptied by mte2: the one waits for the other before its first
// instruction at it, and signals behind its last.
void synchronise_ring(TileCode& code, const ProgramHeader& header, SyncScratch& scratch) {
  const auto at_ring = [&](const TileInstruction& instruction) {
    return std::any_of(instruction.operands, instruction.operands + instruction.operand_count,
                       [&](const TileOperand& operand) {
                         return operand.space == Space::pointer &&
                                header.reaches_ring(static_cast<size_t>(operand.index));
                       });
  };
  const std::vector<TileInstruction>& all = code.instructions;
  const auto first = std::find_if(all.begin(), all.end(), at_ring);
  const auto last = std::find_if(all.rbegin(), all.rend(), at_ring).base();
  const bool fills = info_of(first->family).queue == Queue::fixp;
  const uint64_t full = between_cores(sync_word(Queue::fixp, Queue::mte2, 0, 0));
  const uint64_t empty = between_cores(sync_word(Queue::mte2, Queue::fixp, 0, header.ring_slots));
  const auto add = [&](Family family, uint64_t word, uint8_t when) {
    TileInstruction& sync = scratch.merged.emplace_back();
    sync.family = family;
    sync.extra[0] = word;
    sync.flags = when;
  };
  scratch.merged.assign(all.begin(), first);
  add(Family::s_wait_flag, fills ? empty : full, fills ? kLastChunk : kFirstChunk);
  scratch.merged.insert(scratch.merged.end(), first, last);
  add(Family::s_set_flag, fills ? full : empty, kLastChunk);
  scratch.merged.insert(scratch.merged.end(), last, all.end());
  std::swap(code.instructions, scratch.merged);
}

}  // namespace dvm
