#include "vm/interpret.h"

#include <cstring>

#include "vm/instruction_times.h"
#include "vm/ticks.h"

namespace dvm {
namespace {

// The scalar unit's state: where in the grid the core is, and the registers that follow from it.
class TileCursor {
 public:
  TileCursor(const Program& program, Core& core, std::byte* const* buffers)
      : grid_(program.grid()),
        extents_(program.extents()),
        pointers_(program.pointers()),
        core_(core),
        buffers_(buffers),
        chunk_dim_(program.header().chunk_dim) {}

  void start(int64_t tile) {
    for (size_t d = grid_.size(); d-- > 0;) {
      coordinates_[d] = tile % grid_[d].count;
      tile /= grid_[d].count;
      current_[d] = grid_[d].extent_at(coordinates_[d]);
    }
    core_.extents[0] = 1;
    refresh_extents();
    refresh_pointers();
    refresh_chunk();
  }

  // Tells the core which memory this tile reads, and the one `steps` further on; 0: there is none.
  void look_ahead(const ProgramHeader& header, int64_t steps) {
    Ahead& ahead = core_.ahead;
    const size_t d = grid_.size() - 1;
    const int64_t next = coordinates_[d] + steps;
    const bool known = steps != 0 && next >= 0 && next < grid_[d].count;
    ahead = {};
    for (int stream = 0; stream < kAheadStreams; stream++) {
      if (header.ahead[stream] == 0) break;
      const size_t p = header.ahead[stream] - 1u;
      const int64_t step = pointers_[p].steps[d];
      const std::byte* const tile = core_.pointers[p];
      const int64_t bytes = step * current_[d] / grid_[d].tile;
      // Where nobody knows the next tile, it is where this one ends: less is lost than by a test.
      ahead.streams[stream] = {tile, bytes, 0, moved(tile, known ? step * steps : bytes)};
    }
    ahead.lines = header.ahead_lines;
  }

  // Moves to the next tile; returns the mask of grid dims that changed.
  uint8_t advance() {
    size_t d = grid_.size() - 1;
    uint8_t changed = static_cast<uint8_t>(1u << d);
    bool resized = false;
    if (++coordinates_[d] < grid_[d].count) {
      for (size_t p = 0; p < pointers_.size(); ++p) {
        core_.pointers[p] = moved(core_.pointers[p], pointers_[p].steps[d]);
      }
      resized = refresh_current(d);
    } else {
      do {
        coordinates_[d] = 0;
        resized |= refresh_current(d);
        --d;
        changed |= static_cast<uint8_t>(1u << d);
      } while (++coordinates_[d] == grid_[d].count);
      resized |= refresh_current(d);
      refresh_pointers();
    }
    if (resized) refresh_extents();
    if (chunk_dim_ < grid_.size()) refresh_chunk();
    return changed;
  }

 private:
  // In integers: a pointer register may be a plain integer, an offset from null.
  template <class Byte>
  static Byte* moved(Byte* from, int64_t bytes) {
    return reinterpret_cast<Byte*>(reinterpret_cast<uintptr_t>(from) +
                                   static_cast<uintptr_t>(bytes));
  }

  bool refresh_current(size_t d) {
    const int64_t extent = grid_[d].extent_at(coordinates_[d]);
    const bool changed = extent != current_[d];
    current_[d] = extent;
    return changed;
  }

  void refresh_extents() {
    for (size_t r = 0; r < extents_.size(); ++r) {
      const ExtentRegister& e = extents_[r];
      core_.extents[r + 1] =
          e.dim < 0 ? e.multiplier : static_cast<int32_t>(e.value(current_[e.dim]));
    }
  }

  void refresh_pointers() {
    for (size_t p = 0; p < pointers_.size(); ++p) {
      const PointerRegister& pointer = pointers_[p];
      int64_t offset = pointer.base;
      for (size_t d = 0; d < grid_.size(); ++d) offset += coordinates_[d] * pointer.steps[d];
      core_.pointers[p] = moved(buffers_[pointer.buffer], offset);
    }
  }

  void refresh_chunk() {
    bool first = true, last = true;
    for (size_t d = chunk_dim_; d < grid_.size(); ++d) {
      first &= coordinates_[d] == 0;
      last &= coordinates_[d] + 1 == grid_[d].count;
    }
    core_.first_chunk = first;
    core_.last_chunk = last;
  }

