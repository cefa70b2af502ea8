#include "vm/sync.h"

#include <algorithm>

namespace dvm {
namespace {

class Synchroniser {
 public:
  Synchroniser(TileCode& code, const Target& target, SyncScratch& scratch)
      : code_(code), target_(target), scratch_(scratch) {}

  void run() {
    scratch_.insertions.clear();
    for (int from = 0; from < kPipes; ++from) {
      for (int to = 0; to < kPipes; ++to) {
        if (from == to) continue;
        order_within_tile(static_cast<Pipe>(from), static_cast<Pipe>(to));
        order_across_tiles(static_cast<Pipe>(from), static_cast<Pipe>(to));
      }
    }
    merge();
  }

 private:
  const TileInstruction& at(int32_t i) const { return code_.instructions[i]; }
  Pipe pipe(int32_t i) const { return pipe_of(at(i).family); }

  bool overlap(const TileOperand& a, const TileOperand& b) const {
    if (a.space != Space::local || b.space != Space::local) return false;
    const TileBuffer& x = code_.buffers[a.index];
    const TileBuffer& y = code_.buffers[b.index];
    return x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
  }

  bool conflict(int32_t i, int32_t j) const {
    for (int a = 0; a < at(i).operand_count; ++a) {
      for (int b = 0; b < at(j).operand_count; ++b) {
        const bool writes = a == 0 || b == 0;
        if (writes && overlap(at(i).operands[a], at(j).operands[b])) return true;
      }
    }
    return false;
  }

  void insert(int32_t position, int order, Family family, Pipe from, Pipe to, int event,
              bool first_tile_only = false) {
    scratch_.insertions.push_back(
        {position, order, family, sync_word(from, to, event), first_tile_only});
  }

  void order_within_tile(Pipe from, Pipe to) {
    const auto count = static_cast<int32_t>(code_.instructions.size());
    int32_t ordered = -1;  // instructions of `from` up to here are known to be done
    int event = 0;
    for (int32_t j = 0; j < count; ++j) {
      if (pipe(j) != to) continue;
      for (int32_t i = j - 1; i > ordered; --i) {
        if (pipe(i) != from || !conflict(i, j)) continue;
        insert(i + 1, 0, Family::s_set_flag, from, to, event);
        insert(j, 1, Family::s_wait_flag, from, to, event);
        event = (event + 1) % std::max(1, static_cast<int>(target_.event_flags) - 1);
        ordered = i;
        break;
      }
    }
  }

  void order_across_tiles(Pipe from, Pipe to) {
    if (code_.grid.empty()) return;
    const auto count = static_cast<int32_t>(code_.instructions.size());
    int32_t last = -1, first = count;
    for (int32_t i = 0; i < count; ++i) {
      if (pipe(i) != from) continue;
      for (int32_t j = 0; j < count; ++j) {
        if (pipe(j) != to || !conflict(i, j)) continue;
        last = std::max(last, i);
        first = std::min(first, j);
      }
    }
    if (last < 0) return;
    const int event = static_cast<int>(target_.event_flags) - 1;
    insert(0, -1, Family::s_set_flag, from, to, event, true);
    insert(first, 1, Family::s_wait_flag, from, to, event);
    insert(last + 1, 0, Family::s_set_flag, from, to, event);
  }

  void merge() {
    std::stable_sort(
        scratch_.insertions.begin(), scratch_.insertions.end(), [](const auto& a, const auto& b) {
          return a.position != b.position ? a.position < b.position : a.order < b.order;
        });
    scratch_.merged.clear();
    size_t next = 0;
    const auto count = static_cast<int32_t>(code_.instructions.size());
    for (int32_t i = 0; i <= count; ++i) {
      for (; next < scratch_.insertions.size() && scratch_.insertions[next].position == i; ++next) {
        const SyncScratch::Insertion& insertion = scratch_.insertions[next];
        TileInstruction& sync = scratch_.merged.emplace_back();
        sync.family = insertion.family;
        sync.extra[0] = insertion.word;
        if (insertion.first_tile_only) sync.changed_mask = kFirstTileOnly;
      }
      if (i < count) scratch_.merged.push_back(at(i));
    }
    std::swap(code_.instructions, scratch_.merged);
  }

  TileCode& code_;
  const Target& target_;
  SyncScratch& scratch_;
};

}  // namespace

Pipe pipe_of(Family family) {
  const FamilyInfo& info = info_of(family);
  switch (info.unit) {
    case Unit::vector: return Pipe::vector;
    case Unit::cube: return Pipe::cube;
    case Unit::dma: return info.form == Form::store ? Pipe::dma_out : Pipe::dma_in;
    default: return Pipe::scalar;
  }
}

const char* name_of(Pipe pipe) {
  constexpr const char* names[] = {"dma_in", "vector", "cube", "dma_out", "scalar"};
  return names[static_cast<int>(pipe)];
}

void separate_loads(TileCode& code) {
  for (const TileInstruction& instruction : code.instructions) {
    if (pipe_of(instruction.family) != Pipe::dma_in) continue;
    code.buffers[instruction.operands[0].index].kept = true;
  }
}

void synchronise(TileCode& code, const Target& target, SyncScratch& scratch) {
  Synchroniser(code, target, scratch).run();
}

}  // namespace dvm
