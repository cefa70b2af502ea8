#include "runtime/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "npu/host/process.h"
#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/value_sizes.h"
#include "runtime/work.h"

namespace dvm {
namespace {

const char* numpy_name(DType dtype) {
  constexpr const char* names[kDTypes] = {"float32", "float64",  "int32", "int64", "bool",
                                          "float16", "bfloat16", "int8",  "uint8", "int16",
                                          "uint16",  "uint32",   "uint64"};
  return names[static_cast<int>(dtype)];
}

// Shapes keep their memory for the next run.
void let_go(Tensor& tensor) {
  tensor.shape.clear();
  tensor.data = nullptr;
  tensor.owner.reset();
  tensor.kind = ValueKind::tensor;
}

void check_given(const ModelValue& value, const Tensor& given, const Tensor& wanted) {
  if (given.dtype != wanted.dtype) {
    throw InputError("the array given for output " + value.name + " is " + numpy_name(given.dtype) +
                     ", but the model gives " + numpy_name(wanted.dtype));
  }
  if (given.shape != wanted.shape) {
    throw InputError("the array given for output " + value.name + " has shape " +
                     shape_text(given.shape) + ", but this run gives " + shape_text(wanted.shape));
  }
}

void refuse_overlaps(std::span<const Tensor> given, const Model& model) {
  for (size_t i = 0; i < given.size(); i++) {
    for (size_t j = 0; j < i; j++) {
      if (!overlap(given[i], given[j])) continue;
      throw InputError("the arrays given for outputs " + model.values[model.outputs[j]].name +
                       " and " + model.values[model.outputs[i]].name + " share memory");
    }
  }
}

const Tensor& given_for(std::span<const Tensor> given, size_t output) {
  static const Tensor none;
  return output < given.size() ? given[output] : none;
}

}  // namespace

// Lets go of everything that belongs to the caller, however a run ends.
class Runner::RunGuard {
 public:
  explicit RunGuard(Runner& runner) : runner_(runner) {}
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;
  ~RunGuard() {
    for (Tensor& tensor : runner_.tensors_) let_go(tensor);
    runner_.unchecked_.clear();
  }

 private:
  Runner& runner_;
};

// Puts the tensors of each turn where they belong.
class alignas(kLinePair) Runner::Repetition final : public Turns {
 public:
  Repetition(Runner& runner, BodyTurns& turns)
      : runner_(runner),
        turns_(turns),
        inputs_(runner.model_.inputs.size()),
        outputs_(runner.model_.outputs.size()) {
    const Model& model = runner.model_;
    values_ = model.inputs;
    for (size_t i = 0; i < outputs_.size(); i++) {
      if (runner.chain_ != nullptr && runner.chain_->outputs[i] == 0) continue;
      const uint32_t value = model.outputs[i];
      if (model.values[value].storage == Storage::output &&
          std::ranges::find(values_, value) == values_.end()) {
        values_.push_back(value);
        stored_.push_back({value, i, 0});
      } else {
        copied_.push_back({value, i, static_cast<size_t>(runner.placed_[0].infos[value].bytes)});
      }
    }
  }

  bool begin() noexcept override {
    if (std::exchange(begun_, true)) {
      for (const Result& result : copied_) {
        std::memcpy(outputs_[result.output], runner_.buffer(result.value), result.bytes);
      }
    }
    if (!turns_.next(inputs_, outputs_)) return false;
    for (size_t i = 0; i < inputs_.size(); i++) runner_.buffer(values_[i]) = inputs_[i];
    for (const Result& result : stored_) runner_.buffer(result.value) = outputs_[result.output];
    runner_.write_dims_of(runner_.schedule_.segments[0]);
    return true;
  }

  std::span<const uint32_t> values() const { return values_; }  // that lie elsewhere at each turn

 private:
  struct Result {
    uint32_t value;
    size_t output, bytes;
  };

