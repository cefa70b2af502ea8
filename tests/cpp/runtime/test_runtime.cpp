// Tests of the runtime below Python: dims, packed weights, and the executor under threads. Built
// with a sanitizer (DVM_SANITIZE) they also look for races and leaks.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "../targets.h"
#include "checks.h"
#include "models.h"
#include "npu/host/levels.h"
#include "runtime/ahead_compiler.h"
#include "runtime/errors.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/kernel_table.h"
#include "runtime/panel_packing.h"
#include "runtime/value_sizes.h"
#include "vm/panels.h"

namespace dvm::testing {
namespace {

// -- packed weights

// B is a view with the given order of axes in a buffer; every element is where the layout says.
void check_panels(const Level& level, int64_t k, int64_t n, bool transposed) {
  const Target target = host_target(2, *level.table, plain_machine());
  constexpr int64_t batch = 2;
  std::vector<float> source(static_cast<size_t>(batch * k * n));
  for (size_t i = 0; i < source.size(); i++) source[i] = static_cast<float>(i + 1);
  PanelSource view;
  view.data = reinterpret_cast<const std::byte*>(source.data());
  view.bytes = static_cast<int64_t>(source.size()) * 4;
  view.batch = batch, view.k = k, view.n = n;
  view.batch_stride = k * n;
  view.k_stride = transposed ? 1 : n;
  view.n_stride = transposed ? k : 1;
  Store store;
  const Tensor packed = pack_constant(view, target, *level.table, store);
  const auto* panels = reinterpret_cast<const float*>(packed.data);
  const int64_t columns = target.matmul_nr, padded = (n + columns - 1) / columns * columns;
  bool equal = packed.shape.at(0) == batch * k * padded;
  for (int64_t b = 0; b < batch && equal; b++) {
    for (int64_t row = 0; row < k; row++) {
      for (int64_t column = 0; column < padded; column++) {
        const int64_t from = b * k * n + row * view.k_stride + column * view.n_stride;
        const float want = column < n ? source[static_cast<size_t>(from)] : 0;
        const int64_t panel = column / columns;
        equal &=
            want == panels[(b * padded + panel * columns) * k + row * columns + column % columns];
      }
    }
  }
  check(equal, std::string("panels of ") + level.table->name + " k " + std::to_string(k) + " n " +
                   std::to_string(n) + (transposed ? " transposed" : ""));
}

void test_panels() {
  for (const Level& level : available_levels()) {
    for (const int64_t k : {1, 7, 64, 700}) {
      for (const int64_t n : {1, 31, 32, 33, 320}) {
        check_panels(level, k, n, false);
        check_panels(level, k, n, true);
      }
    }
  }
}

// -- dims

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

void test_dim_operators() {
  DimTable table;
  table.symbols = {"a", "b"};
  table.instructions = {{DimOp::symbol, 0, 0},     {DimOp::symbol, 1, 0}, {DimOp::floordiv, 0, 1},
                        {DimOp::mod, 0, 1},        {DimOp::min, 0, 1},    {DimOp::lt, 0, 1},
                        {DimOp::logical_and, 0, 1}};
  Dims dims(table);
  for (int64_t a = -7; a <= 7; a++) {
    for (int64_t b = -3; b <= 3; b++) {
      dims.bind(0, a);
      dims.bind(1, b);
      dims.evaluate();
      const std::string what = std::to_string(a) + ", " + std::to_string(b);
      check(dims.values()[4] == std::min(a, b), "min of " + what);
      check(dims.values()[5] == (a < b), "lt of " + what);
      check(dims.values()[6] == (a != 0 && b != 0), "and of " + what);
      if (b == 0) {
        const DimState state = a == 0 ? DimState::ok : DimState::division_by_zero;
        check(dims.state(2) == state && dims.state(3) == state, "division of " + what);
        continue;
      }
      check(dims.values()[2] == floor_divide(a, b), "floordiv of " + what);
      check(dims.values()[3] == a - b * floor_divide(a, b), "mod of " + what);
    }
  }
}

void test_bad_dims() {
  DimTable table;
  table.symbols = {"a"};
  table.instructions = {{DimOp::symbol, 0, 0}, {DimOp::mul, 0, 0}, {DimOp::add, 1, 0}};
  Dims dims(table);
  dims.evaluate();
  check(dims.state(2) == DimState::unbound && !dims.all_ok(), "unbound symbols spread");
  dims.bind(0, int64_t{1} << 40);
  dims.evaluate();
  check(dims.ok(0) && dims.state(2) == DimState::overflow, "overflow spreads");
  check_throws<ShapeError>([&] { dims.at(2, "x"); }, "use of an overflown dim");
  dims.bind(0, 3);
  dims.evaluate();
  check(dims.all_ok() && dims.at(2, "x") == 12, "dims recover");
}

// -- executor

std::shared_ptr<SharedDevice> device() { return shared_device({2, "", 0, plain_machine()}); }

bool run_once(Executor& executor, int64_t n, unsigned seed) {
  std::vector<float> x(static_cast<size_t>(n));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (float& element : x) element = draw(random);
  const Tensor input = vector_tensor(x);
  const std::vector<Tensor> outputs = executor.run(std::span(&input, 1), {});
  const auto* y = reinterpret_cast<const float*>(outputs[0].data);
  for (size_t i = 0; i < x.size(); i++) {
    if (y[i] != speculated(x[i], n)) return false;
  }
  return outputs[0].shape == std::vector<int64_t>{n};
}

void test_shapes_in_random_order() {
  Executor executor(speculating_model(), device(), nullptr);
  std::mt19937 random(11);
  for (unsigned round = 0; round < 300; round++) {
    const int64_t n = std::uniform_int_distribution<int>(0, round % 10 == 0 ? 100000 : 40)(random);
    check(run_once(executor, n, round), "n = " + std::to_string(n));
  }
}

void check_profile(const RunStatistics& statistics) {
  const RunProfile& profile = *statistics.profile;
  check(std::ssize(profile.kernels) == statistics.kernels_launched, "every launched kernel");
  std::vector<int64_t> tiles(profile.kernels.size());
  for (const KernelSpan& span : profile.spans) {
    check(span.start_ns >= 0 && span.start_ns <= span.end_ns && span.end_ns <= profile.run_ns,
          "a span lies within the run");
    tiles[span.kernel] += span.tiles;
  }
  for (size_t i = 0; i < tiles.size(); i++) {
    check(tiles[i] == profile.kernels[i].tiles, "every tile of " + profile.kernels[i].name);
  }
}

// A shared device records for the run that asked, and for no other.
void test_profiles_of_threads() {
  const auto work = [] {
    Executor executor(speculating_model(), device(), nullptr);
    for (size_t n = 1; n <= 100; n++) {
      std::vector<float> x(n == 2 ? n : n * 40, 1.0f);
      const Tensor input = vector_tensor(x);
      const bool profiled = n % 3 != 0;
      executor.run(std::span(&input, 1), {}, {profiled, nullptr, nullptr});
      const RunStatistics statistics = executor.statistics();
      check((statistics.profile != nullptr) == profiled, "a profile where it was asked for");
      if (profiled) check_profile(statistics);
    }
  };
  std::thread other(work);
  work();
  other.join();
}

// -- kernels

// Whether two kernels with one difference are one: y = x + scalar, z = x + other scalar.
size_t distinct_kernels(double scalar, double other, const std::function<void(Model&)>& change) {
  Model model = empty_model();
  const uint32_t x = add_vector(model, "x", Storage::input);
  std::vector<uint32_t> calls;
  for (const double number : {scalar, other}) {
    const uint32_t y = add_vector(model, "y", Storage::output);
    calls.push_back(add_map(model, PlanOp::add_, {x, x}, y));
    KernelPlan& plan = model.kernels.back().plan;
    PlanNode& fill = plan.nodes[1];
    fill = PlanNode{};
    fill.op = PlanOp::fill_;
    fill.scalar = number;
  }
  change(model);
  add_launch(model, calls);
  const KernelTable table = make_kernel_table(model);
  check(table.bound.size() == 2 && table.bound[0].arguments[0].value == x &&
            table.bound[0].arguments[1].value == model.outputs[0] &&
            table.bound[1].arguments[1].value == model.outputs[1],
        "arguments are the values in the order of accesses");
  return table.kernels.size();
}

void test_equal_kernels() {
  const auto same = [](Model&) {};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  check(distinct_kernels(1, 1, same) == 1, "equal kernels are one");
  check(distinct_kernels(1, 2, same) == 2, "other scalars make another kernel");
  check(distinct_kernels(0.0, -0.0, same) == 2, "the sign of zero makes another kernel");
  check(distinct_kernels(nan, -nan, same) == 2, "the sign of NaN makes another kernel");
  check(distinct_kernels(1, 1, [](Model& m) { m.values.back().shape = {kOne}; }) == 2,
        "other sizes make another kernel");
  check(distinct_kernels(1, 1, [](Model& m) { m.values.back().dtype = DType::f16; }) == 2,
        "other storage dtypes make another kernel");
  check(distinct_kernels(1, 1, [](Model& m) { m.kernels.back().plan.extents = {kOne}; }) == 2,
        "other extents make another kernel");
  check(distinct_kernels(1, 1, [](Model& m) { m.kernels.back().plan.accesses[0].offset = kOne; }) ==
            2,
        "other accesses make another kernel");
}

// A chain of kernels needs one buffer, and computes what it did.
void test_chain_in_place() {
  Model model = empty_model();
  uint32_t last = add_vector(model, "x", Storage::input);
  for (int i = 0; i < 7; i++) {
    const uint32_t next = add_vector(model, std::to_string(i), Storage::arena);
    add_launch(model, {add_map(model, PlanOp::add_, {last, last}, next)});
    last = next;
  }
  add_launch(model,
             {add_map(model, PlanOp::neg_, {last}, add_vector(model, "y", Storage::output))});
  Executor executor(std::move(model), device(), nullptr);
  for (const int64_t n : {0, 1, 7, 64, 1009, 100003}) {
    std::vector<float> data(static_cast<size_t>(n));
    std::iota(data.begin(), data.end(), -3.0f);
    const Tensor input[] = {vector_tensor(data)};
    const std::vector<Tensor> outputs = executor.run(input, {});
    const auto* const y = reinterpret_cast<const float*>(outputs[0].data);
    bool right = true;
    for (size_t i = 0; i < data.size(); i++) right &= y[i] == -128 * data[i];
    check(right, "a chain in place");
    check(executor.statistics().arena_bytes <= (n * 4 + 63) / 64 * 64, "one buffer for a chain");
  }
}

void test_kernels_compile_once() {
  Executor executor(speculating_model(), device(), nullptr);
  const auto counts = [&](int64_t n) {
    check(run_once(executor, n, 3), "runs");
    const RunStatistics statistics = executor.statistics();
    return std::pair(statistics.kernels_compiled, statistics.kernels_launched);
  };
  check(counts(5) == std::pair(3, 4), "abs, neg and add; neg runs twice");
  check(counts(5) == std::pair(0, 4), "the programs serve again");
  check(counts(2) == std::pair(2, 3), "abs and neg at another shape");
  check(counts(5) == std::pair(2, 4), "only add was not compiled for another shape since");
}

// A kernel whose own dims stay what they were is not compiled again.
void test_untouched_kernels_stay() {
  Model model = speculating_model();
  const uint32_t c = add_vector(model, "c", Storage::input);
  const uint32_t d = add_vector(model, "d", Storage::output);
  model.values[c].shape = model.values[d].shape = {kOne};
  const uint32_t call = add_map(model, PlanOp::neg_, {c}, d);
  model.kernels.back().plan.extents = {kOne};
  add_launch(model, {call});
  Executor executor(std::move(model), device(), nullptr);
  std::vector<float> single(1, 3.0f), three(3, 1.0f), four(4, 1.0f);
  const Tensor first[] = {vector_tensor(three), vector_tensor(single)};
  const Tensor second[] = {vector_tensor(four), vector_tensor(single)};
  executor.run(first, {});
  check(executor.statistics().kernels_compiled == 4, "all kernels of a first run");
  const std::vector<Tensor> outputs = executor.run(second, {});
  check(executor.statistics().kernels_compiled == 3, "all but the one of fixed dims");
  check(*reinterpret_cast<const float*>(outputs[1].data) == -3, "which still runs");
}

void test_threads() {
  Executor shared(speculating_model(), device(), nullptr);
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; number++) {
    threads.emplace_back([&shared, number] {
      Executor own(speculating_model(), device(), nullptr);
      for (unsigned round = 0; round < 100; round++) {
        const int64_t n = (round * 7 + number) % 50;
        check(run_once(round % 2 == 0 ? shared : own, n, round), "threads");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Every unit is done once, by a slot of the device's, and what it wrote is there afterwards; calls
// of several threads take turns.
void test_pieces_of_host_operators() {
  const auto spread = [](int64_t units, int64_t unit) {
    const std::string name = "pieces";
    const Tensor words;
    OutputPool pool;
    Arena scratch;
    const std::shared_ptr<SharedDevice> shared = device();
    HostFrame frame(name, {}, words, {}, {}, {}, {}, pool, scratch, *shared);
    std::vector<int64_t> done(static_cast<size_t>(units)), by_slot(2);
    frame.spread(units, unit, [&](int64_t first, int64_t end, int64_t slot) {
      by_slot.at(static_cast<size_t>(slot)) += end - first;
      for (int64_t i = first; i < end; i++) done[static_cast<size_t>(i)] += i + 1;
    });
    bool once = by_slot[0] + by_slot[1] == units;
    for (int64_t i = 0; i < units; i++) once = once && done[static_cast<size_t>(i)] == i + 1;
    check(once, std::to_string(units) + " units of " + std::to_string(unit));
  };
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 3; number++) {
    threads.emplace_back([&] {
      for (const int64_t units : {0, 1, 2, 7, 100, 5000}) {
        for (const int64_t unit : {0, 1, 3000, 8192, 1 << 20}) spread(units, unit);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The device still compiles for an executor that is gone, or about to run another shape.
void test_short_lives() {
  for (unsigned round = 0; round < 200; round++) {
    Executor executor(speculating_model(), device(), nullptr);
    for (unsigned run = 0; run < round % 4; run++)
      check(run_once(executor, 1 + run, round), "lives");
  }
}

void test_failed_run_leaves_nothing_behind() {
  Model model = speculating_model();
  add_vector(model, "z", Storage::input);
  Executor executor(std::move(model), device(), nullptr);
  std::vector<float> three(3, 1.0f), four(4, 1.0f);
  const Tensor good[] = {vector_tensor(three), vector_tensor(three)};
  const Tensor bad[] = {vector_tensor(three), vector_tensor(four)};
  check_throws<ShapeError>([&] { executor.run(bad, {}); }, "contradicting inputs");
  check_throws<InputError>([&] { executor.run(std::span(good, 1), {}); }, "a missing input");
  check(executor.run(good, {}).size() == 1, "runs after errors");
  std::vector<float> target(3, -1.0f);
  const Tensor given = vector_tensor(target);
  executor.run(good, std::span(&given, 1));
  check(target == std::vector<float>(3, 2.0f), "writes a given output");
}

// n - 5: a kernel of so many elements cannot be compiled for an n below 5.
DimSlot five_fewer(Model& model) {
  const auto five = static_cast<DimSlot>(model.dims.instructions.size());
  model.dims.instructions.push_back({DimOp::constant, 5, 0});
  model.dims.instructions.push_back({DimOp::sub, kN, five});
  return five + 1;
}

// A kernel between others cannot be compiled at some shapes, whoever comes to it first.
void test_failed_compilations(int cores) {
  Model model = empty_model();
  const DimSlot fewer = five_fewer(model);
  const uint32_t x = add_vector(model, "x", Storage::input);
  const uint32_t a = add_vector(model, "a", Storage::arena);
  const uint32_t z = add_vector(model, "z", Storage::output);
  const uint32_t y = add_vector(model, "y", Storage::output);
  add_launch(model, {add_map(model, PlanOp::neg_, {x}, a)});
  add_launch(model, {add_map(model, PlanOp::abs_, {x}, z)});
  model.kernels.back().plan.extents = {fewer};
  add_launch(model, {add_map(model, PlanOp::neg_, {a}, y)});
  Executor executor(std::move(model), shared_device({cores, "", 0, plain_machine()}), nullptr);
  std::mt19937 random(5);
  for (int round = 0; round < 300; round++) {
    const int64_t n = std::uniform_int_distribution<int>(0, 20)(random);
    const std::string what = "failed compilations, n = " + std::to_string(n);
    std::vector<float> data(static_cast<size_t>(n));
    std::iota(data.begin(), data.end(), -3.0f);
    const Tensor input = vector_tensor(data);
    try {
      const std::vector<Tensor> outputs = executor.run(std::span(&input, 1), {});
      const auto* const absolute = reinterpret_cast<const float*>(outputs[0].data);
      const auto* const same = reinterpret_cast<const float*>(outputs[1].data);
      bool right = n >= 5;
      for (size_t i = 0; i < data.size(); i++) {
        right &= same[i] == data[i];
        if (i + 5 < data.size()) right &= absolute[i] == std::abs(data[i]);
      }
      check(right, what);
    } catch (const ShapeError& error) {
      const bool named = std::string(error.what()).find("map_to_z") != std::string::npos;
      check(n < 5 && named, what + ": " + error.what());
    }
  }
}

// A worker that waits compiles the kernels of all steps, as the caller would, and those that it can
// before one that fails.
void test_compiling_ahead(int64_t n) {
  const std::string what = "compiling ahead, n = " + std::to_string(n);
  Model model = empty_model();
  const DimSlot fewer = five_fewer(model);
  const uint32_t x = add_vector(model, "x", Storage::input);
  const uint32_t a = add_vector(model, "a", Storage::arena);
  const uint32_t y = add_vector(model, "y", Storage::output);
  add_launch(model, {add_map(model, PlanOp::neg_, {x}, a)});
  add_launch(model, {add_map(model, PlanOp::abs_, {a}, y)});
  model.kernels.back().plan.extents = {fewer};
  const auto shared = shared_device({2, "", 0, plain_machine()});
  Device& device = *shared->device;
  KernelPrograms programs(model, device.target());
  CompilerScratch scratch;
  AheadCompiler ahead(model, programs, device.standby(), scratch);
  Dims dims(model.dims);
  dims.bind(0, n);
  dims.evaluate();
  std::vector<ValueInfo> infos;
  measure_values(model, dims, infos);
  const bool possible = n >= 5;
  do {
    device.wake();
  } while (!ahead.begin(0, 2, dims, infos.data()));
  for (const uint32_t step : {0u, 1u}) ahead.await(step);
  check(ahead.has(0) && ahead.has(1), what + ": waited for");
  const std::span<const AheadCompiler::Done> done = ahead.end();
  check(done.size() == (possible ? 2 : 1) && done[0].call == 0, what + ": what was compiled");
  check(programs.is_current(0, dims, infos.data()) &&
            programs.is_current(1, dims, infos.data()) == possible,
        what + ": what is current");
  CompiledKernel alone;
  std::vector<ValueInfo> arguments;
  for (const Argument& argument : programs.bound(0).arguments) {
    arguments.push_back(argument.info(dims.values(), infos.data()));
  }
  compile_kernel(model.kernels[0].plan, dims.values(), arguments.data(), device.target(), scratch,
                 alone);
  check(alone.programs[0] == programs.compiled(0).programs[0], what + ": the same program");
  dims.bind(0, n + 1);
  dims.evaluate();
  check(!programs.is_current(0, dims, infos.data()), what + ": for these dims only");
}

// Partition 0 gives as many of its input's elements as it is told to; both can be told to fail.
class FakeVendor final : public VendorLibrary {
 public:
  explicit FakeVendor(int& failing) : failing_(failing) {}
  void run(uint32_t partition, std::span<const Tensor> inputs, std::span<Tensor> outputs,
           void*) override {
    if (static_cast<int>(partition) == failing_) throw ExecutionError("told to fail");
    outputs[0] = inputs[0];
    if (partition == 0) outputs[0].shape = {2};
  }

 private:
  int& failing_;
};

// Failures in front of and behind the point where a vendor's result decides dims.
void test_failed_segments_leave_nothing_behind() {
  constexpr DimSlot kM = 4;
  Model model = empty_model();
  model.dims.symbols.push_back("m");
  model.dims.instructions.push_back({DimOp::symbol, 1, 0});
  const uint32_t x = add_vector(model, "x", Storage::input);
  const uint32_t v = add_vector(model, "v", Storage::vendor);
  const uint32_t w = add_vector(model, "w", Storage::vendor);
  const uint32_t y = add_vector(model, "y", Storage::output);
  model.values[v].shape = model.values[y].shape = {kM};
  model.bindings.push_back({1, v, 0, 1, 0});
  model.steps.emplace_back(VendorCall{{{x}, {v}, "first"}, 0});
  model.steps.emplace_back(VendorCall{{{x}, {w}, "second"}, 1});
  add_launch(model, {add_map(model, PlanOp::neg_, {v}, y)});
  model.kernels.back().plan.extents = {kM};
  int failing = 1;
  Executor executor(std::move(model), device(), std::make_unique<FakeVendor>(failing));
  std::vector<float> three(3, 1.0f), four(4, 1.0f);
  const Tensor first = vector_tensor(three), second = vector_tensor(four);
  check_throws<ExecutionError>([&] { executor.run(std::span(&first, 1), {}); }, "the second");
  failing = 0;
  check_throws<ExecutionError>([&] { executor.run(std::span(&second, 1), {}); }, "the first");
  failing = -1;
  const std::vector<Tensor> outputs = executor.run(std::span(&first, 1), {});
  const auto* data = reinterpret_cast<const float*>(outputs[0].data);
  check(outputs[0].shape == std::vector<int64_t>{2} && data[0] == -1 && data[1] == -1,
        "runs after vendors failed");
}

}  // namespace
}  // namespace dvm::testing

int main() {
  using namespace dvm::testing;
  test_panels();
  test_dim_operators();
  test_bad_dims();
  test_chain_in_place();
  test_shapes_in_random_order();
  test_equal_kernels();
  test_kernels_compile_once();
  test_untouched_kernels_stay();
  test_threads();
  test_pieces_of_host_operators();
  test_short_lives();
  test_profiles_of_threads();
  test_failed_run_leaves_nothing_behind();
  test_failed_segments_leave_nothing_behind();
  for (const int cores : {1, 2, 3}) test_failed_compilations(cores);
  for (const int64_t n : {4, 5, 1009}) test_compiling_ahead(n);
  return report();
}
