#include "runtime/control.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

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

Tensor own_copy(const Tensor& tensor, const std::string& name) {
  Tensor copy{tensor.dtype, tensor.shape, nullptr, allocate(bytes_of(tensor), name.c_str())};
  copy.data = static_cast<std::byte*>(copy.owner.get());
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
  const size_t before = call.counted ? 2 : 0, said = call.counted ? 1 : 0;
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

  std::byte* at(int64_t row) const {
    const int64_t place = backward ? capacity - 1 - row : row;
    return static_cast<std::byte*>(memory.get()) + place * row_bytes;
  }

  // Room for one more row behind `count`; of `most` if all of them will come, else of as many at
  // most.
  void grow(int64_t count, int64_t most, bool all, const std::string& name) {
    if (count < capacity) return;
    const int64_t first = std::max<int64_t>(kFirstBytes / std::max<int64_t>(row_bytes, 1), 1);
    Rows larger = *this;
    larger.capacity = all ? most : std::min(most, std::max(first, count + count / 2 + 1));
    int64_t bytes = 0;
    if (__builtin_mul_overflow(larger.capacity, row_bytes, &bytes)) {
      throw OutOfMemoryError("what " + name + " collects needs more than 2^63 bytes");
    }
    larger.memory = allocate(bytes, name.c_str());
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

  // No row came: as in onnxruntime, extents that hang on no run are what they are, others 0.
  void begin_empty(const Model& body, size_t output, const std::string& name) {
    const ModelValue& row = body.values[body.outputs[output]];
    dtype = row.dtype;
    for (const DimSlot slot : row.shape) {
      const DimInstruction& dim = body.dims.instructions[static_cast<size_t>(slot)];
      shape.push_back(dim.op == DimOp::constant ? dim.a : 0);
    }
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

ControlRunner::ControlRunner(const ControlCall& call) : call_(call) {
  if (!call.branches) steady_ = steady_states(call);
  for (const Body& body : call.bodies) bodies_.push_back(body.program->make_runner());
}

ControlRunner::~ControlRunner() = default;

void ControlRunner::forget() {
  for (const auto& body : bodies_) body->forget();
}

std::vector<Tensor> ControlRunner::run(std::span<const Tensor> inputs, const RunContext& run) {
  std::vector<Tensor> results = call_.branches ? take_branch(inputs, run) : take_turns(inputs, run);
  held_bytes_ = 0;
  for (const auto& body : bodies_) held_bytes_ += body->statistics().arena_bytes;
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
  return {false, run.request.interruption, run.request.context, symbols_};
}

std::vector<Tensor> ControlRunner::run_body(size_t body, std::span<const Tensor> inputs,
                                            std::span<const Tensor> given, const RunContext& run) {
  refuse_interrupted(run.request);
  Runner& runner = *bodies_[body];
  std::vector<Tensor> results = runner.run(inputs, given, request_for(body, run));
  const RunStatistics& part = runner.statistics();
  RunStatistics& whole = run.statistics;
  whole.compile_ns += part.compile_ns;
  whole.max_compile_ns = std::max(whole.max_compile_ns, part.max_compile_ns);
  whole.kernels_compiled += part.kernels_compiled;
  whole.kernels_launched += part.kernels_launched;
  whole.fallbacks += part.fallbacks;
  return results;
}

// What the body gives for arrays of the first row's shape that do not fit is no input's fault.
std::vector<Tensor> ControlRunner::run_turn(std::span<const Tensor> operands,
                                            std::span<const Tensor> given, const RunContext& run) {
  try {
    return run_body(0, operands, given, run);
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
  const size_t own = (call_.most_turns >= 0) + (call_.goes_on >= 0), states = call_.states;
  const size_t before = call_.counted ? 2 : 0, said = call_.counted ? 1 : 0;
  const std::span<const Tensor> scanned = inputs.subspan(own + states, call_.scanned.size());
  const int64_t most = most_turns(inputs);
  bool goes_on =
      call_.goes_on < 0 || scalar<bool>(inputs[static_cast<size_t>(call_.goes_on)], call_.name);

  int64_t turn = 0;
  std::vector<Tensor> operands(before);
  operands.insert(operands.end(), inputs.begin() + static_cast<ptrdiff_t>(own), inputs.end());
  if (call_.counted) {  // in one element each, whatever rank the body gives them
    const Model& body = call_.bodies[0].program->model();
    const auto one = [&](size_t input) {
      return std::vector<int64_t>(body.values[body.inputs[input]].shape.size(), 1);
    };
    operands[0] = {DType::i64, one(0), reinterpret_cast<std::byte*>(&turn), nullptr};
    operands[1] = {DType::b8, one(1), reinterpret_cast<std::byte*>(&goes_on), nullptr};
  }
  std::vector<Rows> rows(call_.collected.size());
  for (size_t i = 0; i < rows.size(); i++) rows[i].backward = call_.collected[i] != 0;
  std::vector<Tensor> given(said + states + rows.size());

  for (size_t i = 0; i < scanned.size() && most > 0; i++) {
    operands[before + states + i] = first_row(scanned[i]);
  }
  std::vector<Tensor> spare(states);  // the other of the two places of a state

  for (; turn < most && goes_on; turn++) {
    for (size_t i = 0; i < scanned.size(); i++) {
      const int64_t row = call_.scanned[i] != 0 ? most - 1 - turn : turn;
      Tensor& part = operands[before + states + i];
      part.data = scanned[i].data + row * bytes_of(part);
    }
    for (size_t i = 0; i < states; i++) given[said + i] = std::move(spare[i]);
    for (size_t i = 0; turn > 0 && i < rows.size(); i++) {
      rows[i].grow(turn, most, !call_.counted, call_.name);
      rows[i].put_place(turn, given[said + states + i]);
    }
    std::vector<Tensor> results = run_turn(operands, given, run);
    if (call_.counted) goes_on = scalar<bool>(results[0], call_.name);
    for (size_t i = 0; i < states; i++) {
      Tensor& state = operands[before + i];
      spare[i] = steady_[i] != 0 && state.owner.use_count() == 1 ? std::move(state) : Tensor{};
      state = std::move(results[said + i]);
    }
    for (size_t i = 0; turn == 0 && i < rows.size(); i++) {
      rows[i].begin(results[said + states + i], most, !call_.counted, call_.name);
    }
  }

  std::vector<Tensor> results;
  for (size_t i = 0; i < states; i++) {
    Tensor& state = operands[before + i];
    results.push_back(turn > 0 ? std::move(state) : own_copy(state, call_.name));
  }
  for (size_t i = 0; i < rows.size(); i++) {
    if (turn == 0) {
      rows[i].begin_empty(call_.bodies[0].program->model(), said + states + i, call_.name);
    }
    results.push_back(rows[i].finish(turn));
  }
  return results;
}

}  // namespace dvm
