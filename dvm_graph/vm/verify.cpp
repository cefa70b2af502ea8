#include "vm/verify.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/transforms.h"
#include "vm/core.h"
#include "vm/disassemble.h"
#include "vm/pair.h"
#include "vm/panels.h"
#include "vm/sync.h"
#include "vm/verify_flags.h"
#include "vm/verify_groups.h"

namespace dvm {
namespace {

constexpr uint8_t kKnownFlags =
    kAccumulate | kChunks | kAccumulateAlways | kStream | kJoined | kTransient | kRows;
constexpr int64_t kMostPieces = 1 << 20;
constexpr int64_t kTooFar = int64_t{1} << 55;  // no sum of products of checked numbers overflows

bool beyond(int64_t number, int64_t limit) { return number > limit || number < -limit; }

// The least and greatest offset that something adds to an address, in elements or bytes.
struct Reach {
  int64_t low = 0, high = 0;

  void add(int64_t offset) { (offset < 0 ? low : high) += offset; }
};

class Verifier {
 public:
  Verifier(const Program& program, const ValueInfo* values, size_t value_count,
           int64_t workspace_bytes, const Target& target)
      : program_(program),
        header_(program.header()),
        values_(values),
        value_count_(static_cast<int64_t>(value_count)),
        workspace_bytes_(workspace_bytes),
        target_(target),
        follows_flags_(!target.in_order()) {}

  std::string run() {
    if (!check_header() || !check_grid() || !check_extents() || !check_pointers() ||
        !check_sharing())
      return error_;
    const std::span<const uint64_t> body = program_.body();
    for (size_t pc = 0; pc < body.size();) {
      Head head;
      std::memcpy(&head, &body[pc], sizeof head);
      if (!check_head(head, body.size() - pc)) return located(pc);
      const Family family = family_of(head);
      if (follows_flags_) flags_.take(family, &body[pc]);
      const bool sound = info_of(family).form == Form::sync
                             ? check_sync(head, family, *extra_words(Form::sync, &body[pc]))
                             : check_instruction(head, &body[pc]);
      if (!sound) return located(pc);
      if (const char* wrong = groups_.take(head, &body[pc])) {
        fail(wrong);
        return located(pc);
      }
      pc += head.words;
    }
    if (const char* wrong = groups_.end()) return wrong;
    for (const Handed handed : kHanded) {
      const AtRing& at = at_ring_[static_cast<int>(handed)];
      if (header_.ring(handed).exists() && !(at.used && at.waits == 1 && at.sets == 1))
        return "a half of a pair does not hand on its slots";
    }
    return follows_flags_ ? flags_.check(body, header_.tiles) : std::string();
  }

 private:
  // Out of the way of the checks: this code runs for every compiled kernel, with cold caches.
  [[gnu::cold, gnu::noinline]] bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }
  [[gnu::cold, gnu::noinline]] bool fail(const char* message) { return fail(std::string(message)); }

  [[gnu::cold, gnu::noinline]] std::string located(size_t pc) const {
    Head head;
    std::memcpy(&head, &program_.body()[pc], sizeof head);
    std::string where = "word " + std::to_string(pc);
    if (well_formed_) where += ", " + disassemble_instruction(&program_.body()[pc]);
    return where + ": " + error_;
  }

  bool check_header() {
    const size_t words = program_.words().size();
    if (words * sizeof(uint64_t) < sizeof(ProgramHeader)) return fail("no header");
    if (header_.kind > KernelKind::mix) return fail("no such kernel kind");
    if (header_.grid_rank > kMaxGridRank) return fail("too many grid dims");
    if (header_.extent_registers >= kExtentRegisters) return fail("too many extent registers");
    if (header_.pointer_registers > kPointerRegisters) return fail("too many pointer registers");
    if (header_.chunk_dim > header_.grid_rank) return fail("chunks start beyond the grid");
    for (const uint8_t pointer : header_.ahead) {
      if (pointer > header_.pointer_registers || (pointer > 0 && header_.grid_rank == 0)) {
        return fail("fetches ahead through an undefined pointer register");
      }
    }
    const size_t tables = sizeof(ProgramHeader) + header_.grid_rank * sizeof(GridDim) +
                          header_.extent_registers * sizeof(ExtentRegister) +
                          header_.pointer_registers * sizeof(PointerRegister);
    if (header_.code_words < 0 ||
        tables / sizeof(uint64_t) + static_cast<uint64_t>(header_.code_words) != words) {
      return fail("the code size does not match the program's length");
    }
    if (header_.local_bytes < 0 || header_.local_bytes > target_.memory_end()) {
      return fail("needs " + std::to_string(header_.local_bytes) + " bytes of local memory, has " +
                  std::to_string(target_.memory_end()));
    }
    int64_t begin = 0;
    for (int m = 0; m < kMemories; ++m) {
      const int64_t end = begin + target_.memory_bytes(static_cast<Memory>(m));
      rooms_[m] = {begin, std::min(end, header_.local_bytes)};
      begin = end;
    }
    return true;
  }

