#include "runtime/control.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/executor.h"
#include "runtime/loop_state.h"
#include "runtime/memory.h"
#include "runtime/repeated_turns.h"
#include "runtime/runner.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

template <typename T>
T scalar(const Tensor& tensor, const std::string& name) {
  int64_t elements = 1;
  for (const int64_t extent : tensor.shape) elements *= extent;
  if (elements != 1) {
    throw ShapeError("a condition or number of turns of " + name + " has shape " +
                     shape_text(tensor.shape) + ", which is not one element");
  }
  T value;
  std::memcpy(&value, tensor.data, sizeof value);
  return value;
}

Tensor place_like(const Tensor& tensor, const std::string& name) {
  Tensor place{tensor.dtype, tensor.shape, nullptr, allocate(bytes_of(tensor), name.c_str())};
  place.data = static_cast<std::byte*>(place.owner.get());
  return place;
}

Tensor own_copy(const Tensor& tensor, const std::string& name) {
  if (tensor.kind != ValueKind::tensor) return tensor;  // nobody changes it
  Tensor copy = place_like(tensor, name);
  std::memcpy(copy.data, tensor.data, static_cast<size_t>(bytes_of(tensor)));
  return copy;
}

// The first row of a tensor along its first axis.
Tensor first_row(const Tensor& tensor) {
  return {tensor.dtype, {tensor.shape.begin() + 1, tensor.shape.end()}, tensor.data, nullptr};
}

// By state: a turn gives it the shape that it had, whatever that is, in memory offered for it.
std::vector<char> steady_states(const ControlCall& call) {
  const Model& body = call.bodies[0].program->model();
  const size_t before = call.told(), said = call.said();
  std::vector<char> steady(call.states);
  for (size_t i = 0; i < steady.size(); i++) {
    const ModelValue& given = body.values[body.inputs[before + i]];
    const ModelValue& made = body.values[body.outputs[said + i]];
    // What the host or the vendor library makes comes with memory of its own.
    const bool is_placed = made.storage != Storage::vendor;
    steady[i] = is_placed && !given.opaque && !made.opaque && given.shape == made.shape;
  }
  return steady;
}

}  // namespace

ControlRunner::ControlRunner(const Model& around, const ControlCall& call, OutputPool& pool,
                             std::shared_ptr<SharedDevice> device)
    : around_(around), call_(call), pool_(pool), device_(std::move(device)) {
  for (const Body& body : call.bodies) bodies_.push_back(body.program->make_runner(device_));
  if (call.branches) return;
  steady_ = steady_states(call);
  growing_ = growing_states(call.bodies[0].program->model(), call.states, call.told(), call.said());
  const bool repeats = bodies_[0]->may_repeat() && std::ranges::all_of(steady_, std::identity{});
  if (repeats) shares_.emplace(call);
  may_be_alone_ = !repeats && bodies_[0]->may_repeat() && bodies_[0]->cores() > 1 &&
                  bodies_[0]->target().unified_memory;  // no programs that go together
}

ControlRunner::~ControlRunner() = default;

void ControlRunner::forget() {
  for (const auto& body : bodies_) body->forget();
  for (const auto& [_, runner] : alone_) runner->forget();
}

std::vector<Tensor> ControlRunner::run(std::span<const Tensor> inputs, const RunContext& run) {
  std::vector<Tensor> results = call_.branches ? take_branch(inputs, run) : take_turns(inputs, run);
  held_bytes_ = 0;
  for (const auto& body : bodies_) held_bytes_ += body->statistics().arena_bytes;
  for (const auto& [_, runner] : alone_) held_bytes_ += runner->statistics().arena_bytes;
  return results;
}

std::vector<Tensor> ControlRunner::take_branch(std::span<const Tensor> inputs,
                                               const RunContext& run) {
  const size_t taken = scalar<bool>(inputs[0], call_.name) ? 0 : 1;
  return run_body(taken, inputs.subspan(1), {}, run);
}

RunRequest ControlRunner::request_for(size_t body, const RunContext& run) {
  symbols_.clear();
  for (const auto& [symbol, slot] : call_.bodies[body].dims) {
    if (run.dims.ok(slot)) symbols_.emplace_back(symbol, run.dims.values()[slot]);
  }
  return {run.profiler != nullptr, run.request.interruption, run.request.context, symbols_};
}

