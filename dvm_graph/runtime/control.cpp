#include "runtime/control.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "kernels/numbers.h"
#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/executor.h"
#include "runtime/memory.h"
#include "runtime/runner.h"
#include "runtime/value_sizes.h"

namespace dvm {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
// Rows whose number nobody knows begin with memory for this many bytes, or for one row.
constexpr int64_t kFirstBytes = int64_t{1} << 14;
// No core fetches more than this by itself behind what is read.
constexpr size_t kFetchedAhead = 4096;

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

// By state: a turn gives it the shape that it had, whatever that is.
std::vector<char> steady_states(const ControlCall& call) {
  const Model& body = call.bodies[0].program->model();
  const size_t before = call.told(), said = call.counted ? 1 : 0;
  std::vector<char> steady(call.states);
  for (size_t i = 0; i < steady.size(); i++) {
    const ModelValue& given = body.values[body.inputs[before + i]];
    const ModelValue& made = body.values[body.outputs[said + i]];
    steady[i] = !given.opaque && !made.opaque && given.shape == made.shape;
  }
  return steady;
}

}  // namespace

// A collected tensor while its rows come.
struct ControlRunner::Rows {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // of a row
  int64_t row_bytes = 0, capacity = 0;
  std::shared_ptr<void> memory;
  bool backward = false;
  OutputPool* pool = nullptr;

  std::byte* at(int64_t row) const {
    const int64_t place = backward ? capacity - 1 - row : row;
    return static_cast<std::byte*>(memory.get()) + place * row_bytes;
  }

  // Room for one more row behind `count`; of `most` if all of them will come, else of as many at
  // most. Room that is outgrown is no result: the pool would keep each size of it.
  void grow(int64_t count, int64_t most, bool all, const std::string& name) {
    if (count < capacity) return;
    const int64_t first = std::max<int64_t>(kFirstBytes / std::max<int64_t>(row_bytes, 1), 1);
    Rows larger = *this;
    larger.capacity = all ? most : std::min(most, std::max(first, count + count / 2 + 1));
    int64_t bytes = 0;
    if (__builtin_mul_overflow(larger.capacity, row_bytes, &bytes)) {
      throw OutOfMemoryError("what " + name + " collects needs more than 2^63 bytes");
    }
    const bool last = larger.capacity == most;
    larger.memory = last ? pool->take(bytes, name.c_str()) : allocate(bytes, name.c_str());
    const auto filled = static_cast<size_t>(count * row_bytes);
    if (filled > 0) {
      const int64_t first_row = backward ? count - 1 : 0;
      std::memcpy(larger.at(first_row), at(first_row), filled);
    }
    *this = std::move(larger);
  }

  // The first row says what the others are like.
  void begin(const Tensor& row, int64_t most, bool all, const std::string& name) {
    dtype = row.dtype;
    shape = row.shape;
    row_bytes = bytes_of(row);
    grow(0, most, all, name);
    std::memcpy(at(0), row.data, static_cast<size_t>(row_bytes));
  }

  // No row came.
  void begin_empty(DType of, std::vector<int64_t> row_shape, const std::string& name) {
    dtype = of;
    shape = std::move(row_shape);
    memory = allocate(0, name.c_str());
  }

  // Where the row is to be stored.
  void put_place(int64_t row, Tensor& place) const {
    if (place.owner != memory) place = {dtype, shape, nullptr, memory};
    place.data = at(row);
  }

  Tensor finish(int64_t count) {
    std::vector<int64_t> whole{count};
    whole.insert(whole.end(), shape.begin(), shape.end());
    std::byte* const data =
        count == 0 ? static_cast<std::byte*>(memory.get()) : at(backward ? count - 1 : 0);
    return {dtype, std::move(whole), data, std::move(memory)};
  }
};

// Turns while they go on.
struct ControlRunner::Loop {
  int64_t turn = 0, most = 0;
  bool goes_on = true;
  std::span<const Tensor> scanned;
  std::vector<Tensor> operands;  // of the body
  std::vector<Tensor> spare;     // by state: the other one of its two places
  std::vector<Rows> rows;
  std::vector<Tensor> given;  // memory for results of the body

