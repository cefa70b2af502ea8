#include "vm/verify.h"

#include <algorithm>
#include <cstring>

#include "kernels/transforms.h"
#include "vm/disassemble.h"
#include "vm/sync.h"
#include "vm/verify_extra.h"
#include "vm/verify_fault.h"
#include "vm/verify_flags.h"
#include "vm/verify_groups.h"
#include "vm/verify_header.h"
#include "vm/verify_operand.h"
#include "vm/verify_pair.h"
#include "vm/verify_reach.h"

namespace dvm {
namespace {

constexpr uint8_t kKnownFlags =
    kAccumulate | kChunks | kAccumulateAlways | kStream | kJoined | kTransient | kRows;

// Goes over the instructions of a program whose header is sound.
class BodyVerifier {
 public:
  BodyVerifier(const Program& program, const Target& target, Fault& fail)
      : program_(program),
        header_(program.header()),
        target_(target),
        fail_(fail),
        operands_(program, target, fail),
        reaches_(program, target),
        pair_(program, target, fail),
        follows_flags_(!target.in_order()),
        groups_(program) {
    int64_t begin = 0;
    for (int m = 0; m < kMemories; ++m) {
      const int64_t end = begin + target.memory_bytes(static_cast<Memory>(m));
      rooms_[m] = {begin, std::min(end, header_.local_bytes)};
      begin = end;
    }
  }

  std::string run() {
    if (!pair_.check_sharing()) return fail_.message();
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
        fail_(wrong);
        return located(pc);
      }
      pc += head.words;
    }
    if (const char* wrong = groups_.end()) return wrong;
    if (!pair_.check_handed_on()) return fail_.message();
    return follows_flags_ ? flags_.check(body, header_.tiles) : std::string();
  }

 private:
  [[gnu::cold, gnu::noinline]] std::string located(size_t pc) const {
    Head head;
    std::memcpy(&head, &program_.body()[pc], sizeof head);
    std::string where = "word " + std::to_string(pc);
    if (well_formed_) where += ", " + disassemble_instruction(&program_.body()[pc]);
    return where + ": " + fail_.message();
  }

  bool check_head(const Head& head, size_t words_left) {
    well_formed_ = false;
    const int family = head.opcode / 16;
    if (family >= kFamilies) return fail_("no such opcode");
    const FamilyInfo& info = info_of(static_cast<Family>(family));
    if (!(info.dtypes >> (head.opcode % 16) & 1)) {
      return fail_(std::string(name_of(static_cast<Family>(family))) + " has no such dtype");
    }
    const FormInfo& form = form_info(info.form);
    if (head.words != form.words()) return fail_("wrong length for its form");
    if (head.words > words_left) return fail_("runs beyond the code");
    if (head.flags & ~kKnownFlags) return fail_("unknown flags");
    if (head.changed_mask & ~kFirstTileOnly & ~((1u << header_.grid_rank) - 1)) {
      return fail_("predicate names no grid dim");
    }
    for (const uint8_t e : {head.e0, head.e1, head.e2}) {
      if (e > header_.extent_registers) return fail_("undefined extent register");
    }
    const bool accumulates = (head.flags & (kAccumulate | kAccumulateAlways)) != 0;
    if (accumulates && (form.outputs == 0 || form.operands[0].role != Role::updates)) {
      return fail_("accumulates, but is no reduction or matmul");
    }
    return true;
  }

  bool check_instruction(const Head& head, const uint64_t* words) {
    const Family family = family_of(head);
    const FamilyInfo& info = info_of(family);
    const DType dtype = dtype_of(head);
    const FormInfo& form = form_info(info.form);
    const uint64_t* const extra = extra_words(info.form, words);
    for (int k = 0; k < form.operand_count(); ++k) {
      const Operand operand = operand_of(words, k);
      if (!operands_.check_place(form.operands[k].place, operand) ||
          !operands_.check_strides(family, operand, dtype, k)) {
        return false;
      }
    }
    if (moves_flat(family) && (head.e0 != 0 || head.e1 != 0))
      return fail_("a contiguous tile has one loop");
    if (form.extra == Extra::block && !check_block(info.form, words, target_, fail_)) return false;
    well_formed_ = true;
    if (has_window(form) && !check_window_sizes(window_of(info.form, words), fail_)) return false;
    const Reaches::Loops loops = reaches_.loops_of(head);
    for (int k = 0; k < form.operand_count(); ++k) {
      const Operand operand = operand_of(words, k);
      if (operand.space() == Space::immediate) continue;
      if (form.operands[k].place == Place::integer) continue;
      if (operand.space() == Space::pointer && header_.reaches_ring(operand.offset()) &&
          !pair_.check_at_ring(info.queue, operand.offset(), k < form.outputs))
        return false;
      if (!operands_.check_predicate(head, operand)) return false;
      if (!check_reach(head, loops, form, operand, operand_dtype(info.form, dtype, k), k, words)) {
        return false;
      }
    }
    if (has_window(form) && !check_window(program_, reaches_, head, words, fail_)) return false;
    if (has_ending(form) && !check_ending(info.form, dtype, words, fail_)) return false;
    if (has_levels(form) && !check_levels(levels_of(info.form, words), dtype, fail_)) return false;
    switch (form.extra) {
      case Extra::limit: return static_cast<int64_t>(extra[0]) >= 0 || fail_("negative limit");
      case Extra::gather: return static_cast<int64_t>(extra[1]) >= 0 || fail_("negative limit");
      default: return true;
    }
  }

