#include "vm/verify_header.h"

#include <algorithm>
#include <string>

#include "vm/core.h"
#include "vm/verify_reach.h"

namespace dvm {
namespace {

class HeaderVerifier {
 public:
  HeaderVerifier(const Program& program, const ValueInfo* values, size_t value_count,
                 int64_t workspace_bytes, const Target& target, Fault& fail)
      : program_(program),
        header_(program.header()),
        values_(values),
        value_count_(static_cast<int64_t>(value_count)),
        workspace_bytes_(workspace_bytes),
        target_(target),
        fail_(fail) {}

  bool run() { return check_header() && check_grid() && check_extents() && check_pointers(); }

 private:
  bool check_header() {
    const size_t words = program_.words().size();
    if (words * sizeof(uint64_t) < sizeof(ProgramHeader)) return fail_("no header");
    if (header_.kind > KernelKind::mix) return fail_("no such kernel kind");
    if (header_.grid_rank > kMaxGridRank) return fail_("too many grid dims");
    if (header_.extent_registers >= kExtentRegisters) return fail_("too many extent registers");
    if (header_.pointer_registers > kPointerRegisters) return fail_("too many pointer registers");
    if (header_.chunk_dim > header_.grid_rank) return fail_("chunks start beyond the grid");
    for (const uint8_t pointer : header_.ahead) {
      if (pointer > header_.pointer_registers || (pointer > 0 && header_.grid_rank == 0)) {
        return fail_("fetches ahead through an undefined pointer register");
      }
    }
    const size_t tables = sizeof(ProgramHeader) + header_.grid_rank * sizeof(GridDim) +
                          header_.extent_registers * sizeof(ExtentRegister) +
                          header_.pointer_registers * sizeof(PointerRegister);
    if (header_.code_words < 0 ||
        tables / sizeof(uint64_t) + static_cast<uint64_t>(header_.code_words) != words) {
      return fail_("the code size does not match the program's length");
    }
    if (header_.local_bytes < 0 || header_.local_bytes > target_.memory_end()) {
      return fail_("needs " + std::to_string(header_.local_bytes) + " bytes of local memory, has " +
                   std::to_string(target_.memory_end()));
    }
    return true;
  }

  // Names of registers are put together only for messages: this runs for every compiled kernel.
  bool check_grid() {
    int64_t tiles = 1, group = 1;
    for (size_t d = 0; d < program_.grid().size(); ++d) {
      const GridDim& dim = program_.grid()[d];
      const auto name = [&] { return "grid d" + std::to_string(d); };
      if (dim.tile <= 0 || dim.whole <= 0 || dim.whole > kTooFar || dim.tile > kTooFar) {
        return fail_(name() + " has a tile or extent out of range");
      }
      if (dim.count != (dim.whole + dim.tile - 1) / dim.tile) {
        return fail_(name() + " has the wrong number of tiles");
      }
      if (dim.count > kTooFar / tiles) return fail_("too many tiles");
      tiles *= dim.count;
      if (d >= header_.chunk_dim) group *= dim.count;
    }
    if (tiles != header_.tiles) return fail_("the number of tiles does not match the grid");
    if (group != header_.tile_group) return fail_("the tile group does not match the grid");
    if (header_.preferred_claim <= 0 || header_.preferred_claim % group != 0) {
      return fail_("the preferred claim is not a multiple of the tile group");
    }
    return true;
  }

  bool check_extents() {
    for (size_t r = 0; r < program_.extents().size(); ++r) {
      const ExtentRegister& e = program_.extents()[r];
      const auto name = [&] { return "extent register e" + std::to_string(r + 1); };
      if (e.dim >= header_.grid_rank || e.dim < -1) return fail_(name() + " names no grid dim");
      if (e.part > 0 && (e.dim < 0 || e.multiplier <= 0)) return fail_(name() + " is no part");
      const int64_t most = e.dim < 0 || e.part > 0 ? 1 : program_.grid()[e.dim].tile;
      if (e.multiplier < 0 || most > INT32_MAX / std::max(e.multiplier, 1)) {
        return fail_(name() + " is out of range");
      }
    }
    return true;
  }

  bool check_pointers() {
    for (const uint8_t pointer : header_.ahead) {  // its last step is scaled by a part of the tile
      if (pointer == 0) continue;
      const int64_t step = program_.pointers()[pointer - 1].steps[header_.grid_rank - 1];
      if (beyond(step, kTooFar / program_.grid().back().tile)) {
        return fail_("fetches ahead through a pointer register that steps too far");
      }
    }
    for (size_t r = 0; r < program_.pointers().size(); ++r) {
      const PointerRegister& pointer = program_.pointers()[r];
      const auto name = [&] { return "pointer register p" + std::to_string(r); };
      for (size_t d = 0; d < program_.grid().size(); ++d) {
        const int64_t count = program_.grid()[d].count;
        if (count > 1 && beyond(pointer.steps[d], kTooFar / count)) {
          return fail_(name() + " steps too far");
        }
      }
      if (beyond(pointer.base, kTooFar)) return fail_(name() + " starts too far away");
      if (pointer.buffer == kPlainInteger) continue;
      int64_t bytes = workspace_bytes_;
      if (pointer.buffer != kWorkspace) {
        if (pointer.buffer < 0 || pointer.buffer >= value_count_) {
          return fail_(name() + " names no value");
        }
        bytes = values_[pointer.buffer].bytes;
      }
      if (pointer.low < 0 || pointer.high < pointer.low || pointer.high > bytes) {
        return fail_(name() + " reaches [" + std::to_string(pointer.low) + ", " +
                     std::to_string(pointer.high) + ") of a buffer of " + std::to_string(bytes) +
                     " bytes");
      }
    }
    return true;
  }

  const Program& program_;
  const ProgramHeader& header_;
  const ValueInfo* values_;
  const int64_t value_count_;
  const int64_t workspace_bytes_;
  const Target& target_;
  Fault& fail_;
};

}  // namespace

bool verify_header(const Program& program, const ValueInfo* values, size_t value_count,
                   int64_t workspace_bytes, const Target& target, Fault& fail) {
  return HeaderVerifier(program, values, value_count, workspace_bytes, target, fail).run();
}

}  // namespace dvm
