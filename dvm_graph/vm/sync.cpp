#include "vm/sync.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "vm/allocate.h"

namespace dvm {
namespace {

class Synchroniser {
 public:
  Synchroniser(TileCode& code, const Target& target, SyncScratch& scratch)
      : code_(code), target_(target), scratch_(scratch) {}

  void run() {
    scratch_.insertions.clear();
    if (code_.instructions.size() > kMostOrdered) {
      code_.overflow = true;
      return;
    }
    note_touches();
    find_pairs();
    for (; directions_ != 0; directions_ &= directions_ - 1)
      insert_pairs(std::countr_zero(directions_));
    merge();
    code_.overflow |= code_.instructions.size() > kMostOrdered;
  }

 private:
  const TileInstruction& at(int32_t i) const { return code_.instructions[static_cast<size_t>(i)]; }

  void note_touches() {
    QueueSteps& steps = scratch_.steps;
    steps.clear();
    for (const TileInstruction& instruction : code_.instructions) {
      const FamilyInfo& info = info_of(instruction.family);
      const FormInfo& form = form_info(info.form);
      steps.add(info.queue);
      for (int k = 0; k < instruction.operand_count; ++k) {
        const TileOperand& operand = instruction.operands[k];
        if (operand.space != Space::local) continue;
        const TileBuffer& buffer = code_.buffers[operand.index];
        const int64_t second = buffer.two_places ? place_bytes(buffer) : 0;
        steps.touch(form.operands[k].role == Role::reads, buffer.offset,
                    buffer.offset + (second > 0 ? second : buffer.bytes), second);
      }
    }
    steps.end();
    count_ = steps.count();
  }

  int tiles() const {
    int64_t tiles = 1;
    for (const GridDim& dim : code_.grid) {
      tiles = std::min<int64_t>(tiles * std::min<int64_t>(dim.count, kOrderedTiles), kOrderedTiles);
    }
    return static_cast<int>(tiles);
  }

  // Issues the instructions for a few tiles, and adds a pair where a queue does not know what it
  // has to. What came last is asked for first: it may know of what came before.
  void find_pairs() {
    const QueueSteps& all = scratch_.steps;
    scratch_.ordered.clear();
    const int tiles = this->tiles();
    scratch_.waited.assign(static_cast<size_t>(count_), -1);
    scratch_.clocks.resize(static_cast<size_t>(tiles * count_));
    QueueKnowledge& known = scratch_.known;
    known.begin(all);
    for (int tile = 0; tile < tiles; ++tile) {
      for (int32_t i = 0; i < count_; ++i) {
        const QueueSteps::Step& step = all.steps[static_cast<size_t>(i)];
        for (int32_t p = scratch_.waited[static_cast<size_t>(i)]; p >= 0;) {
          const SyncScratch::Ordered& ordered = scratch_.ordered[static_cast<size_t>(p)];
          const auto& [last, first, distance] = ordered.pair;
          if (distance <= tile)
            known.learn(step.queue, clock_of(known.time_of(tile - distance, last)));
          p = ordered.next;
        }
        if (step.first < step.end) order(known, tile, i);
        clock_of(known.time_of(tile, i)) = known.of(step.queue);
      }
    }
  }

  QueueClock& clock_of(int32_t time) { return scratch_.clocks[static_cast<size_t>(time - 1)]; }

  void order(QueueKnowledge& known, int tile, int32_t i) {
    const int to = scratch_.steps.steps[static_cast<size_t>(i)].queue;
    struct Missing {
      int32_t time;  // when it was issued
      int from;
    };
    Missing missing[kQueues];
    int left = 0;
    known.issue(tile, i, [&](int from, int time) { missing[left++] = {time, from}; });
    while (left > 0) {
      const auto last_issued =
          std::ranges::max_element(missing, missing + left, {}, &Missing::time);
      const auto [time, from] = std::exchange(*last_issued, missing[--left]);
      if (known.of(to)[from] >= time) continue;
      const int32_t last = (time - 1) % count_;
      const int distance = tile - (time - 1) / count_;
      add_pair({last, i, distance}, from * kQueues + to);
      known.learn(to, clock_of(time));
    }
  }

  void add_pair(const SyncScratch::Pair& pair, int direction) {
    const auto number = static_cast<int32_t>(scratch_.ordered.size());
    int32_t& waited = scratch_.waited[static_cast<size_t>(pair.first)];
    scratch_.ordered.push_back({pair, std::exchange(waited, number), -1});
    SyncScratch::Direction& along = scratch_.directions[direction];
    const uint64_t bit = uint64_t{1} << direction;
    if ((directions_ & bit) == 0) {
      along.first = number;
    } else {
      scratch_.ordered[static_cast<size_t>(along.last)].next_along = number;
    }
    along.last = number;
    directions_ |= bit;
  }

  void insert_pairs(int direction) {
    const int from = direction / kQueues, to = direction % kQueues;
    scratch_.within.clear();
    scratch_.across.clear();
    for (int32_t p = scratch_.directions[direction].first; p >= 0;) {
      const SyncScratch::Ordered& ordered = scratch_.ordered[static_cast<size_t>(p)];
      p = ordered.next_along;
      (ordered.pair.distance == 0 ? scratch_.within : scratch_.across).push_back(ordered.pair);
    }
    sort_within();
    const auto events = static_cast<int>(target_.event_flags);
    fold_across(std::max(1, events - 1));
    int event = events;
    const auto word = [&](int number, int distance) {
      return sync_word(static_cast<Queue>(from), static_cast<Queue>(to), number, distance);
    };
    for (const SyncScratch::Pair& pair : scratch_.across)
      insert_pair(pair, word(--event, pair.distance));
    for (size_t i = 0; i < scratch_.within.size(); ++i) {
      insert_pair(scratch_.within[i], word(static_cast<int>(i) % std::max(1, event), 0));
    }
  }