  Runner& runner_;
  BodyTurns& turns_;
  OwnLines<std::byte*> inputs_, outputs_;
  std::vector<uint32_t> values_;
  std::vector<Result> stored_, copied_;
  bool begun_ = false;
};

Runner::Runner(const Model& model, const Schedule& schedule, std::shared_ptr<SharedDevice> device,
               VendorLibrary* vendor, Cores cores, const Chain* chain)
    : model_(model),
      schedule_(schedule),
      chain_(chain),
      device_(std::move(device)),
      vendor_(vendor),
      process_(process_generation()),
      dims_(model_.dims),
      binder_(model_),
      launcher_(model_, schedule_, *device_, cores,
                chain == nullptr ? std::span<const char>{} : std::span<const char>(chain->calls)),
      placed_(schedule_.segments.size()),
      buffers_(model_.values.size() + kReservedBuffers),
      tensors_(model_.values.size()),
      distances_(model_.spaced.size()) {
  for (uint32_t value = 0; value < model_.values.size(); value++) {
    buffer(value) = model_.values[value].contents.data;
  }
  for (uint32_t step = 0; step < model_.steps.size(); step++) {
    if (const auto* call = std::get_if<ControlCall>(&model_.steps[step])) {
      controls_.try_emplace(step, model_, *call, output_pool_, device_);
    }
  }
}

std::vector<Tensor> Runner::run(std::span<const Tensor> inputs, std::span<const Tensor> given,
                                const RunRequest& request) {
  const RunGuard guard(*this);
  const int64_t start = now_ns();
  std::optional<Profiler> profiler;
  if (request.profile) profiler.emplace(model_, device_->device->cores(), start);
  std::vector<Tensor> outputs = run_steps(inputs, given, request, profiler ? &*profiler : nullptr);
  statistics_.run_ns = now_ns() - start;
  if (profiler) statistics_.profile = std::make_shared<const RunProfile>(profiler->finish());
  return outputs;
}

bool Runner::may_repeat() const {
  return schedule_.segments.size() == 1 && std::ranges::all_of(model_.steps, [](const Step& step) {
           return outer_call(step) == nullptr;
         });
}

void Runner::begin_turns(std::span<const Tensor> inputs, const RunRequest& request) {
  const RunGuard guard(*this);
  statistics_ = RunStatistics{};
  bind_inputs(inputs, request);
  evaluate_dims();
  lay_out_segment(0);
}

std::span<const double> Runner::predict_turn(std::span<const Tensor> inputs,
                                             const RunRequest& request,
                                             std::span<const Chain> chains) {
  begin_turns(inputs, request);
  std::vector<double>& seconds = placed_[0].turn_seconds;
  if (seconds.empty()) {
    seconds.push_back(seconds_of(nullptr));
    for (const Chain& chain : chains) seconds.push_back(seconds_of(&chain));
  }
  return seconds;
}

bool Runner::is_short_turn(std::span<const Tensor> inputs, const RunRequest& request) {
  const double one = predict_turn(inputs, request, {})[0];
  const auto all = static_cast<double>(cores());
  return one <= one / all + barriers_of_turn() * std::log2(all);
}

// Two cores that stay awake between stages wait for about a quarter of what starting one takes;
// where turns gain for sure, the device counts all of it (npu/host/turns.cpp).
double Runner::barriers_of_turn() const {
  const auto stages = std::ranges::count_if(
      model_.steps, [](const Step& step) { return std::holds_alternative<LaunchStage>(step); });
  return static_cast<double>(stages) * target().costs.stage_start / 4;
}

// All that it touches lies in the core's caches, and is read beside the multiply-adds.
double Runner::seconds_of(const Chain* chain) const {
  KernelWork work;
  for (const Step& step : model_.steps) {
    const auto* const stage = std::get_if<LaunchStage>(&step);
    if (stage == nullptr) continue;
    for (const uint32_t call : stage->calls) {
      if (chain != nullptr && chain->calls[call] == 0) continue;
      const KernelPlan& plan = model_.kernels[model_.calls[call].kernel].plan;
      work.add(work_of(plan, dims_.values(), placed_[0].infos.data()));
    }
  }
  const Costs& costs = target().costs;
  const auto bytes = static_cast<double>(work.read_bytes) + static_cast<double>(work.written_bytes);
  const double multiplying = static_cast<double>(work.matmul_flops) / 2 / costs.multiply_adds;
  return std::max(multiplying, bytes / costs.private_read) +
         static_cast<double>(work.vector_flops) / costs.vector_elements;
}

void Runner::repeat(std::span<const Tensor> inputs, BodyTurns& turns, const RunRequest& request) {
  const int64_t start = now_ns();
  begin_turns(inputs, request);
  std::optional<Profiler> profiler;
  if (request.profile) profiler.emplace(model_, device_->device->cores(), start);
  Repetition repetition(*this, turns);
  launcher_.run_turns(repetition.values(), repetition,
                      RunContext{dims_, placed_[0].infos.data(), buffers_.data() + kReservedBuffers,
                                 statistics_, profiler ? &*profiler : nullptr, request});
  statistics_.run_ns = now_ns() - start;
  statistics_.arena_bytes = held_bytes();
  if (profiler) statistics_.profile = std::make_shared<const RunProfile>(profiler->finish());
}

void Runner::repeat_apart(std::span<const Part> parts, const RunRequest& request) {
  Runner& first = *parts[0].runner;
  const int64_t start = now_ns();
  std::optional<Profiler> profiler;  // of all: they are of one model
  if (request.profile) profiler.emplace(first.model_, first.cores(), start);
  std::deque<Repetition> repetitions;
  std::vector<Launcher::Loop> loops;
  for (const Part& part : parts) {
    Runner& runner = *part.runner;
    runner.begin_turns(part.inputs, request);
    Repetition& repetition = repetitions.emplace_back(runner, *part.turns);
    loops.push_back({&runner.launcher_, repetition.values(), &repetition,
                     RunContext{runner.dims_, runner.placed_[0].infos.data(),
                                runner.buffers_.data() + kReservedBuffers, runner.statistics_,
                                profiler ? &*profiler : nullptr, request}});
  }
  Launcher::run_loops(loops);
  for (const Part& part : parts) part.runner->statistics_.arena_bytes = part.runner->held_bytes();
  first.statistics_.run_ns = now_ns() - start;
  if (profiler) first.statistics_.profile = std::make_shared<const RunProfile>(profiler->finish());
}

void Runner::forget() {
  for (Placed& placed : placed_) placed.valid = false;  // which invalidates the steps
  launcher_.forget();
  for (auto& [_, control] : controls_) control.forget();
}

std::vector<Tensor> Runner::run_steps(std::span<const Tensor> inputs, std::span<const Tensor> given,
                                      const RunRequest& request, Profiler* profiler) {
  statistics_ = RunStatistics{};
  launcher_.begin_run();
  output_pool_.begin_run();
  int64_t since = profiler == nullptr ? 0 : now_ns();
  bind_inputs(inputs, request);
  refuse_overlaps(given, model_);
  if (profiler != nullptr) profiler->did("bind", "bind inputs", since);
  for (size_t index = 0; index < schedule_.segments.size(); index++) {
    if (profiler != nullptr) since = now_ns();
    enter_segment(index, given, request);
    if (profiler != nullptr) profiler->did("memory", "dims and memory", since);
    run_segment(schedule_.segments[index],
                RunContext{dims_, placed_[index].infos.data(), buffers_.data() + kReservedBuffers,
                           statistics_, profiler, request});
  }
  if (!unchecked_.empty()) evaluate_dims();
  std::vector<Tensor> outputs = collect(given);
  launcher_.end_run();
  output_pool_.end_run();
  statistics_.arena_bytes = held_bytes();
  return outputs;
}

void Runner::bind_inputs(std::span<const Tensor> inputs, const RunRequest& request) {
  dims_.clear();
  binder_.clear();
  for (const auto& [symbol, value] : request.symbols) dims_.bind(static_cast<int>(symbol), value);
  for (size_t i = 0; i < distances_.size(); i++) {
    // Who asks what a turn takes gets the same answer whatever ran before.
    const int64_t apart = request.growing.empty() ? 0 : distances_[i];
    dims_.bind(static_cast<int>(model_.spaced[i].symbol), apart);
  }
  for (const GrowingPlace& place : request.growing) bind_rows(place);
  for (size_t i = 0; i < model_.inputs.size(); i++) {
    const ModelValue& value = model_.values[model_.inputs[i]];
    if (i >= inputs.size() || inputs[i].absent()) {
      throw InputError("input " + value.name + " is missing");
    }
    if (!value.opaque && inputs[i].dtype != value.dtype) {
      throw InputError("input " + value.name + " is " + numpy_name(inputs[i].dtype) +
                       ", but the model wants " + numpy_name(value.dtype));
    }
    accept(model_.inputs[i], inputs[i]);
  }
}

// Takes in a tensor that decides dims: an input or a vendor's result.
void Runner::accept(uint32_t value, const Tensor& tensor) {
  if (!model_.values[value].opaque) {
    binder_.bind(value, tensor.shape, dims_);
    unchecked_.push_back(value);
  }
  buffer(value) = tensor.data;
  tensors_[value] = tensor;
}

void Runner::evaluate_dims() {
  dims_.evaluate();
  for (const uint32_t value : unchecked_) binder_.check(value, tensors_[value].shape, dims_);
  unchecked_.clear();
  binder_.check_assumptions(dims_);
}

void Runner::enter_segment(size_t index, std::span<const Tensor> given, const RunRequest& request) {
  evaluate_dims();
  if (!model_.spaced.empty()) space_rows(request);
  lay_out_segment(index);
  const Segment& segment = schedule_.segments[index];
  place_outputs(segment, given, request);
  write_dims_of(segment);
}

void Runner::lay_out_segment(size_t index) {
  const Segment& segment = schedule_.segments[index];
  Placed& placed = placed_[index];
  if (!placed.valid || placed.dims != dims_.all()) plan_memory(index);
  if (!segment.arena.empty()) placed.arena.reserve(placed.bytes);
  for (size_t i = 0; i < segment.arena.size(); i++) {
    buffer(segment.arena[i]) = placed.arena.data() + placed.requests[i].offset;
  }
}

void Runner::write_dims_of(const Segment& segment) {
  const Placed& placed = placed_[static_cast<size_t>(&segment - schedule_.segments.data())];
  for (const uint32_t step : segment.dims_writes) {
    const auto& write = std::get<DimsWrite>(model_.steps[step]);
    write_dims(write, placed.infos[write.value].bytes);
  }
}

void Runner::plan_memory(size_t index) {
  const Segment& segment = schedule_.segments[index];
  Placed& placed = placed_[index];
  placed.valid = false;
  launcher_.invalidate(segment.first_step, segment.end_step);
  measure_values(model_, dims_, placed.infos);
  placed.requests.clear();
  for (size_t i = 0; i < segment.arena.size(); i++) {
    const uint32_t value = segment.arena[i];
    if (placed.infos[value].bytes < 0) throw_bad_size(model_, value, dims_);
    const Lifetime& lifetime = schedule_.lifetimes[value];
    placed.requests.push_back(
        {placed.infos[value].bytes, lifetime.first, lifetime.last, 0, segment.over[i]});
  }
  for (const uint32_t value : segment.outputs) {
    if (placed.infos[value].bytes < 0) throw_bad_size(model_, value, dims_);
  }
  placed.bytes = planner_.plan(placed.requests, device_->device->target().stream_bytes);
  placed.dims = dims_.all();
  placed.turn_seconds.clear();
  placed.valid = true;
}

void Runner::place_outputs(const Segment& segment, std::span<const Tensor> given,
                           const RunRequest& request) {
  const Placed& placed = placed_[static_cast<size_t>(&segment - schedule_.segments.data())];
  for (const uint32_t value : segment.outputs) {
    const auto known = std::find(model_.outputs.begin(), model_.outputs.end(), value);
    const auto output = static_cast<size_t>(known - model_.outputs.begin());
    const ModelValue& described = model_.values[value];
    Tensor& wanted = tensors_[value];
    wanted.dtype = described.dtype;
    put_shape(value, wanted.shape);
    const Tensor& offered = given_for(given, output);
    if (!offered.absent()) check_given(described, offered, wanted);
    if (!request.growing.empty() && place_growing(value, placed.infos[value].bytes, request)) {
    } else if (!offered.absent() && usable_in_place(offered)) {
      wanted.data = offered.data;
      wanted.owner = offered.owner;
    } else {
      take_memory(wanted, described.name);
    }
    buffer(value) = wanted.data;
  }
}

// Memory for a fresh output of known dtype and shape.
void Runner::take_memory(Tensor& output, const std::string& name) {
  output.owner = output_pool_.take(bytes_of(output), name.c_str());
  output.data = static_cast<std::byte*>(output.owner.get());
}

// A given array that shares memory with an input is filled at the end.
bool Runner::usable_in_place(const Tensor& given) const {
  return std::none_of(model_.inputs.begin(), model_.inputs.end(),
                      [&](uint32_t input) { return overlap(given, tensors_[input]); });
}

void Runner::write_dims(const DimsWrite& write, int64_t bytes) {
  const std::string& name = model_.values[write.value].name;
  if (bytes < static_cast<int64_t>(write.slots.size() * sizeof(int64_t))) {
    throw CompileError(name + " is too small for the dims written to it");
  }
  auto* out = reinterpret_cast<int64_t*>(buffer(write.value));
  for (const DimSlot slot : write.slots) *out++ = dims_.at(slot, name);
}

void Runner::run_segment(const Segment& segment, const RunContext& run) {
  for (uint32_t step = segment.first_step; step < segment.end_step;) {
    const uint32_t first = step;
    if (const auto* vendor = std::get_if<VendorCall>(&model_.steps[step])) {
      run_vendor(*vendor, run);
      step++;
    } else if (const auto* control = std::get_if<ControlCall>(&model_.steps[step])) {
      run_control(step, *control, run);
      step++;
    } else if (const auto* host = std::get_if<HostCall>(&model_.steps[step])) {
      run_host(step, *host, run);
      step++;
    } else {
      while (step < segment.end_step && outer_call(model_.steps[step]) == nullptr) step++;
      launcher_.run(first, step, run);
    }
    release_dying(first, step);
  }
}

void Runner::run_vendor(const VendorCall& call, const RunContext& run) {
  refuse_interrupted(run.request);
  std::vector<Tensor> inputs, outputs(call.outputs.size());
  for (const uint32_t value : call.inputs) inputs.push_back(view_of(value));
  device_->device->rest();
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  vendor_->run(call.partition, inputs, outputs, run.request.context);
  if (process_ != process_generation()) {
    throw ExecutionError("the process was forked in the middle of this run: run it again");
  }
  if (run.profiler != nullptr) run.profiler->did("vendor", call.name, start);
  accept_results(call, outputs);
}

void Runner::run_control(uint32_t step, const ControlCall& call, const RunContext& run) {
  std::vector<Tensor> inputs;
  for (const uint32_t value : call.inputs) inputs.push_back(view_of(value));
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  const std::vector<Tensor> outputs = controls_.at(step).run(inputs, run);
  if (run.profiler != nullptr) run.profiler->did("control", call.name, start);
  accept_results(call, outputs);
}

// Whether the step is the last to read the memory of a value: a result of the vendor library or the
// host, or an input that the caller has given up, which nobody else holds.
bool Runner::is_spent(uint32_t value, uint32_t step, const RunRequest& request) const {
  const Tensor& tensor = tensors_[value];
  if (tensor.owner == nullptr || schedule_.lifetimes[value].last != static_cast<int32_t>(step))
    return false;
  long holders = 1;  // this run
  if (model_.values[value].storage == Storage::input) {
    const auto input = std::ranges::find(model_.inputs, value) - model_.inputs.begin();
    if (static_cast<size_t>(input) >= request.spent.size() || request.spent[input] == 0)
      return false;
    holders++;
  }
  return tensor.owner.use_count() == holders;
}

void Runner::run_host(uint32_t step, const HostCall& call, const RunContext& run) {
  refuse_interrupted(run.request);
  std::vector<Tensor> operands(call.given.size()), results(call.wanted.size());
  std::vector<char> spent(operands.size());
  auto input = call.inputs.begin();
  for (size_t i = 0; i < operands.size(); i++) {
    if (call.given[i] == 0) continue;
    spent[i] = is_spent(*input, step, run.request) ? 1 : 0;
    operands[i] = view_of(*input++);
  }
  const int64_t start = run.profiler == nullptr ? 0 : now_ns();
  HostFrame frame(call.name, call.arguments, call.words, operands, spent, call.wanted, results,
                  output_pool_, host_scratch_, *device_);
  call.function(frame);
  if (run.profiler != nullptr) run.profiler->did("host", call.name, start);
  std::erase_if(results, [](const Tensor& result) { return result.absent(); });
  accept_results(call, results);
}

void Runner::accept_results(const OuterCall& call, std::span<const Tensor> results) {
  for (size_t i = 0; i < results.size(); i++) {
    const ModelValue& value = model_.values[call.outputs[i]];
    if (!value.opaque && results[i].dtype != value.dtype) {
      throw ExecutionError(call.name + " gave " + value.name + " as " +
                           numpy_name(results[i].dtype) + " instead of " + numpy_name(value.dtype));
    }
    accept(call.outputs[i], results[i]);
    // What needs no further evaluation is read by what comes next.
    if (!value.opaque) binder_.check_known(call.outputs[i], results[i].shape, dims_);
  }
}

void Runner::release_dying(uint32_t first_step, uint32_t end_step) {
  for (uint32_t step = first_step; step < end_step; step++) {
    for (const uint32_t value : schedule_.dying[step]) {
      if (std::erase(unchecked_, value) != 0) {  // nothing read it: its extents still tell
        dims_.evaluate();
        binder_.check_known(value, tensors_[value].shape, dims_);
      }
      let_go(tensors_[value]);
    }
  }
}

// A value as a tensor, wherever it lies.
Tensor Runner::view_of(uint32_t value) const {
  const ModelValue& described = model_.values[value];
  if (!tensors_[value].absent()) return tensors_[value];
  if (described.opaque) return described.contents;
  Tensor view{described.dtype, {}, buffers_[value + kReservedBuffers], nullptr};
  put_shape(value, view.shape);
  return view;
}

std::vector<Tensor> Runner::collect(std::span<const Tensor> given) {
  std::vector<Tensor> results;
  results.reserve(model_.outputs.size());
  for (size_t i = 0; i < model_.outputs.size(); i++) {
    const uint32_t value = model_.outputs[i];
    const ModelValue& described = model_.values[value];
    Tensor result = view_of(value);
    const Tensor& wanted = given_for(given, i);
    const bool owned = described.storage == Storage::output || described.storage == Storage::vendor;
    const bool repeated =
        std::find(model_.outputs.begin(), model_.outputs.begin() + static_cast<ptrdiff_t>(i),
                  value) != model_.outputs.begin() + static_cast<ptrdiff_t>(i);
    if (!described.opaque && result.data != wanted.data &&
        (!owned || repeated || !wanted.absent())) {
      if (!wanted.absent()) check_given(described, wanted, result);
      Tensor copy = wanted;
      if (wanted.absent()) {
        copy = {result.dtype, result.shape, nullptr, nullptr};
        take_memory(copy, described.name);
      }
      std::memcpy(copy.data, result.data, static_cast<size_t>(bytes_of(result)));
      result = std::move(copy);
    }
    results.push_back(std::move(result));
  }
  return results;
}

void Runner::put_shape(uint32_t value, std::vector<int64_t>& shape) const {
  shape.clear();
  for (const DimSlot slot : model_.values[value].shape) {
    shape.push_back(dims_.at(slot, model_.values[value].name));
  }
}

int64_t Runner::held_bytes() const {
  int64_t bytes = launcher_.scratch_bytes() + host_scratch_.capacity();
  for (const Placed& placed : placed_) bytes += placed.arena.capacity();
  for (const auto& [_, control] : controls_) bytes += control.held_bytes();
  return bytes;
}

std::map<std::string, int64_t> Runner::bind(std::span<const Tensor> inputs) {
  const RunGuard guard(*this);
  bind_inputs(inputs, {});
  evaluate_dims();
  std::map<std::string, int64_t> symbols;
  for (size_t i = 0; i < model_.dims.symbols.size(); i++) {
    const auto number = static_cast<int>(i);
    if (dims_.is_bound(number)) symbols[model_.dims.symbols[i]] = dims_.symbol(number);
  }
  return symbols;
}

}  // namespace dvm