  // What a pair and regions need of a header; the grid and the pointers are sound.
  bool check_sharing() {
    const bool regions = header_.regions[0] > 0 || header_.regions[1] > 0;
    if (regions && (header_.regions[0] == 0 || header_.regions[1] == 0 || header_.chunk_dim < 2))
      return fail("regions of no blocks");
    if (!header_.in_pair()) {
      const bool none = header_.pieces == 0 && header_.line_blocks == 1;
      return none || fail("half of a pair without a ring");
    }
    if (header_.line_blocks < 1) return fail("lines of no blocks");
    for (const Handed handed : kHanded) {
      if (header_.ring(handed).exists() && !check_ring(handed)) return false;
    }
    if (header_.rings[0].exists() && header_.rings[1].exists()) return check_two_rings();
    if (!header_.beside_cube()) return header_.kind != KernelKind::vector || fail("no cube unit");
    return check_pieces();
  }

  bool check_two_rings() {
    const Ring &a = header_.rings[0], &b = header_.rings[1];
    if (header_.beside_cube()) return fail("a lane is at one ring");
    if (header_.kind == KernelKind::vector) return fail("no cube unit");
    if (a.first_lane < b.end_lane() && b.first_lane < a.end_lane())
      return fail("a lane is at one ring");
    const int64_t a_low = program_.pointers()[a.pointer - 1u].low;
    const int64_t b_low = program_.pointers()[b.pointer - 1u].low;
    const int64_t a_high = a_low + target_.cube_cores * a.slots * a.bytes;
    const int64_t b_high = b_low + target_.cube_cores * b.slots * b.bytes;
    return a_high <= b_low || b_high <= a_low || fail("rings overlap");
  }

  bool check_ring(Handed handed) {
    const Ring& ring = header_.ring(handed);
    if (ring.pointer == 0 || ring.pointer + ring.pointers - 1 > header_.pointer_registers)
      return fail("undefined ring");
    if (ring.lanes == 0 || ring.end_lane() > lanes_of(target_)) return fail("no such lanes");
    if (ring.slots == 0 || (handed == Handed::sums && ring.slots % ring.lanes != 0))
      return fail("slots are not shared out evenly");
    const int64_t slots = target_.cube_cores * ring.slots;
    if (ring.bytes <= 0 || ring.bytes > kTooFar / slots) return fail("no slots");
    if (handed == Handed::sums && header_.beside_cube() && header_.line_blocks != 1)
      return fail("sums of several blocks");
    const int64_t first = program_.pointers()[ring.pointer - 1u].low;
    for (size_t p = ring.pointer - 1u; ring.reaches(p); ++p) {
      const PointerRegister& pointer = program_.pointers()[p];
      if (pointer.buffer != kWorkspace || pointer.low != first || pointer.base < pointer.low ||
          pointer.high - pointer.low != slots * ring.bytes)
        return fail("the ring is not of so many slots");
      for (int d = 0; d < header_.grid_rank; ++d) {
        if (pointer.steps[d] < 0) return fail("a ring is walked from its beginning");
      }
    }
    return true;
  }

  // Lines of tiles are those of the last dims of the grid, and are cut into pieces along one of
  // them.
  bool check_pieces() {
    int64_t line = 1, pieces = header_.pieces;
    int d = header_.grid_rank;
    while (d > 0 && line < header_.line_tiles) line *= program_.grid()[--d].count;
    const bool lines = header_.line_tiles > 0 && line == header_.line_tiles;
    for (int inner = header_.grid_rank - 1; inner >= d && pieces < header_.line_tiles; --inner) {
      const int64_t count = program_.grid()[inner].count;
      if (pieces < count) break;
      if (pieces % count != 0) return fail("no pieces of blocks");
      pieces /= count;
    }
    const int64_t least = lines ? (header_.line_tiles - 1) % header_.pieces + 1 : 0;
    if (header_.feeds() && least < header_.ring(Handed::rows).lanes)
      return fail("a lane has no part of a slot");
    return (header_.kind == KernelKind::vector && header_.pieces <= kMostPieces && lines &&
            header_.chunk_dim == header_.grid_rank) ||
           fail("no pieces of blocks");
  }