std::vector<Tensor> ControlRunner::run_body(size_t body, std::span<const Tensor> inputs,
                                            std::span<const Tensor> given, const RunContext& run,
                                            const LoopTurn& turn) {
  refuse_interrupted(run.request);
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  Runner& runner = runner_of(body, inputs, run, turn.number);
  RunRequest request = request_for(body, run);
  request.growing = turn.growing;
  request.spent = turn.spent;
  std::vector<Tensor> results = runner.run(inputs, given, request);
  add_statistics(body, runner, run, start);
  return results;
}

// Programs for one core where a turn is predicted to be over before cores have met, which is asked
// now and then: results depend on sizes, not on what was asked before.
Runner& ControlRunner::runner_of(size_t body, std::span<const Tensor> inputs, const RunContext& run,
                                 int64_t turn) {
  Runner& all = *bodies_[body];
  if (body != 0 || !may_be_alone_) return all;
  if ((turn & (turn - 1)) == 0) alone_at_hand_ = all.is_short_turn(inputs, request_for(0, run));
  if (!alone_at_hand_) return all;
  std::unique_ptr<Runner>& one = alone_[{nullptr, 0}];
  if (one == nullptr) one = call_.bodies[0].program->make_runner(device_, Cores::one);
  return *one;
}

// Of the run of a body that began then.
void ControlRunner::add_statistics(size_t body, const Runner& runner, const RunContext& run,
                                   int64_t start_ns) const {
  const RunStatistics& part = runner.statistics();
  RunStatistics& whole = run.statistics;
  whole.compile_ns += part.compile_ns;
  whole.max_compile_ns = std::max(whole.max_compile_ns, part.max_compile_ns);
  whole.kernels_compiled += part.kernels_compiled;
  whole.kernels_launched += part.kernels_launched;
  whole.fallbacks += part.fallbacks;
  if (part.profile != nullptr) {
    run.profiler->include(*part.profile, start_ns, call_.inside(body));
  }
}

// What the body gives for arrays of the first row's shape that do not fit is no input's fault.
std::vector<Tensor> ControlRunner::run_turn(size_t body, std::span<const Tensor> operands,
                                            std::span<const Tensor> given, const RunContext& run,
                                            const LoopTurn& turn) {
  try {
    return run_body(body, operands, given, run, turn);
  } catch (const InputError& error) {
    throw ShapeError("a turn of " + call_.name + " is unlike those before: " + error.what());
  }
}

int64_t ControlRunner::most_turns(std::span<const Tensor> inputs) const {
  if (!call_.counted) {
    const size_t first = call_.states;
    const int64_t turns = inputs[first].shape.at(0);
    for (size_t i = 1; i < call_.scanned.size(); i++) {
      if (inputs[first + i].shape.at(0) == turns) continue;
      throw ShapeError(call_.name + " scans " + std::to_string(turns) + " rows of one tensor and " +
                       std::to_string(inputs[first + i].shape.at(0)) + " of another");
    }
    return turns;
  }
  if (call_.most_turns < 0) return kUnknown;
  return scalar<int64_t>(inputs[static_cast<size_t>(call_.most_turns)], call_.name);
}

std::vector<Tensor> ControlRunner::take_turns(std::span<const Tensor> inputs,
                                              const RunContext& run) {
  LoopState loop;
  begin(loop, inputs);
  if (call_.kept > 0 && !loop.is_over()) run_prelude(loop, run);
  while (!loop.is_over()) {
    if (loop.turn > 0 && shares_) {
      repeat_turns(loop, run);
    } else {
      take_turn(loop, run);
    }
  }
  return results_of(loop, run);
}