  bool check_reach(const Head& head, const Reaches::Loops& loops, const FormInfo& form,
                   const Operand& operand, DType dtype, int k, const uint64_t* words) {
    const auto element = static_cast<int64_t>(size_of(dtype));
    const OperandInfo& info = form.operands[k];
    const uint64_t* const extra = operand_words(words, form.operand_count());
    Reaches::Steps walk = reaches_.steps_of(info, dtype_of(head), operand, dtype);
    if (info.walk == Walk::panel_blocks) walk.steps = static_cast<int64_t>(*extra);
    const bool local = operand.space() != Space::pointer;
    if (walk.panel_columns != 0 && walk.strides[2] < walk.panel_columns && head.e2 != 0 &&
        Reaches::last_offset(walk, 2, reaches_.widest(head.e2)) >= walk.panel_columns) {
      return fail_("panels overlap");
    }
    const PointerRegister* pointer = local ? nullptr : &program_.pointers()[operand.offset()];
    const bool ring = !local && header_.reaches_ring(operand.offset());
    Reach reach = ring ? reaches_.reach_in_slot(loops, walk, element, *pointer)
                       : reaches_.reach_of(loops, walk, element, local ? nullptr : pointer->steps);
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
      reach.add((kTransformedRows - 1) * reaches_.widest(head.e1) * int64_t{operand.middle_stride} *
                element);
    }
    if (info.walk == Walk::table) reach.add((kTableEntries - 1) * element);
    if (form.extra == Extra::gather && k == 1) {
      const auto stride = static_cast<int64_t>(extra[0]), limit = static_cast<int64_t>(extra[1]);
      if (limit == 0) return true;  // no index is valid: it reads nothing
      if (beyond(stride, kTooFar / limit)) return fail_("gathers from too far away");
      reach.add((limit - 1) * stride * element);
    }
    const Form windows = info_of(family_of(head)).form;
    const bool weighs = weighs_windows(windows) && k == 3;
    if (has_window(form) && (k == 1 || weighs)) {
      const Window window = window_of(windows, words);
      const bool reads_weights = weighs && weighs_bytes(windows);
      if (window.pixels() == 0 && !reads_weights) return true;  // it reads nothing
      const int64_t pixel = window.pixel, channels = window.channels;
      if (k == 1) reach.add(((window.pixels() - 1) * pixel + channels - 1) * element);
      if (weighs) reach.add((window.taps() * channels - 1) * window.weights * element);
    }
    const int64_t base = local ? operand.offset() : pointer->base;
    const Room& room = rooms_[static_cast<int>(memory_of(info.place))];
    const int64_t least = local ? room.begin : pointer->low;
    const int64_t most = local  ? room.end
                         : ring ? pointer->low + pair_.ring_at(operand.offset()).bytes
                                : pointer->high;
    int64_t bits = base;  // of all terms of the address; sizes of elements are powers of two
    for (int d = 0; !local && d < header_.grid_rank; ++d) bits |= pointer->steps[d];
    if ((bits & (element - 1)) != 0) return fail_("misaligned address");
    if (base + reach.low >= least && base + reach.high + element <= most) return true;
    return fail_("operand " + std::to_string(k) + " reaches [" + std::to_string(base + reach.low) +
                 ", " + std::to_string(base + reach.high + element) + ") outside of [" +
                 std::to_string(least) + ", " + std::to_string(most) + ") in " +
                 (local ? "local memory" : "its pointer register"));
  }

  bool check_sync(const Head& head, Family family, uint64_t word) {
    const auto known = [](Queue queue) {
      return queue != Queue::scalar && static_cast<int>(queue) < kQueues;
    };
    well_formed_ = known(sync_from(word)) && known(sync_to(word));
    if (!well_formed_) return fail_("no such queue");
    if (sync_event(word) >= std::max<int64_t>(target_.event_flags, 1) || word >> 33 != 0) {
      return fail_("no such event flag");
    }
    if (is_between_cores(word)) {
      if (family == Family::s_barrier) return fail_("a barrier between cores");
      if (head.changed_mask != 0 || head.flags != 0) return fail_("a flag has a predicate");
      return pair_.check_between(family, word);
    }
    if (sync_distance(word) > kMostDistance) return fail_("a flag for a tile too far away");
    if (family == Family::s_barrier && sync_distance(word) > 0)
      return fail_("a barrier is at once");
    return true;
  }

  const Program& program_;
  const ProgramHeader& header_;
  const Target& target_;
  Fault& fail_;
  bool well_formed_ = false;
  // Local memories: where each lies, as far as the program uses it.
  struct Room {
    int64_t begin, end;
  };
  Room rooms_[kMemories];
  OperandVerifier operands_;
  const Reaches reaches_;
  PairVerifier pair_;
  const bool follows_flags_;
  FlagVerifier flags_;
  GroupVerifier groups_;
};

}  // namespace

std::string verify(const Program& program, const ValueInfo* values, size_t value_count,
                   int64_t workspace_bytes, const Target& target) {
  Fault fail;
  if (!verify_header(program, values, value_count, workspace_bytes, target, fail)) {
    return fail.message();
  }
  return BodyVerifier(program, target, fail).run();
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
