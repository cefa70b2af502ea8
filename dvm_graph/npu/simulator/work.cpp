#include "npu/simulator/work.h"

#include <algorithm>
#include <cstring>

#include "vm/core.h"

namespace dvm {
namespace {

double rounded_up(double number, double unit) {
  return unit * static_cast<double>(static_cast<int64_t>((number + unit - 1) / unit));
}

int64_t blocks(int64_t extent, double of) {
  const auto size = static_cast<int64_t>(of);
  return (extent + size - 1) / size;
}

bool enabled(const Head& head, uint8_t changed, bool first, bool last) {
  if (head.changed_mask != 0 && (head.changed_mask & changed) == 0) return false;
  if ((head.flags & kFirstChunk) != 0 && !first) return false;
  return (head.flags & kLastChunk) == 0 || last;
}

// As far as anybody asks.
int near(int64_t before, int64_t most) { return static_cast<int>(std::min(before, most)); }

}  // namespace

ProgramWork::ProgramWork(ProgramView program, const NpuPart& part, MissShares misses)
    : program_(program), part_(part), misses_(misses.begin(), misses.end()) {}

void ProgramWork::classes(std::span<const GroupRange> groups, int64_t lane,
                          std::vector<TileClass>& out) {
  const std::span<const GridDim> grid = program_.grid();
  const ProgramHeader& header = program_.header();
  ShareWalk walk(header, groups, lane);
  for (TileRun run; walk.next(run);) {
    int64_t at[kMaxGridRank] = {};
    int64_t rest = run.begin;
    for (size_t d = grid.size(); d-- > 0;) {
      at[d] = rest % grid[d].count;
      rest /= grid[d].count;
    }
    uint8_t changed = kEverythingChanged;
    for (int64_t tile = run.begin; tile < run.end; ++tile) {
      Situation at_hand;
      at_hand.changed = changed;
      for (size_t d = 0; d < grid.size(); ++d) {
        const bool at_end = at[d] + 1 == grid[d].count;
        if (at_end && grid[d].tail() != grid[d].tile) at_hand.tails |= 1u << d;
        if (d < header.chunk_dim) continue;
        at_hand.first_chunk &= at[d] == 0;
        at_hand.last_chunk &= at_end;
      }
      const int64_t number = run.number + tile - run.begin;
      at_hand.before = near(number, kMostDistance);
      at_hand.behind = near(walk.tiles() - 1 - number, kMostDistance);
      for (const Handed handed : kHanded) {
        const Ring& ring = header.ring(handed);
        if (!ring.exists()) continue;
        const HandOver slot = walk.hand_over(handed, run, tile);
        at_hand.rings[static_cast<size_t>(handed)] = {
            near(slot.number, ring.slots), near(slot.count - 1 - slot.number, ring.slots),
            slot.begins, slot.ends};
      }
      out.push_back(class_of(at_hand));
      changed = 0;
      for (size_t d = grid.size(); d-- > 0;) {
        changed |= static_cast<uint8_t>(1u << d);
        if (++at[d] < grid[d].count) break;
        at[d] = 0;
      }
    }
  }
}

TileClass ProgramWork::class_of(const Situation& situation) {
  const auto [entry, fresh] = known_.try_emplace(situation, static_cast<TileClass>(steps_.size()));
  if (fresh) decode(situation, steps_.emplace_back());
  return entry->second;
}

void ProgramWork::decode(const Situation& at_hand, std::vector<UnitStep>& out) {
  int64_t extents[kExtentRegisters] = {1};
  for (size_t r = 0; r < program_.extents().size(); ++r) {
    const ExtentRegister& e = program_.extents()[r];
    extents[r + 1] = e.multiplier;
    if (e.dim < 0) continue;
    const GridDim& dim = program_.grid()[static_cast<size_t>(e.dim)];
    extents[r + 1] = e.value((at_hand.tails >> e.dim & 1) != 0 ? dim.tail() : dim.tile);
  }
  const std::span<const uint64_t> body = program_.body();
  for (size_t pc = 0; pc < body.size();) {
    const Head head = head_of(&body[pc]);
    if (runs(head, &body[pc], at_hand)) out.push_back(step_of(head, &body[pc], extents));
    pc += head.words;
  }
  if (!out.empty()) out.front().decode += static_cast<float>(part_.scalar_tile);
}

bool ProgramWork::runs(const Head& head, const uint64_t* words, const Situation& at_hand) {
  if (!enabled(head, at_hand.changed, at_hand.first_chunk, at_hand.last_chunk)) return false;
  const Family family = family_of(head);
  if (family != Family::s_set_flag && family != Family::s_wait_flag) return true;
  const uint64_t word = *extra_words(Form::sync, words);
  if (!is_between_cores(word))
    return sync_runs(family, word, at_hand.before, at_hand.before + at_hand.behind + 1);
  const Situation::AtRing& at = at_hand.rings[static_cast<size_t>(ring_of(word))];
  return sync_runs(family, word,
                   HandOver{at.before, at.before + at.behind + 1, at.begins, at.ends});
}

UnitStep ProgramWork::step_of(const Head& head, const uint64_t* words,
                              const int64_t* extents) const {
  UnitStep step;
  step.family = family_of(head);
  const FamilyInfo& info = info_of(step.family);
  if (info.form == Form::sync) {
    step.decode = static_cast<float>(part_.scalar_sync);
    const uint64_t word = *extra_words(info.form, words);
    const uint8_t from = index_of(sync_from(word)), to = index_of(sync_to(word));
    const bool sets = step.family == Family::s_set_flag;
    step.kind = sets ? UnitStep::Kind::set : UnitStep::Kind::wait;
    step.queue = sets || step.family == Family::s_barrier ? from : to;
    step.peer = sets ? to : from;
    step.event = static_cast<uint8_t>(sync_event(word));
    step.between_cores = is_between_cores(word);
    if (step.family == Family::s_barrier) step.kind = UnitStep::Kind::work;
    return step;
  }
  step.decode = static_cast<float>(part_.scalar_decode);
  step.queue = index_of(info.queue);
  const auto dtype = dtype_of(head);
  const Extents over{{extents[head.e0], extents[head.e1], extents[head.e2]}};
  const FormInfo& form = form_info(info.form);
  for (int k = 0; k < form.operand_count(); ++k) {
    const Operand operand = operand_of(words, k);
    if (operand.space() != Space::pointer || form.operands[k].place == Place::integer) continue;
    add_transfer(head, operand, operand_dtype(info.form, dtype, k), over, k < form.outputs, step);
  }
  if (step.kind == UnitStep::Kind::transfer) {
    step.cycles = on_cube() ? part_.startup_cube_load : part_.startup_vector_load;
    step.limit = transfer_limit(step.writes);
    if (info.form == Form::lookup) {  // bytes are picked one after the other
      step.cycles += static_cast<double>(over.loops[0] * over.loops[1] * over.loops[2]);
    }
    if (info.form == Form::pool || weighs_windows(info.form)) {
      const double busy = window_cycles(info.form, words, dtype, over);
      if (busy > 0) step.limit = std::min(step.limit, step.bytes / busy);
    }
  } else if (info.queue == Queue::cube) {
    step.cycles = part_.startup_cube + cube_cycles(dtype, over);
    step.flops = 2.0 * static_cast<double>(over.loops[0]) * static_cast<double>(over.loops[1]) *
                 static_cast<double>(over.loops[2]);
  } else if (info.queue == Queue::vector) {
    step.cycles = part_.startup_vector + vector_cycles(head, words, over);
    if (on_cube()) step.cycles /= part_.vector_per_cube();
  } else if (form.operand_count() > 0) {  // between local memories
    const double bytes = static_cast<double>(over.loops[0] * over.loops[1] * over.loops[2]) *
                         static_cast<double>(size_of(operand_dtype(info.form, dtype, 0)));
    const bool right = step.family == Family::d_load_l0b;
    step.cycles = part_.startup_l1_to_l0 +
                  bytes / (right ? part_.bandwidth_l1_to_l0b : part_.bandwidth_l1_to_l0a);
  }
  return step;
}

// Loops along which an operand does not move read it once. Memory moves in blocks, so that short
// runs of neighbours take more than their bytes.
void ProgramWork::add_transfer(const Head& head, const Operand& operand, DType dtype, Extents over,
                               bool writes, UnitStep& step) const {
  const auto element = static_cast<double>(size_of(dtype));
  const auto family = family_of(head);
  const bool flat = family == Family::d_load || family == Family::d_store;
  const bool has_strides = !has_window(info_of(family).form);
  const int64_t strides[3] = {operand.outer_stride, operand.middle_stride,
                              flat ? 1 : operand.inner_stride};
  double elements = 1, run = 1;
  for (int loop = 2; loop >= 0; --loop) {
    const int64_t extent = over.loops[loop];
    if (extent > 1 && has_strides && strides[loop] == 0) continue;
    if (extent > 1 && (!has_strides || strides[loop] == static_cast<int64_t>(run))) {
      run *= static_cast<double>(extent);
    }
    elements *= static_cast<double>(extent);
  }
  // Neighbours along the outer loops, for operands that are turned over as they move.
  if (run == 1 && has_strides) {
    for (int loop = 0; loop < 2; ++loop) {
      if (strides[loop] == 1) run = static_cast<double>(over.loops[loop]);
    }
  }
  const double bytes = elements / run * rounded_up(run * element, part_.memory_block);
  step.kind = UnitStep::Kind::transfer;
  step.writes |= writes;
  step.bytes += bytes;
  const size_t pointer = operand.offset();
  step.memory_bytes += bytes * (pointer < misses_.size() ? misses_[pointer] : 1.0);
}

// What a core's queue moves at most. A cube kernel's results leave through its vector cores.
double ProgramWork::transfer_limit(bool writes) const {
  if (!writes) {
    return on_cube() ? std::min(part_.bandwidth_cube_load, part_.bandwidth_l2_read_per_core)
                     : part_.bandwidth_l2_read_per_core;
  }
  const double cores = on_cube() ? part_.vector_per_cube() : 1;
  return std::min(part_.bandwidth_vector_store * cores, part_.bandwidth_l2_write_per_core);
}

// That a vector unit would take to add up the taps of these results, and to multiply each by its
// weight where there are weights; rows that do not fill it count as what they are. Those of planes
// are added up column by column, and then columns.
double ProgramWork::window_cycles(Form form, const uint64_t* words, DType dtype,
                                  const Extents& over) const {
  Window window;
  std::memcpy(&window, extra_words(form, words), sizeof window);
  const bool weighs = weighs_windows(form);
  double terms = static_cast<double>(window.taps()) * window.channels;
  if (!weighs && window.pixel == 1) {
    const int64_t columns = int64_t{window.kernel_height} * window.stride_width;
    terms = std::min(terms, static_cast<double>(columns + window.kernel_width));
  }
  const double results = static_cast<double>(over.loops[0] * over.loops[1] * over.loops[2]);
  const double bytes = results * static_cast<double>(size_of(operand_dtype(form, dtype, 0)));
  return terms * (weighs ? 2 : 1) * bytes / part_.vector_bytes_per_cycle;
}

double ProgramWork::vector_cycles(const Head& head, const uint64_t* words, Extents over) const {
  const auto family = family_of(head);
  const FamilyInfo& info = info_of(family);
  const FormInfo& form = form_info(info.form);
  size_t element = 1;
  bool flat = info.form != Form::reduce;
  int64_t outer = over.loops[0], middle = over.loops[1], inner = over.loops[2];
  for (int k = 0; k < form.operand_count(); ++k) {
    element = std::max(element, size_of(operand_dtype(info.form, dtype_of(head), k)));
    const Operand operand = operand_of(words, k);
    if (operand.space() != Space::local) continue;
    const bool follows = (middle == 1 || operand.middle_stride == inner) &&
                         (outer == 1 || operand.outer_stride == middle * inner) &&
                         (inner == 1 || operand.inner_stride == 1);
    flat &= follows;
  }
  if (flat) {
    inner *= outer * middle;
    outer = middle = 1;
  } else if (inner == 1) {  // rows lie along the middle loop
    std::swap(inner, middle);
  }
  const double per_row =
      std::max(1.0, rounded_up(static_cast<double>(inner) * static_cast<double>(element),
                               part_.vector_bytes_per_cycle) /
                        part_.vector_bytes_per_cycle);
  return static_cast<double>(outer * middle) * per_row * part_.cycles[static_cast<size_t>(family)];
}

double ProgramWork::cube_cycles(DType dtype, Extents over) const {
  const double multiplied = static_cast<double>(blocks(over.loops[0], part_.cube_tile)) *
                            static_cast<double>(blocks(over.loops[1], part_.cube_tile)) *
                            static_cast<double>(blocks(over.loops[2], part_.cube_tile));
  if (size_of(dtype) <= 2) return multiplied;
  return multiplied * part_.cube_peak_f16 / part_.cube_peak_f32;
}

}  // namespace dvm