  // Names of registers are put together only for messages: this runs for every compiled kernel.
  bool check_grid() {
    int64_t tiles = 1, group = 1;
    for (size_t d = 0; d < program_.grid().size(); ++d) {
      const GridDim& dim = program_.grid()[d];
      const auto name = [&] { return "grid d" + std::to_string(d); };
      if (dim.tile <= 0 || dim.whole <= 0 || dim.tile > dim.whole || dim.whole > kTooFar) {
        return fail(name() + " has a tile or extent out of range");
      }
      if (dim.count != (dim.whole + dim.tile - 1) / dim.tile) {
        return fail(name() + " has the wrong number of tiles");
      }
      if (dim.count > kTooFar / tiles) return fail("too many tiles");
      tiles *= dim.count;
      if (d >= header_.chunk_dim) group *= dim.count;
    }
    if (tiles != header_.tiles) return fail("the number of tiles does not match the grid");
    if (group != header_.tile_group) return fail("the tile group does not match the grid");
    if (header_.preferred_claim <= 0 || header_.preferred_claim % group != 0) {
      return fail("the preferred claim is not a multiple of the tile group");
    }
    return true;
  }

  bool check_extents() {
    loops_[0] = {-1, 1, 1, 1};
    for (size_t r = 0; r < program_.extents().size(); ++r) {
      const ExtentRegister& e = program_.extents()[r];
      const auto name = [&] { return "extent register e" + std::to_string(r + 1); };
      if (e.dim >= header_.grid_rank || e.dim < -1) return fail(name() + " names no grid dim");
      if (e.part > 0 && (e.dim < 0 || e.multiplier <= 0)) return fail(name() + " is no part");
      const int64_t most = e.dim < 0 || e.part > 0 ? 1 : program_.grid()[e.dim].tile;
      if (e.multiplier < 0 || most > INT32_MAX / std::max(e.multiplier, 1)) {
        return fail(name() + " is out of range");
      }
      loops_[r + 1] = loop_of(e);
    }
    return true;
  }

  bool check_pointers() {
    for (const uint8_t pointer : header_.ahead) {  // its last step is scaled by a part of the tile
      if (pointer == 0) continue;
      const int64_t step = program_.pointers()[pointer - 1].steps[header_.grid_rank - 1];
      if (beyond(step, kTooFar / program_.grid().back().tile)) {
        return fail("fetches ahead through a pointer register that steps too far");
      }
    }
    for (size_t r = 0; r < program_.pointers().size(); ++r) {
      const PointerRegister& pointer = program_.pointers()[r];
      const auto name = [&] { return "pointer register p" + std::to_string(r); };
      for (size_t d = 0; d < program_.grid().size(); ++d) {
        const int64_t count = program_.grid()[d].count;
        if (count > 1 && beyond(pointer.steps[d], kTooFar / count)) {
          return fail(name() + " steps too far");
        }
      }
      if (beyond(pointer.base, kTooFar)) return fail(name() + " starts too far away");
      if (pointer.buffer == kPlainInteger) continue;
      int64_t bytes = workspace_bytes_;
      if (pointer.buffer != kWorkspace) {
        if (pointer.buffer < 0 || pointer.buffer >= value_count_) {
          return fail(name() + " names no value");
        }
        bytes = values_[pointer.buffer].bytes;
      }
      if (pointer.low < 0 || pointer.high < pointer.low || pointer.high > bytes) {
        return fail(name() + " reaches [" + std::to_string(pointer.low) + ", " +
                    std::to_string(pointer.high) + ") of a buffer of " + std::to_string(bytes) +
                    " bytes");
      }
    }
    return true;
  }

  bool check_head(const Head& head, size_t words_left) {
    well_formed_ = false;
    const int family = head.opcode / 16;
    if (family >= kFamilies) return fail("no such opcode");
    const FamilyInfo& info = info_of(static_cast<Family>(family));
    if (!(info.dtypes >> (head.opcode % 16) & 1)) {
      return fail(std::string(name_of(static_cast<Family>(family))) + " has no such dtype");
    }
    const FormInfo& form = form_info(info.form);
    if (head.words != form.words()) return fail("wrong length for its form");
    if (head.words > words_left) return fail("runs beyond the code");
    if (head.flags & ~kKnownFlags) return fail("unknown flags");
    if (head.changed_mask & ~kFirstTileOnly & ~((1u << header_.grid_rank) - 1)) {
      return fail("predicate names no grid dim");
    }
    for (const uint8_t e : {head.e0, head.e1, head.e2}) {
      if (e > header_.extent_registers) return fail("undefined extent register");
    }
    const bool accumulates = (head.flags & (kAccumulate | kAccumulateAlways)) != 0;
    if (accumulates && (form.outputs == 0 || form.operands[0].role != Role::updates)) {
      return fail("accumulates, but is no reduction or matmul");
    }
    return true;
  }