  void insert_pair(const SyncScratch::Pair& pair, uint64_t word) {
    insert(pair.last + 1, Family::s_set_flag, word);
    insert(pair.first, Family::s_wait_flag, word);
  }

  void insert(int32_t position, Family family, uint64_t word) {
    SyncScratch::Insertion& insertion = scratch_.insertions.emplace_back();
    insertion.position = position;
    insertion.family = family;
    insertion.word = word;
  }

  // Pairs that share an event take its signals in turn: they are in one order at both ends. A pair
  // that was found for tiles of odd number alone may order what was found before, too.
  void sort_within() {
    std::vector<SyncScratch::Pair>& pairs = scratch_.within;
    const auto before = [](const SyncScratch::Pair& a, const SyncScratch::Pair& b) {
      return a.first != b.first ? a.first < b.first : a.last > b.last;
    };
    if (!std::ranges::is_sorted(pairs, before)) std::ranges::sort(pairs, before);
    int32_t last = -1;
    std::erase_if(pairs, [&](const SyncScratch::Pair& pair) {
      return pair.last <= std::exchange(last, std::max(last, pair.last));
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

  // By position, signals before what is waited for there, each in the order in which they were
  // found.
  void sort_insertions() {
    const auto key = [](const SyncScratch::Insertion& insertion) {
      return static_cast<size_t>(2 * insertion.position +
                                 (insertion.family == Family::s_wait_flag ? 1 : 0));
    };
    std::vector<int32_t>& ends = scratch_.ends;  // of those before each key, then of each
    ends.assign(static_cast<size_t>(2 * count_) + 3, 0);
    for (const SyncScratch::Insertion& insertion : scratch_.insertions) ++ends[key(insertion) + 1];
    for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
    scratch_.sorted.resize(scratch_.insertions.size());
    for (const SyncScratch::Insertion& insertion : scratch_.insertions)
      scratch_.sorted[static_cast<size_t>(ends[key(insertion)]++)] = insertion;
  }

  void merge() {
    sort_insertions();
    scratch_.merged.clear();
    auto next = scratch_.sorted.begin();
    for (int32_t i = 0; i <= count_; ++i) {
      for (; next != scratch_.sorted.end() && next->position == i; ++next) {
        TileInstruction& sync = scratch_.merged.emplace_back(kNoInstruction);
        sync.family = next->family;
        sync.extra[0] = next->word;
      }
      if (i < count_) scratch_.merged.push_back(at(i));
    }
    std::swap(code_.instructions, scratch_.merged);
  }

  TileCode& code_;
  const Target& target_;
  SyncScratch& scratch_;
  int32_t count_ = 0;        // of the instructions that were given
  uint64_t directions_ = 0;  // of pairs: bits
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

const char* name_of(Handed handed) { return handed == Handed::sums ? "sums" : "rows"; }

void separate_loads(TileCode& code) {
  for (const TileInstruction& instruction : code.instructions) {
    if (info_of(instruction.family).queue != Queue::mte2) continue;
    code.buffers[instruction.operands[0].index].kept = true;
  }
}

void synchronise(TileCode& code, const Target& target, SyncScratch& scratch) {
  Synchroniser(code, target, scratch).run();
}

namespace {

// The half waits before its first instruction at the ring, and signals behind its last.
void synchronise_ring(TileCode& code, const ProgramHeader& header, Handed handed,
                      SyncScratch& scratch) {
  const Ring& ring = header.ring(handed);
  const auto at_ring = [&](const TileInstruction& instruction) {
    return std::any_of(instruction.operands, instruction.operands + instruction.operand_count,
                       [&](const TileOperand& operand) {
                         return operand.space == Space::pointer &&
                                ring.reaches(static_cast<size_t>(operand.index));
                       });
  };
  const std::vector<TileInstruction>& all = code.instructions;
  const auto first = std::find_if(all.begin(), all.end(), at_ring);
  const auto last = std::find_if(all.rbegin(), all.rend(), at_ring).base();
  const bool fill = fills(handed, header.beside_cube());
  const auto add = [&](Family family, bool full) {
    TileInstruction& sync = scratch.merged.emplace_back(kNoInstruction);
    sync.family = family;
    sync.extra[0] = ring_word(handed, full, ring.slots);
  };
  scratch.merged.assign(all.begin(), first);
  add(Family::s_wait_flag, !fill);
  scratch.merged.insert(scratch.merged.end(), first, last);
  add(Family::s_set_flag, fill);
  scratch.merged.insert(scratch.merged.end(), last, all.end());
  std::swap(code.instructions, scratch.merged);
}

}  // namespace

void synchronise_rings(TileCode& code, const ProgramHeader& header, SyncScratch& scratch) {
  for (const Handed handed : kHanded) {
    if (header.ring(handed).exists()) synchronise_ring(code, header, handed, scratch);
  }
}

}  // namespace dvm