  std::span<const GridDim> grid_;
  std::span<const ExtentRegister> extents_;
  std::span<const PointerRegister> pointers_;
  Core& core_;
  std::byte* const* buffers_;
  const size_t chunk_dim_;
  int64_t coordinates_[kMaxGridRank];
  int64_t current_[kMaxGridRank];
};

// Whether the predicates of a head let the instruction run.
inline bool enabled(const Head& head, uint8_t changed, const Core& core) {
  if (head.changed_mask != 0 && (head.changed_mask & changed) == 0) return false;
  if ((head.flags & kFirstChunk) != 0 && !core.first_chunk) return false;
  return (head.flags & kLastChunk) == 0 || core.last_chunk;
}

// Runs the body once. False: an instruction trapped. `since` is when what is timed next began.
template <bool Timed>
bool run_body(std::span<const uint64_t> body, const InstructionTable& table, Core& core,
              uint8_t changed, int64_t tile, uint64_t& since) {
  const uint64_t* const end = body.data() + body.size();
  for (const uint64_t* words = body.data(); words < end;) {
    Head head;
    std::memcpy(&head, words, sizeof head);
    if ((head.changed_mask | (head.flags & kChunks)) == 0 || enabled(head, changed, core)) {
      if ((head.flags & (kJoined | kRows)) != 0 && table.joined != nullptr) {
        const uint64_t* const after = table.joined(core, words);
        if constexpr (Timed) {
          const uint64_t now = ticks();
          core.times->add_group(words, after, now - since);
          since = now;
        }
        words = after;
        continue;
      }
      if (const Handler handler = table.handlers[head.opcode]) {
        handler(core, words);
        if constexpr (Timed) {
          const uint64_t now = ticks();
          core.times->add(static_cast<Family>(head.opcode / 16), now - since);
          since = now;
        }
        if (core.trap.kind != TrapKind::none) [[unlikely]] {
          core.trap.pc = static_cast<uint32_t>(words - body.data());
          core.trap.tile = tile;
          return false;
        }
      }
    }
    words += head.words;
  }
  return true;
}

// Where tiles lie in a core's share, and of a pair the slots that they are at.
struct InShare {
  int64_t number = 0, tiles = 0;
  std::byte* slots[kRings] = {};
  int64_t first = 0;  // the tile at which they begin
};

int64_t offset_at(const Program& program, const PointerRegister& pointer, int64_t tile) {
  int64_t offset = 0;
  for (size_t d = program.grid().size(); d-- > 0;) {
    const int64_t count = program.grid()[d].count;
    offset += tile % count * pointer.steps[d];
    tile /= count;
  }
  return offset;
}

void enter_slots(const Program& program, Core& core, const InShare& in_share, int64_t tile) {
  const ProgramHeader& header = program.header();
  for (const Handed handed : kHanded) {
    const Ring& ring = header.ring(handed);
    for (size_t p = ring.pointer - 1u; ring.reaches(p); ++p) {
      const PointerRegister& pointer = program.pointers()[p];
      core.pointers[p] = in_share.slots[static_cast<int>(handed)] + (pointer.base - pointer.low) +
                         offset_at(program, pointer, tile) -
                         offset_at(program, pointer, in_share.first);
    }
  }
}

template <bool Timed>
void run(const Program& program, const InstructionTable& table, Core& core,
         std::byte* const* buffers, int64_t begin, int64_t end, int64_t next, InShare in_share) {
  uint64_t since = Timed ? ticks() : 0;
  const auto moved = [&] {
    if constexpr (Timed) {
      const uint64_t now = ticks();
      core.times->scalar_ticks += now - since;
      since = now;
    }
  };
  TileCursor cursor(program, core, buffers);
  cursor.start(begin);
  moved();
  uint8_t changed = kEverythingChanged;
  const std::span<const uint64_t> body = program.body();
  const bool fetches = program.header().ahead[0] != 0;
  const bool in_pair = program.header().in_pair();
  core.ahead = {};
  core.laters = 0;
  core.share_tiles = in_share.tiles;
  for (int64_t tile = begin;;) {
    core.share_tile = in_share.number + tile - begin;
    if (in_pair) enter_slots(program, core, in_share, tile);
    if (fetches) {
      const int64_t to_next = next < 0 ? 0 : next - tile;
      cursor.look_ahead(program.header(), tile + 1 < end ? 1 : to_next);
    }
    if (!run_body<Timed>(body, table, core, changed, tile, since)) return;
    if (++tile == end) return;
    changed = cursor.advance();
    moved();
  }
}

}  // namespace

void run_tiles(const Program& program, const InstructionTable& table, Core& core,
               std::byte* const* buffers, int64_t begin, int64_t end, int64_t next) {
  if (begin >= end) return;
  const auto runner = core.times == nullptr ? &run<false> : &run<true>;
  runner(program, table, core, buffers, begin, end, next, {0, end - begin, {}, begin});
}

void run_of_share(const Program& program, const InstructionTable& table, Core& core,
                  std::byte* const* buffers, const TileRun& tiles, int64_t share_tiles,
                  int64_t ring_core) {
  InShare in_share{tiles.number, share_tiles, {}, tiles.first};
  for (const Handed handed : kHanded) {
    const Ring& ring = program.header().ring(handed);
    if (!ring.exists()) continue;
    const int64_t number = handed == Handed::rows ? tiles.line : tiles.group;
    const PointerRegister& pointer = program.pointers()[ring.pointer - 1u];
    in_share.slots[static_cast<int>(handed)] =
        buffers[pointer.buffer] + pointer.low +
        (ring_core * ring.slots + number % ring.slots) * ring.bytes;
  }
  const auto runner = core.times == nullptr ? &run<false> : &run<true>;
  runner(program, table, core, buffers, tiles.begin, tiles.end, -1, in_share);
}

}  // namespace dvm
