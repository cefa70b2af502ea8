// What the instructions of a program ask of a core's units, tile by tile.
//
// Tiles are of one *class* where the same instructions run over the same extents: they ask for the
// same steps. A program has few classes (inside or at the end along each grid dim, which
// coordinates moved, and how near the ends of the core's share are), whatever its number of tiles.
//
// The queue of an instruction and what it reads and writes come from the instruction table; how
// long it takes comes from the part.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "npu/simulator/part.h"
#include "vm/program.h"
#include "vm/shares.h"
#include "vm/sync.h"

namespace dvm {

// Those of units: all but the scalar one's, in the order of Queue.
inline constexpr int kUnitQueues = kQueues - 1;
constexpr uint8_t index_of(Queue queue) {
  return static_cast<uint8_t>(static_cast<int>(queue) - 1);
}

struct UnitStep {
  enum class Kind : uint8_t { work, transfer, set, wait };
  Kind kind = Kind::work;
  uint8_t queue = 0;  // that it goes through
  uint8_t peer = 0;   // of a flag: whom it signals, or who is waited for
  uint8_t event = 0;
  bool between_cores = false;  // of a flag: the event is its ring
  Family family{};
  bool writes = false;      // a transfer to memory
  float decode = 0;         // cycles of the scalar unit
  double cycles = 0;        // of its unit; of a transfer: before the first byte
  double bytes = 0;         // that a transfer moves through the shared cache
  double limit = 0;         // of them per cycle, for this queue of this core
  double memory_bytes = 0;  // of them, to or from memory
  double flops = 0;         // of a product
};

using TileClass = uint16_t;

// Of the bytes of each pointer register, the part that comes from or goes to memory.
using MissShares = std::span<const double>;

class ProgramWork {
 public:
  // The program's words and the part have to outlive this. `misses` by pointer register.
  ProgramWork(ProgramView program, const NpuPart& part, MissShares misses);

  // The classes of the tiles that a core has of these groups, in this order.
  void classes(std::span<const GroupRange> groups, int64_t lane, std::vector<TileClass>& out);
  std::span<const UnitStep> steps(TileClass tile_class) const { return steps_[tile_class]; }

  ProgramView program() const { return program_; }
  bool on_cube() const { return program_.header().on_cube(); }

 private:
  // What decides the instructions of a tile and over what they run.
  struct Situation {
    uint32_t tails = 0;  // grid dims at their end, which is shorter
    uint8_t changed = 0;
    bool first_chunk = true, last_chunk = true;
    int before = 0, behind = 0;  // tiles of the core's share, as far as flags look
    // Slots of the rings, as far as flags look, and whether the tile is the first or the last at
    // it.
    struct AtRing {
      int before = 0, behind = 0;
      bool begins = false, ends = false;

      auto operator<=>(const AtRing&) const = default;
    };
    std::array<AtRing, kRings> rings;

    auto operator<=>(const Situation&) const = default;
  };
  struct Extents {
    int64_t loops[3];
  };

  TileClass class_of(const Situation& situation);
  void decode(const Situation& situation, std::vector<UnitStep>& out);
  static bool runs(const Head& head, const uint64_t* words, const Situation& situation);
  UnitStep step_of(const Head& head, const uint64_t* words, const int64_t* extents) const;
  void add_transfer(const Head& head, const Operand& operand, DType dtype, Extents over,
                    bool writes, UnitStep& step) const;
  double transfer_limit(bool writes) const;
  double window_cycles(Form form, const uint64_t* words, DType dtype, const Extents& over) const;
  double vector_cycles(const Head& head, const uint64_t* words, Extents over) const;
  double cube_cycles(DType dtype, Extents over) const;

  const ProgramView program_;
  const NpuPart& part_;
  const std::vector<double> misses_;
  std::map<Situation, TileClass> known_;
  std::vector<std::vector<UnitStep>> steps_;  // by class
};

}  // namespace dvm