  bool check_instruction(const Head& head, const uint64_t* words) {
    const Family family = family_of(head);
    const FamilyInfo& info = info_of(family);
    const DType dtype = dtype_of(head);
    const FormInfo& form = form_info(info.form);
    const uint64_t* const extra = extra_words(info.form, words);
    const bool flat = family == Family::d_load || family == Family::d_store;
    for (int k = 0; k < form.operand_count(); ++k) {
      const Operand operand = operand_of(words, k);
      if (!check_place(form.operands[k].place, operand) ||
          !check_strides(info, flat, operand, dtype, k)) {
        return false;
      }
    }
    if (flat && (head.e0 != 0 || head.e1 != 0)) return fail("a contiguous tile has one loop");
    if (form.extra == Extra::block && !check_block(info.form, words)) return false;
    well_formed_ = true;
    if (has_window(form) && !check_window_sizes(window_of(info.form, words))) return false;
    const Loops loops = loops_of(head);
    for (int k = 0; k < form.operand_count(); ++k) {
      const Operand operand = operand_of(words, k);
      if (operand.space() == Space::immediate) continue;
      if (form.operands[k].place == Place::integer) continue;
      if (operand.space() == Space::pointer && header_.reaches_ring(operand.offset()) &&
          !check_at_ring(info.queue, operand.offset(), k < form.outputs))
        return false;
      if (!check_predicate(head, operand)) return false;
      if (!check_reach(head, loops, form, operand, operand_dtype(info.form, dtype, k), k, words)) {
        return false;
      }
    }
    if (has_window(form) && !check_window(head, loops, info.form, words)) return false;
    if (has_bounds(form) && !check_bounds(info.form, dtype, words)) return false;
    switch (form.extra) {
      case Extra::levels: return check_levels(extra);
      case Extra::limit: return static_cast<int64_t>(extra[0]) >= 0 || fail("negative limit");
      case Extra::gather: return static_cast<int64_t>(extra[1]) >= 0 || fail("negative limit");
      default: return true;
    }
  }

  // Whole words of levels, beside scales and maybe zeros.
  bool check_block(Form form, const uint64_t* words) {
    const auto block = static_cast<int64_t>(*extra_words(form, words));
    if (block <= 0 || block > kMostBlock || block % kWordLevels != 0) return fail("no block");
    const int64_t row = panel_columns(kBundle, target_), levels = block / kWordLevels;
    const int64_t middle = operand_of(words, 2).middle_stride;
    return middle == (levels + 1) * row || middle == (levels + 2) * row ||
           fail("a block has other rows than scales, zeros and levels");
  }

  // The addend, where it is a number, and the bounds.
  bool check_bounds(Form form, DType dtype, const uint64_t* words) {
    const int addend = form_info(form).operand_count() - 1;
    const bool number = operand_of(words, addend).space() == Space::immediate;
    if (number && operand_words(words, addend)[1] != 0) return fail("a number added is not 0");
    const uint64_t* const bounds = bounds_of(form, words);
    const auto real = [dtype](uint64_t bits) {
      if (dtype == DType::f64) return std::bit_cast<double>(bits);
      return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    };
    return real(bounds[0]) <= real(bounds[1]) || fail("low is not up to high");
  }

  bool check_levels(const uint64_t* words) {
    Levels levels;
    std::memcpy(&levels, words, sizeof levels);
    for (const int64_t level : {levels.low, levels.high, levels.zero}) {
      if (beyond(level, kFarthestLevel)) return fail("a level too far from 0");
    }
    return levels.low <= levels.high || fail("low is not up to high");
  }

  // What runs only where some grid coordinates change goes where the others do not move.
  bool check_predicate(const Head& head, const Operand& operand) {
    if (head.changed_mask == 0 || operand.space() != Space::pointer) return true;
    const PointerRegister& pointer = program_.pointers()[operand.offset()];
    for (uint32_t d = 0; d < header_.grid_rank; ++d) {
      if (pointer.steps[d] != 0 && !(head.changed_mask >> d & 1)) {
        return fail("runs for some tiles only, but its operand moves with each");
      }
    }
    return true;
  }

  // Whether an operand lies where forms.def has it.
  bool check_place(Place place, const Operand& operand) {
    const bool integer = place == Place::integer;
    switch (operand.space()) {
      case Space::local:
      case Space::two_places:
        if (integer) return fail("an integer comes from a pointer register");
        if (place == Place::memory) return fail("a memory instruction reads global memory");
        if (memory_of(place) != Memory::main && !target_.has_cube_memories()) {
          return fail("this target has one local memory");
        }
        return true;
      case Space::pointer: {
        if (operand.offset() >= header_.pointer_registers) {
          return fail("undefined pointer register");
        }
        const PointerRegister& pointer = program_.pointers()[operand.offset()];
        if (integer != (pointer.buffer == kPlainInteger)) {
          return fail("an integer is not an address");
        }
        if (integer || place == Place::memory || place == Place::anywhere) return true;
        if (memory_of(place) != Memory::main || !target_.unified_memory) {
          return fail("only memory instructions touch global memory on this target");
        }
        return true;
      }
      default:
        if (place != Place::value) return fail("operand cannot be immediate");
        if (operand.inner_stride != 0) return fail("an immediate has no strides");
        return true;
    }
  }

