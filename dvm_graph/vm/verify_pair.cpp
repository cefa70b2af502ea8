#include "vm/verify_pair.h"

#include "vm/pair.h"
#include "vm/sync.h"
#include "vm/verify_reach.h"

namespace dvm {
namespace {

constexpr int64_t kMostPieces = 1 << 20;

}  // namespace

bool PairVerifier::check_sharing() {
  const bool regions = header_.regions[0] > 0 || header_.regions[1] > 0;
  if (regions && (header_.regions[0] == 0 || header_.regions[1] == 0 || header_.chunk_dim < 2))
    return fail_("regions of no blocks");
  if (!header_.in_pair()) {
    const bool none = header_.pieces == 0 && header_.line_blocks == 1;
    return none || fail_("half of a pair without a ring");
  }
  if (header_.line_blocks < 1) return fail_("lines of no blocks");
  for (const Handed handed : kHanded) {
    if (header_.ring(handed).exists() && !check_ring(handed)) return false;
  }
  if (header_.rings[0].exists() && header_.rings[1].exists()) return check_two_rings();
  if (!header_.beside_cube()) return header_.on_cube() || fail_("no cube unit");
  return check_pieces();
}

bool PairVerifier::check_two_rings() {
  const Ring &a = header_.rings[0], &b = header_.rings[1];
  if (header_.beside_cube()) return fail_("a lane is at one ring");
  if (!header_.on_cube()) return fail_("no cube unit");
  if (a.first_lane < b.end_lane() && b.first_lane < a.end_lane())
    return fail_("a lane is at one ring");
  const int64_t a_low = program_.pointers()[a.pointer - 1u].low;
  const int64_t b_low = program_.pointers()[b.pointer - 1u].low;
  const int64_t a_high = a_low + target_.cube_cores * a.slots * a.bytes;
  const int64_t b_high = b_low + target_.cube_cores * b.slots * b.bytes;
  return a_high <= b_low || b_high <= a_low || fail_("rings overlap");
}

bool PairVerifier::check_ring(Handed handed) {
  const Ring& ring = header_.ring(handed);
  if (ring.pointer == 0 || ring.pointer + ring.pointers - 1 > header_.pointer_registers)
    return fail_("undefined ring");
  if (ring.lanes == 0 || ring.end_lane() > lanes_of(target_)) return fail_("no such lanes");
  if (ring.slots == 0 || (handed == Handed::sums && ring.slots % ring.lanes != 0))
    return fail_("slots are not shared out evenly");
  const int64_t slots = target_.cube_cores * ring.slots;
  if (ring.bytes <= 0 || ring.bytes > kTooFar / slots) return fail_("no slots");
  if (handed == Handed::sums && header_.beside_cube() && header_.line_blocks != 1)
    return fail_("sums of several blocks");
  const int64_t first = program_.pointers()[ring.pointer - 1u].low;
  for (size_t p = ring.pointer - 1u; ring.reaches(p); ++p) {
    const PointerRegister& pointer = program_.pointers()[p];
    if (pointer.buffer != kWorkspace || pointer.low != first || pointer.base < pointer.low ||
        pointer.high - pointer.low != slots * ring.bytes)
      return fail_("the ring is not of so many slots");
    for (int d = 0; d < header_.grid_rank; ++d) {
      if (pointer.steps[d] < 0) return fail_("a ring is walked from its beginning");
    }
  }
  return true;
}

// Lines of tiles are those of the last dims of the grid, and are cut into pieces along one of
// them.
bool PairVerifier::check_pieces() {
  int64_t line = 1, pieces = header_.pieces;
  int d = header_.grid_rank;
  while (d > 0 && line < header_.line_tiles) line *= program_.grid()[--d].count;
  const bool lines = header_.line_tiles > 0 && line == header_.line_tiles;
  for (int inner = header_.grid_rank - 1; inner >= d && pieces < header_.line_tiles; --inner) {
    const int64_t count = program_.grid()[inner].count;
    if (pieces < count) break;
    if (pieces % count != 0) return fail_("no pieces of blocks");
    pieces /= count;
  }
  const int64_t least = lines ? (header_.line_tiles - 1) % header_.pieces + 1 : 0;
  if (header_.feeds() && least < header_.ring(Handed::rows).lanes)
    return fail_("a lane has no part of a slot");
  return (header_.kind == KernelKind::vector && header_.pieces <= kMostPieces && lines &&
          header_.chunk_dim == header_.grid_rank) ||
         fail_("no pieces of blocks");
}

// The one fills a slot that was emptied as many before as there are, the other empties it.
bool PairVerifier::check_between(Family family, uint64_t word) {
  if (sync_event(word) >= kRings || !header_.ring(ring_of(word)).exists())
    return fail_("a flag between cores, of no ring");
  const Handed handed = ring_of(word);
  const bool sets = family == Family::s_set_flag;
  const bool full = fills(handed, header_.beside_cube()) == sets;
  if (word != ring_word(handed, full, header_.ring(handed).slots))
    return fail_("a flag between cores that nobody takes");
  AtRing& at = at_ring_[sync_event(word)];
  ++(sets ? at.sets : at.waits);
  return true;
}

bool PairVerifier::check_at_ring(Queue queue, size_t pointer, bool writes) {
  const Handed handed = header_.rings[0].reaches(pointer) ? Handed::sums : Handed::rows;
  const bool fill = fills(handed, header_.beside_cube());
  if (queue != (fill ? filling(handed) : kEmptying) || writes != fill)
    return fail_("another queue uses the ring");
  AtRing& at = at_ring_[static_cast<int>(handed)];
  at.used = true;
  return (at.waits == 1 && at.sets == 0) || fail_("uses a slot that is not its own");
}

bool PairVerifier::check_handed_on() {
  for (const Handed handed : kHanded) {
    const AtRing& at = at_ring_[static_cast<int>(handed)];
    if (header_.ring(handed).exists() && !(at.used && at.waits == 1 && at.sets == 1))
      return fail_("a half of a pair does not hand on its slots");
  }
  return true;
}

bool goes_with(const Program& cube, const Program& half, size_t number) {
  const ProgramHeader &a = cube.header(), &b = half.header();
  const Handed handed = b.feeds() ? Handed::rows : Handed::sums;
  const Ring &there = a.ring(handed), &here = b.ring(handed);
  const auto first = [](const Program& program, const Ring& ring) {
    return program.pointers()[ring.pointer - 1u].low;
  };
  return there.exists() && a.program_of(here.first_lane) == number &&
         here.first_lane == there.first_lane && here.lanes == there.lanes &&
         here.slots == there.slots && here.bytes == there.bytes &&
         first(half, here) == first(cube, there) && a.groups() == b.groups() &&
         (!b.feeds() || a.line_blocks == b.line_blocks);
}

}  // namespace dvm