  bool is_over() const { return turn >= most || !goes_on; }
  std::byte* row_of(size_t scan, int64_t at, bool backward, int64_t row_bytes) const {
    return scanned[scan].data + (backward ? most - 1 - at : at) * row_bytes;
  }
};

// Turns behind the first, as far as there is memory for rows, of all strands or of some of them.
class alignas(kLinePair) ControlRunner::Repeated final : public BodyTurns {
 public:
  // The strands [first, first + count) of `all`.
  struct Range {
    int64_t first = 0, count = 1, all = 1;
  };

  Repeated(const ControlRunner& runner, Loop& loop, int64_t end, const Range& range,
           Interruption* ends)
      : call_(runner.call_), loop_(loop), end_(end), range_(range), interruption_(ends) {
    for (size_t i = 0; i < loop.operands.size(); i++) {
      const Tensor& operand = loop.operands[i];
      operand_bytes_.push_back(bytes_of(operand));
      const bool stranded = range.all > 1 && runner.strand_axes_[i] >= 0;
      inputs_.push_back(operand.data + (stranded ? skipped(operand_bytes_[i]) : 0));
      skipped_.push_back(inputs_[i] - operand.data);
    }
    for (size_t i = 0; i < loop.spare.size(); i++) spare_.push_back(loop.spare[i].data);
    if (range.all > 1) keep_own_states();
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  bool next(std::span<std::byte*> inputs, std::span<std::byte*> outputs) noexcept override {
    if (std::exchange(begun_, true)) end_turn();
    if (turn_ >= end_ || !goes_on_) return false;
    if (interruption_ != nullptr && interruption_->requested()) return false;
    const size_t said = call_.counted ? 1 : 0, states = spare_.size();
    const size_t first_row = call_.told() + states;
    std::ranges::copy(inputs_, inputs.begin());
    for (size_t i = 0; i < call_.scanned.size(); i++) {
      const size_t at = first_row + i;
      inputs[at] = loop_.row_of(i, turn_, call_.scanned[i] != 0, operand_bytes_[at]) + skipped_[at];
    }
    if (call_.counted) outputs[0] = reinterpret_cast<std::byte*>(&goes_on_);
    for (size_t i = 0; i < states; i++) outputs[said + i] = spare_[i];
    for (size_t i = 0; i < loop_.rows.size(); i++) {
      const Rows& rows = loop_.rows[i];
      outputs[said + states + i] = rows.at(turn_) + skipped(rows.row_bytes);
    }
    return true;
  }

  // Of the strands that took part by themselves, what a chain, if any, has left of their states.
  void hand_over_states(const Chain* chain) const {
    const size_t said = call_.counted ? 1 : 0;
    for (size_t i = 0; i < spare_.size() && !own_states_.empty(); i++) {
      if (chain != nullptr && chain->outputs[said + i] == 0) continue;
      const size_t at = call_.told() + i;
      const Tensor& state = turns_taken_are_odd() ? loop_.spare[i] : loop_.operands[at];
      std::memcpy(state.data + skipped_[at], inputs_[at], share_of(operand_bytes_[at]));
    }
  }

  // Takes the loop to where these turns, and those of all other strands, have ended.
  void finish() const {
    for (size_t i = 0; i < spare_.size() && turns_taken_are_odd(); i++) {
      std::swap(loop_.operands[call_.told() + i].data, loop_.spare[i].data);
      std::swap(loop_.operands[call_.told() + i].owner, loop_.spare[i].owner);
    }
    loop_.turn = turn_;
    loop_.goes_on = goes_on_;
  }

 private:
  int64_t skipped(int64_t bytes) const { return bytes / range_.all * range_.first; }
  size_t share_of(int64_t bytes) const {
    return static_cast<size_t>(bytes / range_.all * range_.count);
  }
  bool turns_taken_are_odd() const { return (turn_ - first_) % 2 != 0; }
  // Side by side, what one core reads and another writes would be a line apart, and fetched along
  // with what is read before it.
  void keep_own_states() {
    size_t bytes = kFetchedAhead;
    const auto room = [&](size_t i) {
      return ceil_div(share_of(operand_bytes_[call_.told() + i]), kLinePair) * kLinePair;
    };
    for (size_t i = 0; i < spare_.size(); i++) bytes += 2 * room(i);
    require_memory(static_cast<int64_t>(bytes), ("states of " + call_.name).c_str());
    own_states_.resize(bytes);
    std::byte* place = own_states_.data();
    for (size_t i = 0; i < spare_.size(); i++) {
      const size_t at = call_.told() + i;
      std::memcpy(place, inputs_[at], share_of(operand_bytes_[at]));
      inputs_[at] = std::exchange(place, place + room(i));
      spare_[i] = std::exchange(place, place + room(i));
    }
  }
  void end_turn() {
    turn_++;
    if (call_.counted) loop_.turn = turn_;  // the body reads it there
    for (size_t i = 0; i < spare_.size(); i++) std::swap(inputs_[call_.told() + i], spare_[i]);
  }

  const ControlCall& call_;
  Loop& loop_;
  const int64_t first_ = loop_.turn, end_;
  const Range range_;
  Interruption* const interruption_;
  int64_t turn_ = first_;
  bool goes_on_ = true;  // so says the body
  std::vector<int64_t> operand_bytes_, skipped_;
  OwnLines<std::byte*> inputs_, spare_;
  OwnLines<std::byte> own_states_;  // two places of each; empty: they are the loop's
  bool begun_ = false;
};

ControlRunner::ControlRunner(const Model& around, const ControlCall& call, OutputPool& pool)
    : around_(around), call_(call), pool_(pool) {
  for (const Body& body : call.bodies) bodies_.push_back(body.program->make_runner());
  if (call.branches) return;
  steady_ = steady_states(call);
  repeats_ = bodies_[0]->may_repeat() && std::ranges::all_of(steady_, std::identity{});
  if (!repeats_) return;
  chains_ = chains_of(call.bodies[0].program->model(), call);
  if (call.strands == kNoSlot) return;
  const Model& body = call.bodies[0].program->model();
  const auto axes_of = [&](const std::vector<uint32_t>& values, size_t first) {
    std::vector<int> axes;
    for (size_t i = first; i < values.size(); i++) {
      const std::vector<DimSlot>& shape = body.values[values[i]].shape;
      const auto at = std::ranges::find(shape, call.strands);
      axes.push_back(at == shape.end() ? -1 : static_cast<int>(at - shape.begin()));
    }
    return axes;
  };
  strand_axes_ = axes_of(body.inputs, 0);
  row_axes_ = axes_of(body.outputs, call.states);
  shared_.push_back(shared_by(nullptr));
  for (const Chain& chain : chains_) shared_.push_back(shared_by(&chain));
  const auto has = [](int axis) { return axis >= 0; };
  stranded_ = std::all_of(strand_axes_.begin(), strand_axes_.begin() + call.states, has) &&
              std::ranges::all_of(row_axes_, has);
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
                                            std::span<const Tensor> given, const RunContext& run) {
  refuse_interrupted(run.request);
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  Runner& runner = *bodies_[body];
  std::vector<Tensor> results = runner.run(inputs, given, request_for(body, run));
  add_statistics(body, runner, run, start);
  return results;
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
                                            std::span<const Tensor> given, const RunContext& run) {
  try {
    return run_body(body, operands, given, run);
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
  const size_t own = call_.own_inputs(), states = call_.states;
  const size_t before = call_.told(), said = call_.counted ? 1 : 0;
  const std::span<const Tensor> scanned = inputs.subspan(own + states, call_.scanned.size());
  const int64_t most = most_turns(inputs);
  bool goes_on =
      call_.goes_on < 0 || scalar<bool>(inputs[static_cast<size_t>(call_.goes_on)], call_.name);

  Loop loop;
  loop.most = most;
  loop.goes_on = goes_on;
  loop.scanned = scanned;
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
  loop.rows.resize(call_.collected.size());
  for (size_t i = 0; i < loop.rows.size(); i++) {
    loop.rows[i].backward = call_.collected[i] != 0;
    loop.rows[i].pool = &pool_;
  }
  loop.given.resize(said + states + loop.rows.size());
  for (size_t i = 0; i < scanned.size() && most > 0; i++) {
    loop.operands[before + states + i] = first_row(scanned[i]);
  }
  loop.spare.resize(states);

  while (!loop.is_over()) {
    if (loop.turn > 0 && repeats_) {
      repeat_turns(loop, run);
    } else {
      take_turn(loop, run);
    }
  }

  std::vector<Tensor> results;
  for (size_t i = 0; i < states; i++) {
    Tensor& state = loop.operands[before + i];
    results.push_back(loop.turn > 0 ? std::move(state) : own_copy(state, call_.name));
  }
  for (size_t i = 0; i < loop.rows.size(); i++) {
    Rows& rows = loop.rows[i];
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
void ControlRunner::take_turn(Loop& loop, const RunContext& run) {
  const size_t states = call_.states;
  const size_t before = call_.told(), said = call_.counted ? 1 : 0;
  for (size_t i = 0; i < loop.scanned.size(); i++) {
    Tensor& part = loop.operands[before + states + i];
    part.data = loop.row_of(i, loop.turn, call_.scanned[i] != 0, bytes_of(part));
  }
  for (size_t i = 0; i < states; i++) loop.given[said + i] = std::move(loop.spare[i]);
  for (size_t i = 0; loop.turn > 0 && i < loop.rows.size(); i++) {
    loop.rows[i].grow(loop.turn, loop.most, !call_.counted, call_.name);
    loop.rows[i].put_place(loop.turn, loop.given[said + states + i]);
  }
  const size_t body = loop.turn == 0 ? bodies_.size() - 1 : 0;
  std::vector<Tensor> results = run_turn(body, loop.operands, loop.given, run);
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
void ControlRunner::repeat_turns(Loop& loop, const RunContext& run) {
  refuse_interrupted(run.request);
  int64_t end = loop.most;
  for (Rows& rows : loop.rows) {
    rows.grow(loop.turn, loop.most, !call_.counted, call_.name);
    end = std::min(end, rows.capacity);
  }
  for (size_t i = 0; i < loop.spare.size(); i++) {
    const Tensor& state = loop.operands[call_.told() + i];
    if (loop.spare[i].absent()) loop.spare[i] = place_like(state, call_.name);
  }
  const int64_t strands = strands_of(loop);
  const Division division = divide(loop, strands, run);
  if (division.shares > 0) return repeat_apart(loop, end, strands, division, run);
  Repeated turns(*this, loop, end, {}, run.request.interruption);
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  bodies_[0]->repeat(loop.operands, turns, request_for(0, run));
  turns.finish();
  add_statistics(0, *bodies_[0], run, start);
}

// That lie one after the other in all that has some; 1 where they are not known.
int64_t ControlRunner::strands_of(const Loop& loop) const {
  if (!stranded_) return 1;
  int64_t strands = 0;
  const auto lie_in = [&](const std::vector<int64_t>& shape, int axis) {
    if (axis < 0) return true;
    const auto at = shape.begin() + axis;
    if (strands == 0) strands = *at;
    return *at == strands && std::all_of(shape.begin(), at, [](int64_t e) { return e == 1; });
  };
  for (size_t i = 0; i < loop.operands.size(); i++) {
    if (!lie_in(loop.operands[i].shape, strand_axes_[i])) return 1;
  }
  for (size_t i = 0; i < loop.rows.size(); i++) {
    if (!lie_in(loop.rows[i].shape, row_axes_[i])) return 1;
  }
  return strands;
}

// By all calls of the body, or those of a chain.
ControlRunner::Shared ControlRunner::shared_by(const Chain* chain) const {
  const Model& body = call_.bodies[0].program->model();
  std::vector<char> read(body.values.size(), false);
  for (size_t call = 0; call < body.calls.size(); call++) {
    if (chain != nullptr && chain->calls[call] == 0) continue;
    for (const Access& access : body.kernels[body.calls[call].kernel].plan.accesses) {
      read[static_cast<size_t>(access.value)] = true;
    }
  }
  Shared shared;
  for (size_t value = 0; value < read.size(); value++) {
    const Tensor& contents = body.values[value].contents;
    if (read[value] != 0 && contents.data != nullptr) shared.constant_bytes += bytes_of(contents);
  }
  for (size_t i = 0; i < body.inputs.size(); i++) {
    if (strand_axes_[i] < 0 && read[body.inputs[i]] != 0) shared.operands.push_back(i);
  }
  return shared;
}

// In which a core reads what strands share, of the body (0) or a chain: each core that takes some
// of them by itself does so.
double ControlRunner::reading_seconds(const Loop& loop, size_t part) const {
  const Target& target = bodies_[0]->target();
  int64_t bytes = shared_[part].constant_bytes;
  for (const size_t operand : shared_[part].operands) bytes += bytes_of(loop.operands[operand]);
  const Costs& costs = target.costs;
  const double rate = bytes <= target.local_bytes ? costs.private_read : costs.shared_read;
  return static_cast<double>(bytes) / rate;
}

// What is predicted to be over first.
ControlRunner::Division ControlRunner::divide(const Loop& loop, int64_t strands,
                                              const RunContext& run) {
  const int64_t cores = bodies_[0]->cores();
  if (cores == 1) return {};
  const std::span<const double> seconds =
      bodies_[0]->predict_turn(loop.operands, request_for(0, run), chains_);
  const double one = seconds[0], evenly = one / static_cast<double>(cores);
  // Strands of the body (0) or a chain by themselves; their cores read beside the multiply-adds.
  const auto apart = [&](size_t part, int64_t shares) {
    if (shares == 1) return seconds[part];
    const auto longest = static_cast<double>(ceil_div(strands, shares));
    return std::max(seconds[part] * longest / static_cast<double>(strands),
                    reading_seconds(loop, part));
  };
  const double barriers = bodies_[0]->barriers_of_turn();
  Division best;
  double least = evenly + barriers * static_cast<double>(cores - 1);
  const auto consider = [&](const Division& division, double takes) {
    if (takes > least) return;
    least = takes;
    best = division;
  };
  // Whether sharing turns gains is tried (npu/host/turns.cpp) where it might; more cores take
  // longer to meet.
  if (one <= evenly + barriers * std::log2(cores)) consider({false, 1}, one);
  const int64_t shares = std::min(cores, strands);
  if (shares > 1) consider({false, shares}, apart(0, shares));
  if (chains_.empty()) return best;
  const int64_t most = std::min(cores / static_cast<int64_t>(chains_.size()), strands);
  for (const int64_t of_chain : {int64_t{1}, std::max<int64_t>(most, 1)}) {
    double takes = evenly;
    for (size_t part = 1; part <= chains_.size(); part++) {
      takes = std::max(takes, apart(part, of_chain));
    }
    consider({true, of_chain}, takes);
  }
  return best;
}

// Each share, of each chain, is seen through by a core.
void ControlRunner::repeat_apart(Loop& loop, int64_t end, int64_t strands, const Division& division,
                                 const RunContext& run) {
  std::vector<const Chain*> chains{nullptr};
  if (division.by_chain) {
    chains.clear();
    for (const Chain& chain : chains_) chains.push_back(&chain);
  }
  const int64_t shares = division.shares;
  std::deque<Repeated> turns;
  std::vector<Runner::Part> parts;
  for (const Chain* chain : chains) {
    for (int64_t share = 0; share < shares; share++) {
      Repeated::Range range;
      if (shares > 1) {
        const int64_t first = strands * share / shares, next = strands * (share + 1) / shares;
        range = {first, next - first, strands};
      }
      turns.emplace_back(*this, loop, end, range, nullptr);
      std::unique_ptr<Runner>& runner = alone_[{chain, share}];
      if (runner == nullptr) runner = call_.bodies[0].program->make_runner(Cores::one, chain);
      Runner::Part& part =
          parts.emplace_back(Runner::Part{runner.get(), loop.operands, &turns.back()});
      for (size_t i = 0; shares > 1 && i < part.inputs.size(); i++) {
        if (strand_axes_[i] < 0) continue;
        part.inputs[i].shape[static_cast<size_t>(strand_axes_[i])] = range.count;
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