// The loop stays where it is: the body reads its turn and condition there.
void ControlRunner::begin(LoopState& loop, std::span<const Tensor> inputs) {
  const size_t own = call_.own_inputs(), states = call_.states, before = call_.told();
  loop.scanned = inputs.subspan(own + states, call_.scanned.size());
  loop.most = most_turns(inputs);
  loop.goes_on =
      call_.goes_on < 0 || scalar<bool>(inputs[static_cast<size_t>(call_.goes_on)], call_.name);
  loop.operands.resize(before);
  loop.operands.insert(loop.operands.end(), inputs.begin() + static_cast<ptrdiff_t>(own),
                       inputs.end());
  if (call_.counted) {  // in one element each, whatever rank the body gives them
    const Model& body = call_.bodies[0].program->model();
    const auto one = [&](size_t input) {
      return std::vector<int64_t>(body.values[body.inputs[input]].shape.size(), 1);
    };
    loop.operands[0] = {DType::i64, one(0), reinterpret_cast<std::byte*>(&loop.turn), nullptr};
    loop.operands[1] = {DType::b8, one(1), reinterpret_cast<std::byte*>(&loop.goes_on), nullptr};
  }
  for (size_t i = 0; i < loop.scanned.size() && loop.most > 0; i++) {
    loop.operands[before + states + i] = first_row(loop.scanned[i]);
  }
  loop.spare.resize(states);
  loop.spent.resize(before);
  loop.spent.resize(before + states, 1);
  for (const GrowingState& state : growing_) loop.growing.emplace_back().state = &state;
  loop.rows.resize(call_.collected.size());
  for (size_t i = 0; i < loop.rows.size(); i++) {
    loop.rows[i].backward = call_.collected[i] != 0;
    loop.rows[i].pool = &pool_;
  }
  loop.given.resize(call_.said() + states + loop.rows.size());
}

// What turns read that none of them changes.
void ControlRunner::run_prelude(LoopState& loop, const RunContext& run) {
  const std::span<const Tensor> around(loop.operands);
  std::vector<Tensor> kept =
      run_turn(call_.turn_bodies(), around.subspan(call_.captures()), {}, run);
  std::ranges::move(kept, std::back_inserter(loop.operands));
}

// Of a loop that is over: the states that its last turn left, and what it collected.
std::vector<Tensor> ControlRunner::results_of(LoopState& loop, const RunContext& run) const {
  const size_t states = call_.states;
  std::vector<Tensor> results;
  for (const GrowingPlace& place : loop.growing) {
    if (place.apart == 0) continue;
    Tensor& state = loop.operands[call_.told() + place.state->index];
    state = place.closed(state, pool_, call_.name.c_str());
  }
  for (size_t i = 0; i < states; i++) {
    Tensor& state = loop.operands[call_.told() + i];
    results.push_back(loop.turn > 0 ? std::move(state) : own_copy(state, call_.name));
  }
  for (size_t i = 0; i < loop.rows.size(); i++) {
    CollectedRows& rows = loop.rows[i];
    if (loop.turn == 0) {
      const DType dtype = around_.values[call_.outputs[states + i]].dtype;
      rows.begin_empty(dtype, empty_row(i, run), call_.name);
    }
    results.push_back(rows.finish(loop.turn));
  }
  return results;
}

// Of a row that never came: extents are what the model says, as far as it knows them without that
// row, others 0, as in onnxruntime.
std::vector<int64_t> ControlRunner::empty_row(size_t row, const RunContext& run) const {
  const ModelValue& collected = around_.values[call_.outputs[call_.states + row]];
  std::vector<int64_t> shape;
  for (size_t axis = 1; axis < collected.shape.size(); axis++) {
    const DimSlot slot = collected.shape[axis];
    shape.push_back(run.dims.ok(slot) ? run.dims.values()[slot] : 0);
  }
  return shape;
}