  // Handlers of vector and cube instructions run over rows of neighbouring elements.
  bool check_strides(const FamilyInfo& info, bool flat, const Operand& operand, DType dtype,
                     int k) {
    if (operand.space() == Space::immediate) return true;
    const OperandInfo& form = form_info(info.form).operands[k];
    const bool rows = info.queue == Queue::vector && form.place != Place::integer;
    const int inner = operand.inner_stride;
    if (rows && inner != 1 && (k == 0 || inner != 0)) {
      return fail("a vector operand needs an inner stride of 0 or 1, an output of 1");
    }
    const bool two_places = operand.space() == Space::two_places;
    if (two_places & (form.walk != Walk::rows)) return fail("such an operand has one place");
    if (two_places & (operand.outer_stride < 0))
      return fail("the second place lies before the first");
    switch (form.walk) {
      case Walk::columns:
        if (inner == 1) break;
        if (operand.middle_stride != 1 ||
            operand.outer_stride != int64_t{inner} * panel_columns(dtype, target_)) {
          return fail("neither rows nor columns of a matmul's B are contiguous");
        }
        break;
      case Walk::product:
      case Walk::product_rows:
      case Walk::panel_columns:
      case Walk::panel_blocks:
      case Walk::transformed:
      case Walk::steps:
      case Walk::row:
        if (inner != 1) return fail("rows of a matmul are contiguous");
        break;
      default: break;
    }
    if (flat && inner != 1) return fail("a contiguous tile has stride 1");
    return true;
  }

  // How an operand's address follows the loops e0, e1, e2, in elements.
  struct Steps {
    int64_t strides[3];
    int64_t panel_columns = 0;  // not 0: loop e2 counts columns of panels, strides[2] is per panel
    bool padded = false;        // the last panel is touched in full
    int bundled_loop = -1;      // it counts elements, of which a bundle is one of the operand's
    int64_t steps = 1;          // of a bundle

    // Longer loops do not reach less far.
    bool rises() const {
      return panel_columns == 0 && bundled_loop < 0 && (strides[0] | strides[1] | strides[2]) >= 0;
    }
  };

  // `made_of`: the dtype of the instruction, `dtype` that of the operand.
  Steps steps_of(const OperandInfo& info, DType made_of, const Operand& operand,
                 DType dtype) const {
    const int64_t outer = operand.outer_stride, middle = operand.middle_stride,
                  inner = operand.inner_stride;
    const bool bundles = info.type == Type::bundles;
    const auto columns = [&] { return panel_columns(dtype, target_); };
    switch (info.walk) {
      case Walk::folded: return {{outer, 0, inner}};
      case Walk::rows:
      case Walk::steps: return {{0, middle, inner}};
      case Walk::bundled_rows: return {{0, middle, inner}, 0, false, 2, bundle_steps(made_of)};
      case Walk::panels:
        return {{0, columns(), outer}, columns(), true, bundles ? 1 : -1, bundle_steps(made_of)};
      case Walk::product: return {{middle, 0, inner}};
      case Walk::product_rows: return {{middle, inner, 0}};
      case Walk::columns:
        if (inner != 1) return {{0, middle, inner}};
        return {{0, middle, outer}, columns(), false};
      case Walk::transformed:
      case Walk::panel_columns: return {{0, middle, outer}, columns(), true};
      case Walk::panel_blocks:
        return {{0, middle, outer}, columns(), true, 1};  // steps: check_reach
      case Walk::row: return {{0, 0, inner}};
      default: return {{outer, middle, inner}};
    }
  }

  static int64_t last_offset(const Steps& walk, int loop, int64_t extent) {
    if (extent <= 0) return 0;
    if (loop == walk.bundled_loop) extent = (extent + walk.steps - 1) / walk.steps;
    if (loop != 2 || walk.panel_columns == 0) {
      return std::clamp(walk.strides[loop] * (extent - 1), -kTooFar, kTooFar);
    }
    const int64_t panels = (extent + walk.panel_columns - 1) / walk.panel_columns;
    const int64_t last = extent - (panels - 1) * walk.panel_columns - 1;
    return std::clamp(walk.strides[2] * (panels - 1), -kTooFar, kTooFar) +
           (walk.padded ? walk.panel_columns - 1 : last);
  }

  // A loop over what an extent register holds.
  struct Loop {
    int dim;             // that it depends on; -1: none
    int64_t full, tail;  // in a full tile, in the last one of the dim
    int64_t most;        // in any tile
  };
  // Those of an instruction, which all its operands run over.
  struct Loops {
    const Loop* at[3];

    const Loop& operator[](int loop) const { return *at[loop]; }
    bool follow_none() const { return (at[0]->dim & at[1]->dim & at[2]->dim) < 0; }
    bool follow(int dim) const {
      return at[0]->dim == dim || at[1]->dim == dim || at[2]->dim == dim;
    }
  };

  Loop loop_of(const ExtentRegister& extent) const {
    const int64_t all = extent.multiplier;
    if (extent.dim < 0) return {-1, all, 1, all};
    const GridDim& dim = program_.grid()[extent.dim];
    const int64_t full = extent.value(dim.tile), tail = extent.value(dim.tail());
    return {extent.dim, full, tail, dim.count > 1 ? full : tail};
  }

  Loops loops_of(const Head& head) const {
    return {{&loops_[head.e0], &loops_[head.e1], &loops_[head.e2]}};
  }

  // Offsets over all tiles: separable by grid dim, and linear in the coordinate except that the
  // last tile may be smaller, so the first, the last full and the last tile are the extremes.
  Reach reach_of(const Loops& loops, const Steps& walk, int64_t element,
                 const int64_t* steps) const {
    Reach reach;
    if (steps == nullptr && walk.rises()) {
      for (int loop = 0; loop < 3; ++loop) {
        const int64_t last = std::max<int64_t>(loops[loop].most - 1, 0);
        reach.high += std::min(walk.strides[loop] * last, kTooFar) * element;
      }
      return reach;
    }
    for (int loop = 0; loop < 3; ++loop) {
      if (loops[loop].dim >= 0) continue;
      reach.add(last_offset(walk, loop, loops[loop].full) * element);
    }
    if (steps == nullptr && loops.follow_none()) return reach;
    for (int d = 0; d < header_.grid_rank; ++d) {
      const int64_t step = steps == nullptr ? 0 : steps[d];
      const int64_t last = program_.grid()[d].count - 1;
      if (!loops.follow(d)) {
        reach.add(last * step);
        continue;
      }
      Reach full, tail;
      bool empty_tail = false;  // parts behind the end touch nothing
      for (int loop = 0; loop < 3; ++loop) {
        if (loops[loop].dim != d) continue;
        empty_tail |= loops[loop].tail == 0;
        tail.add(last_offset(walk, loop, loops[loop].tail) * element);
        if (last > 0) full.add(last_offset(walk, loop, loops[loop].full) * element);
      }
      int64_t low = tail.low + last * step, high = tail.high + last * step;
      if (last > 0) {
        const int64_t last_full = (last - 1) * step;
        if (empty_tail) low = high = 0;
        low = std::min(low, full.low + std::min<int64_t>(last_full, 0));
        high = std::max(high, full.high + std::max<int64_t>(last_full, 0));
      }
      reach.low += low;
      reach.high += high;
    }
    return reach;
  }

  // Over the tiles that are at a slot, from where it begins: a half on lanes comes through the last
  // dims of its grid, of one of them maybe in part; the cube unit's through the chunks.
  Reach reach_in_slot(const Loops& loops, const Steps& walk, int64_t element,
                      const PointerRegister& pointer) const {
    int64_t steps[kMaxGridRank] = {};
    Reach part;
    int64_t left =
        header_.beside_cube() ? std::min(header_.pieces, header_.line_tiles) : header_.tile_group;
    for (int d = header_.grid_rank - 1; d >= 0 && left > 1; --d) {
      const int64_t count = program_.grid()[d].count;
      if (left >= count) {
        steps[d] = pointer.steps[d];
      } else {
        part.add((left - 1) * pointer.steps[d]);
      }
      left = left % count == 0 ? left / count : 1;
    }
    Reach reach = reach_of(loops, walk, element, steps);
    reach.low += part.low;
    reach.high += part.high;
    return reach;
  }

  const Ring& ring_at(size_t pointer) const {
    return header_.rings[header_.rings[0].reaches(pointer) ? 0 : 1];
  }