// One turn as a run of its own.
void ControlRunner::take_turn(LoopState& loop, const RunContext& run) {
  const size_t states = call_.states;
  const size_t before = call_.told(), said = call_.said();
  for (size_t i = 0; i < loop.scanned.size(); i++) {
    Tensor& part = loop.operands[before + states + i];
    part.data = loop.row_of(i, loop.turn, call_.scanned[i] != 0, bytes_of(part));
  }
  for (size_t i = 0; i < states; i++) loop.given[said + i] = std::move(loop.spare[i]);
  for (size_t i = 0; loop.turn > 0 && i < loop.rows.size(); i++) {
    loop.rows[i].grow(loop.turn, loop.most, !call_.counted, call_.name);
    loop.rows[i].put_place(loop.turn, loop.given[said + states + i]);
  }
  const size_t body = loop.turn == 0 ? call_.turn_bodies() - 1 : 0;
  LoopTurn turn{loop.growing, loop.spent, loop.turn};
  if (body != 0) turn.growing = {};
  std::vector<Tensor> results = run_turn(body, loop.operands, loop.given, run, turn);
  if (call_.counted) loop.goes_on = scalar<bool>(results[0], call_.name);
  for (size_t i = 0; i < states; i++) {
    Tensor& state = loop.operands[before + i];
    const bool kept = steady_[i] != 0 && state.owner.use_count() == 1;
    loop.spare[i] = kept ? std::move(state) : Tensor{};
    state = std::move(results[said + i]);
  }
  for (size_t i = 0; loop.turn == 0 && i < loop.rows.size(); i++) {
    loop.rows[i].begin(results[said + states + i], loop.most, !call_.counted, call_.name);
  }
  loop.turn++;
}

// Behind the first turn, all of which are like it: as many as there is memory for.
void ControlRunner::repeat_turns(LoopState& loop, const RunContext& run) {
  refuse_interrupted(run.request);
  int64_t end = loop.most;
  for (CollectedRows& rows : loop.rows) {
    rows.grow(loop.turn, loop.most, !call_.counted, call_.name);
    end = std::min(end, rows.capacity);
  }
  for (size_t i = 0; i < loop.spare.size(); i++) {
    const Tensor& state = loop.operands[call_.told() + i];
    if (loop.spare[i].absent()) loop.spare[i] = place_like(state, call_.name);
  }
  const int64_t strands = shares_->strands_of(loop);
  const TurnShares::Division division =
      shares_->divide(loop, strands, *bodies_[0], request_for(0, run));
  if (division.shares > 0) return repeat_apart(loop, end, strands, division, run);
  RepeatedTurns turns(call_, *shares_, loop, end, {}, run.request.interruption);
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  bodies_[0]->repeat(loop.operands, turns, request_for(0, run));
  turns.finish();
  add_statistics(0, *bodies_[0], run, start);
}

// Each share, of each chain, is seen through by a core.
void ControlRunner::repeat_apart(LoopState& loop, int64_t end, int64_t strands,
                                 const TurnShares::Division& division, const RunContext& run) {
  std::vector<const Chain*> chains{nullptr};
  if (division.by_chain) {
    chains.clear();
    for (const Chain& chain : shares_->chains()) chains.push_back(&chain);
  }
  const int64_t shares = division.shares;
  std::deque<RepeatedTurns> turns;
  std::vector<Runner::Part> parts;
  for (const Chain* chain : chains) {
    for (int64_t share = 0; share < shares; share++) {
      RepeatedTurns::Range range;
      if (shares > 1) {
        const int64_t first = strands * share / shares, next = strands * (share + 1) / shares;
        range = {first, next - first, strands};
      }
      turns.emplace_back(call_, *shares_, loop, end, range, nullptr);
      turns.back().fetch_rows_ahead(chain);
      std::unique_ptr<Runner>& runner = alone_[{chain, share}];
      if (runner == nullptr)
        runner = call_.bodies[0].program->make_runner(device_, Cores::one, chain);
      Runner::Part& part =
          parts.emplace_back(Runner::Part{runner.get(), loop.operands, &turns.back()});
      for (size_t i = 0; shares > 1 && i < part.inputs.size(); i++) {
        const int axis = shares_->axis_of(i);
        if (axis >= 0) part.inputs[i].shape[static_cast<size_t>(axis)] = range.count;
      }
    }
  }
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  Runner::repeat_apart(parts, request_for(0, run));
  refuse_interrupted(run.request);
  for (size_t i = 0; i < turns.size(); i++) {
    turns[i].hand_over_states(chains[i / static_cast<size_t>(shares)]);
  }
  turns.front().finish();
  for (const Runner::Part& part : parts) add_statistics(0, *part.runner, run, start);
}

}  // namespace dvm