  bool check_reach(const Head& head, const Loops& loops, const FormInfo& form,
                   const Operand& operand, DType dtype, int k, const uint64_t* words) {
    const auto element = static_cast<int64_t>(size_of(dtype));
    const OperandInfo& info = form.operands[k];
    const uint64_t* const extra = operand_words(words, form.operand_count());
    Steps walk = steps_of(info, dtype_of(head), operand, dtype);
    if (info.walk == Walk::panel_blocks) walk.steps = static_cast<int64_t>(*extra);
    const bool local = operand.space() != Space::pointer;
    if (walk.panel_columns != 0 && walk.strides[2] < walk.panel_columns && head.e2 != 0 &&
        last_offset(walk, 2, widest(head.e2)) >= walk.panel_columns) {
      return fail("panels overlap");
    }
    const PointerRegister* pointer = local ? nullptr : &program_.pointers()[operand.offset()];
    const bool ring = !local && header_.reaches_ring(operand.offset());
    Reach reach = ring ? reach_in_slot(loops, walk, element, *pointer)
                       : reach_of(loops, walk, element, local ? nullptr : pointer->steps);
    const int64_t second = operand.space() == Space::two_places ? operand.outer_stride : 0;
    if (local && follows_flags_) {
      const int64_t begin = operand.offset();
      flags_.touch(info.role, begin + reach.low, begin + reach.high + element, second);
    }
    reach.add(second);
    if (info.walk == Walk::panel_blocks) {  // blocks in full
      reach.add((int64_t{operand.middle_stride} - walk.panel_columns) * element);
    }
    if (info.walk == Walk::transformed) {  // all rows
      reach.add((kTransformedRows - 1) * widest(head.e1) * int64_t{operand.middle_stride} *
                element);
    }
    if (form.extra == Extra::gather && k == 1) {
      const auto stride = static_cast<int64_t>(extra[0]), limit = static_cast<int64_t>(extra[1]);
      if (limit == 0) return true;  // no index is valid: it reads nothing
      if (beyond(stride, kTooFar / limit)) return fail("gathers from too far away");
      reach.add((limit - 1) * stride * element);
    }
    const Form windows = info_of(family_of(head)).form;
    const bool weighs = windows == Form::depthwise && k == 3;
    if (has_window(form) && (k == 1 || weighs)) {
      const Window window = window_of(windows, words);
      if (window.pixels() == 0) return true;  // it reads nothing
      const int64_t pixel = window.pixel, channels = window.channels;
      if (k == 1) reach.add(((window.pixels() - 1) * pixel + channels - 1) * element);
      if (weighs) reach.add((window.taps() * channels - 1) * window.weights * element);
    }
    const int64_t base = local ? operand.offset() : pointer->base;
    const Room& room = rooms_[static_cast<int>(memory_of(info.place))];
    const int64_t least = local ? room.begin : pointer->low;
    const int64_t most = local  ? room.end
                         : ring ? pointer->low + ring_at(operand.offset()).bytes
                                : pointer->high;
    int64_t bits = base;  // of all terms of the address; sizes of elements are powers of two
    for (int d = 0; !local && d < header_.grid_rank; ++d) bits |= pointer->steps[d];
    if ((bits & (element - 1)) != 0) return fail("misaligned address");
    if (base + reach.low >= least && base + reach.high + element <= most) return true;
    return fail("operand " + std::to_string(k) + " reaches [" + std::to_string(base + reach.low) +
                ", " + std::to_string(base + reach.high + element) + ") outside of [" +
                std::to_string(least) + ", " + std::to_string(most) + ") in " +
                (local ? "local memory" : "its pointer register"));
  }

  static Window window_of(Form form, const uint64_t* words) {
    Window window;
    std::memcpy(&window, extra_words(form, words), sizeof window);
    return window;
  }

  // Sizes in range, whose products do not overflow.
  bool check_window_sizes(const Window& w) {
    for (const int32_t size : {w.images, w.depth, w.height, w.width, w.pixel, w.channels, w.weights,
                               w.out_depth, w.out_height, w.out_width, w.first}) {
      if (size < 0) return fail("a window has a negative size");
    }
    for (const int32_t size :
         {w.kernel_depth, w.kernel_height, w.kernel_width, w.stride_depth, w.stride_height,
          w.stride_width, w.dilation_depth, w.dilation_height, w.dilation_width}) {
      if (size <= 0) return fail("a window needs a kernel, strides and dilations");
    }
    const double elements = static_cast<double>(w.images) * w.depth * w.height * w.width * w.pixel;
    const double patch =
        static_cast<double>(w.kernel_depth) * w.kernel_height * w.kernel_width * w.channels;
    const double windows = static_cast<double>(w.images) * w.out_depth * w.out_height * w.out_width;
    if (elements > kTooFar || patch * std::max(w.weights, 1) > kTooFar || windows > kTooFar) {
      return fail("a window over too many elements");
    }
    return true;
  }

  // Every number is that of a window, and every element one of a patch.
  bool check_window(const Head& head, const Loops& loops, Form form, const uint64_t* words) {
    const Window window = window_of(form, words);
    const Operand number = operand_of(words, 2);
    const PointerRegister& base = program_.pointers()[number.offset()];
    const Reach reach =
        reach_of(loops, steps_of(form_info(form).operands[2], DType::i64, number, DType::i64), 1,
                 base.steps);
    if (base.base + reach.low < 0 || base.base + reach.high >= window.windows()) {
      return fail("number of a window out of range");
    }
    if (!moves_patches(form)) return window.is_flat() || fail("a pool over volumes");
    const bool multiplies = form != Form::pack_patches;
    const uint8_t along = multiplies ? head.e1 : head.e2;
    const int64_t depth = along == 0 ? 1 : widest(along);
    const int64_t patch = window.taps() * window.channels;
    if (window.first + depth > patch) return fail("more elements than a patch has");
    if (!multiplies) return true;
    if (depth != patch || narrowest(along) != patch) return fail("multiplies a part of windows");
    if (form == Form::matmul_transformed && !has_transform(window)) return fail("no transform");
    return number.outer_stride == 1 || fail("windows of a product come in order");
  }

  // Tells elements of a tap apart.
  static constexpr bool moves_patches(Form form) {
    return form == Form::pack_patches || form == Form::matmul_windows ||
           form == Form::matmul_transformed;
  }

  int64_t narrowest(uint8_t e) const { return loops_[e].dim < 0 ? widest(e) : loops_[e].tail; }
  int64_t widest(uint8_t e) const { return loops_[e].full; }

  bool check_sync(const Head& head, Family family, uint64_t word) {
    const auto known = [](Queue queue) {
      return queue != Queue::scalar && static_cast<int>(queue) < kQueues;
    };
    well_formed_ = known(sync_from(word)) && known(sync_to(word));
    if (!well_formed_) return fail("no such queue");
    if (sync_event(word) >= std::max<int64_t>(target_.event_flags, 1) || word >> 33 != 0) {
      return fail("no such event flag");
    }
    if (is_between_cores(word)) {
      if (family == Family::s_barrier) return fail("a barrier between cores");
      if (head.changed_mask != 0 || head.flags != 0) return fail("a flag has a predicate");
      return check_between(family, word);
    }
    if (sync_distance(word) > kMostDistance) return fail("a flag for a tile too far away");
    if (family == Family::s_barrier && sync_distance(word) > 0) return fail("a barrier is at once");
    return true;
  }

  // The halves of a pair wait for each other once at a slot of a ring, and signal once: the one
  // fills a slot that was emptied as many before as there are, the other empties it.
  bool check_between(Family family, uint64_t word) {
    if (sync_event(word) >= kRings || !header_.ring(ring_of(word)).exists())
      return fail("a flag between cores, of no ring");
    const Handed handed = ring_of(word);
    const bool sets = family == Family::s_set_flag;
    const bool full = fills(handed, header_.beside_cube()) == sets;
    if (word != ring_word(handed, full, header_.ring(handed).slots))
      return fail("a flag between cores that nobody takes");
    AtRing& at = at_ring_[sync_event(word)];
    ++(sets ? at.sets : at.waits);
    return true;
  }

  // Behind the wait and before the signal.
  bool check_at_ring(Queue queue, size_t pointer, bool writes) {
    const Handed handed = header_.rings[0].reaches(pointer) ? Handed::sums : Handed::rows;
    const bool fill = fills(handed, header_.beside_cube());
    if (queue != (fill ? filling(handed) : kEmptying) || writes != fill)
      return fail("another queue uses the ring");
    AtRing& at = at_ring_[static_cast<int>(handed)];
    at.used = true;
    return (at.waits == 1 && at.sets == 0) || fail("uses a slot that is not its own");
  }

  // What was met so far.
  struct AtRing {
    int sets = 0, waits = 0;
    bool used = false;
  };

  const Program& program_;
  const ProgramHeader& header_;
  const ValueInfo* values_;
  const int64_t value_count_;
  const int64_t workspace_bytes_;
  const Target& target_;
  bool well_formed_ = false;
  // Local memories: where each lies, as far as the program uses it.
  struct Room {
    int64_t begin, end;
  };
  Room rooms_[kMemories];
  Loop loops_[kExtentRegisters];  // by extent register; 0: no loop
  AtRing at_ring_[kRings];
  const bool follows_flags_;
  FlagVerifier flags_;
  GroupVerifier groups_;
  std::string error_;
};

// Whether a program is that number of a pair with this one of the cube unit.
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

}  // namespace

std::string verify(const Program& program, const ValueInfo* values, size_t value_count,
                   int64_t workspace_bytes, const Target& target) {
  return Verifier(program, values, value_count, workspace_bytes, target).run();
}

std::string verify_kernel(const CompiledKernel& kernel, const ValueInfo* values, size_t value_count,
                          const Target& target) {
  for (const CompiledKernel::Stage& stage : kernel.stages) {
    const Program* cube = nullptr;  // of the pair at hand
    size_t next = 1;                // of its programs
    const auto missing = [&] { return cube != nullptr && next < cube->header().programs(); };
    for (uint32_t i = 0; i < stage.program_count; ++i) {
      const Program& program = kernel.programs[stage.first_program + i];
      std::string wrong = verify(program, values, value_count, kernel.workspace_bytes, target);
      if (!wrong.empty()) return wrong;
      if (program.header().beside_cube()) {
        if (!missing()) return "half of a pair is missing";
        if (!goes_with(*cube, program, next++))
          return "the halves of a pair hand over different slots";
        continue;
      }
      if (missing()) return "half of a pair is missing";
      cube = program.header().in_pair() ? &program : nullptr;
      next = 1;
    }
    if (missing()) return "half of a pair is missing";
  }
  return {};
}

}  // namespace dvm
