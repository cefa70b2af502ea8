// Tests of the runtime below Python: dims, memory, and the executor under threads. Built with a
// sanitizer (DVM_SANITIZE) they also look for races and leaks.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "models.h"
#include "npu/host/levels.h"
#include "runtime/errors.h"
#include "runtime/kernel_table.h"
#include "runtime/output_pool.h"
#include "runtime/panel_packing.h"
#include "runtime/schedule.h"
#include "vm/panels.h"

namespace dvm::testing {
namespace {

std::atomic<int> failures{0};

void check(bool holds, const std::string& what) {
  if (holds) return;
  failures++;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

template <typename Error, typename Action>
void check_throws(const Action& action, const std::string& what) {
  try {
    action();
  } catch (const Error&) {
    return;
  }
  check(false, what + " does not throw");
}

// -- packed weights

// B is a view with the given order of axes in a buffer; every element is where the layout says.
void check_panels(const Level& level, int64_t k, int64_t n, bool transposed) {
  const Target target = host_target(2, *level.table);
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

// -- memory

void test_memory_plans() {
  std::mt19937 random(5);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  MemoryPlanner planner;
  for (int round = 0; round < 200; round++) {
    std::vector<BufferRequest> requests(static_cast<size_t>(draw(0, 40)));
    int64_t sum = 0;
    for (BufferRequest& request : requests) {
      request = {draw(0, 3) * draw(0, 5000), draw(0, 20), 0, 0};
      request.last = request.first + draw(0, 6);
      sum += (request.bytes + 63) / 64 * 64;
    }
    std::vector<char> taken(requests.size());
    for (size_t i = 0; i < requests.size(); i++) {
      for (size_t j = 0; j < requests.size() && requests[i].over < 0; j++) {
        const bool ends = requests[j].first < requests[j].last && !taken[j];
        if (ends && requests[j].last == requests[i].first && draw(0, 1) == 1) {
          requests[i].over = static_cast<int32_t>(j);
          taken[j] = 1;
        }
      }
    }
    const int64_t total = planner.plan(requests);
    check(total <= sum, "a plan is no larger than no plan");
    for (size_t i = 0; i < requests.size(); i++) {
      const BufferRequest& a = requests[i];
      check(a.offset % 64 == 0 && a.offset >= 0 && a.offset + a.bytes <= total, "placed inside");
      for (size_t j = 0; j < i; j++) {
        const BufferRequest& b = requests[j];
        const bool alive = a.first <= b.last && b.first <= a.last;
        const bool meet = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        const bool over = a.over == static_cast<int32_t>(j) && a.bytes <= b.bytes;
        const bool under = b.over == static_cast<int32_t>(i) && b.bytes <= a.bytes;
        if (over || under) {
          check(a.offset == b.offset, "written over what fits");
        } else {
          check(!alive || !meet, "live buffers are apart");
        }
      }
    }
  }
  std::vector<BufferRequest> huge(3, {std::numeric_limits<int64_t>::max() / 2, 0, 1, 0});
  check_throws<OutOfMemoryError>([&] { planner.plan(huge); }, "an overflowing plan");
}

// x -> a -> b -> y, element by element; `change` may spoil writing b over a. Whether it is written
// so.
bool written_over(const std::function<void(Model&, uint32_t a, uint32_t b)>& change) {
  Model model = empty_model();
  const uint32_t x = add_vector(model, "x", Storage::input);
  const uint32_t a = add_vector(model, "a", Storage::arena);
  const uint32_t b = add_vector(model, "b", Storage::arena);
  const uint32_t y = add_vector(model, "y", Storage::output);
  add_launch(model, {add_map(model, PlanOp::abs_, {x}, a)});
  add_launch(model, {add_map(model, PlanOp::neg_, {a}, b)});
  add_launch(model, {add_map(model, PlanOp::neg_, {b}, y)});
  change(model, a, b);
  const Schedule schedule = make_schedule(model);
  const Segment& segment = schedule.segments[0];
  for (size_t i = 0; i < segment.arena.size(); i++) {
    const int32_t over = segment.over[i];
    if (segment.arena[i] == b) return over >= 0 && segment.arena[static_cast<size_t>(over)] == a;
  }
  return false;
}

LaunchStage& stage_of(Model& model, size_t step) {
  return std::get<LaunchStage>(model.steps[step]);
}

void test_written_over() {
  const auto plan = [](Model& model) -> KernelPlan& { return model.kernels[1].plan; };
  check(written_over([](Model&, uint32_t, uint32_t) {}), "an element-wise kernel");
  check(!written_over([&](Model& m, uint32_t, uint32_t) { plan(m).accesses[0].strides = {2}; }),
        "read with other strides");
  check(!written_over([&](Model& m, uint32_t, uint32_t) { plan(m).accesses[0].offset = kOne; }),
        "read at other places");
  check(!written_over([&](Model& m, uint32_t, uint32_t) {
    plan(m).nodes[0].axes = 0;
    plan(m).nodes[1].axes = 0;
  }),
        "read for several points");
  check(!written_over([](Model& m, uint32_t a, uint32_t) { m.values[a].dtype = DType::f16; }),
        "elements of another size");
  check(!written_over([](Model& m, uint32_t a, uint32_t) {
    const uint32_t z = add_vector(m, "z", Storage::output);
    add_launch(m, {add_map(m, PlanOp::neg_, {a}, z)});
  }),
        "read later");
  check(!written_over([](Model& m, uint32_t a, uint32_t) {
    const uint32_t z = add_vector(m, "z", Storage::output);
    stage_of(m, 1).calls.push_back(add_map(m, PlanOp::neg_, {a}, z));
  }),
        "read by another kernel of the stage");
  const auto used_behind = [&](int32_t input) {  // z = -b + input, once b is written
    return !written_over([&](Model& m, uint32_t, uint32_t) {
      const uint32_t z = add_vector(m, "z", Storage::output);
      KernelPlan& changed = plan(m);
      PlanNode sum = changed.nodes[1], store = changed.nodes[2];
      sum.op = PlanOp::add_;
      sum.inputs[0] = 1;
      sum.inputs[1] = input;
      changed.accesses.push_back({static_cast<int32_t>(z), kNoSlot, {kOne}, false});
      store.inputs[0] = 3;
      store.access = 2;
      changed.nodes.push_back(sum);
      changed.nodes.push_back(store);
    });
  };
  check(used_behind(0), "used behind what is stored");
  check(used_behind(1), "a result of it used behind what is stored");
  const auto with_fallback = [](bool reads_again) {
    return written_over([=](Model& m, uint32_t a, uint32_t b) {
      const uint32_t t = add_vector(m, "t", Storage::arena);
      const uint32_t first = add_map(m, PlanOp::abs_, {a}, reads_again ? b : t);
      const uint32_t second =
          reads_again ? add_map(m, PlanOp::neg_, {a}, t) : add_map(m, PlanOp::neg_, {t}, b);
      m.calls[1].fallback = {first, second};
    });
  };
  check(with_fallback(false), "a fallback that reads it first");
  check(!with_fallback(true), "a fallback that reads it again");
}

// Whether the page at an address is in memory.
bool resident(const std::byte* address) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char state = 0;
  void* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) / page * page);
  return mincore(start, 1, &state) == 0 && (state & 1) != 0;
}

void test_arena_keeps_pages() {
  constexpr int64_t kLarge = int64_t{16} << 20;
  Arena arena;
  arena.reserve(kLarge);
  for (int64_t i = 0; i < kLarge; i += 4096) arena.data()[i] = std::byte{1};
  arena.grow(4 * kLarge);
  check(resident(arena.data()) && resident(arena.data() + kLarge - 1), "pages stay when it grows");
  check(!resident(arena.data() + 4 * kLarge - 1), "new pages are taken when they are touched");
  for (int64_t i = 0; i < 4 * kLarge; i += 4096) arena.data()[i] = std::byte{1};
  for (int i = 0; i < Arena::kPatience; i++) arena.reserve(kLarge / 2);
  check(arena.capacity() == kLarge / 2 && resident(arena.data()), "pages stay when it shrinks");
  arena.grow(4 * kLarge);
  check(!resident(arena.data() + 4 * kLarge - 1), "the others were given back");
}

void test_arena() {
  constexpr int64_t kLarge = int64_t{64} << 20;
  Arena arena;
  check(arena.reserve(kLarge) && arena.capacity() == kLarge, "grows");
  for (int i = 1; i < Arena::kPatience; i++) check(!arena.reserve(100 * i), "waits");
  check(arena.reserve(10) && arena.capacity() == 100 * (Arena::kPatience - 1),
        "shrinks to what recent runs needed");
  arena.data()[0] = std::byte{1};
  check_throws<OutOfMemoryError>([&] { arena.reserve(int64_t{1} << 60); }, "an impossible arena");
  check(arena.reserve(1000) && arena.data() != nullptr, "recovers");
}

void test_output_pool() {
  constexpr int64_t kLarge = int64_t{8} << 20;
  auto pool = std::make_unique<OutputPool>();
  std::shared_ptr<void> first = pool->take(kLarge, "an output");
  const void* const address = first.get();
  std::shared_ptr<void> second = pool->take(kLarge, "an output");
  check(second != nullptr && second.get() != address, "live outputs are apart");
  pool->end_run();
  first.reset();
  check(pool->unused_bytes() == kLarge, "memory comes back");
  const std::shared_ptr<void> larger = pool->take(kLarge + 1, "a larger output");
  check(larger.get() != address, "too small to serve");
  check(pool->take(kLarge / 2, "an output").get() == address, "memory serves again");
  check(pool->take(100, "a small output") != nullptr, "small outputs");
  pool->end_run();

  std::vector<std::shared_ptr<void>> kept(OutputPool::kRecentRuns + 1);
  for (auto& output : kept) {
    output = pool->take(kLarge, "an output");
    pool->end_run();
  }
  kept.clear();
  check(pool->unused_bytes() == kLarge, "no more than one run's outputs is held");
  for (size_t i = 0; i < OutputPool::kRecentRuns; i++) {
    check(pool->unused_bytes() == kLarge, "held while recent runs took as much");
    pool->take(OutputPool::kSmallest, "an output");
    pool->end_run();
  }
  check(pool->unused_bytes() <= 2 * OutputPool::kSmallest, "shrinks to what recent runs took");
  check_throws<OutOfMemoryError>([&] { pool->take(int64_t{1} << 60, "an output"); }, "too much");

  pool.reset();
  static_cast<std::byte*>(second.get())[kLarge - 1] = std::byte{1};
  second.reset();  // after its pool
}

// -- executor

std::shared_ptr<SharedDevice> device() { return shared_device({2, "", 0}); }

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
      executor.run(std::span(&input, 1), {}, profiled);
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
  check(table.bound.size() == 2 && table.bound[0].arguments[0] == x &&
            table.bound[0].arguments[1] == model.outputs[0] &&
            table.bound[1].arguments[1] == model.outputs[1],
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

// Partition 0 gives as many of its input's elements as it is told to; both can be told to fail.
class FakeVendor final : public VendorLibrary {
 public:
  explicit FakeVendor(int& failing) : failing_(failing) {}
  void run(uint32_t partition, std::span<const Tensor> inputs, std::span<Tensor> outputs) override {
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
  model.steps.emplace_back(VendorCall{0, {x}, {v}, "first"});
  model.steps.emplace_back(VendorCall{1, {x}, {w}, "second"});
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
  test_memory_plans();
  test_written_over();
  test_chain_in_place();
  test_arena();
  test_arena_keeps_pages();
  test_output_pool();
  test_shapes_in_random_order();
  test_equal_kernels();
  test_kernels_compile_once();
  test_untouched_kernels_stay();
  test_threads();
  test_profiles_of_threads();
  test_failed_run_leaves_nothing_behind();
  test_failed_segments_leave_nothing_behind();
  std::printf("%d failures\n", failures.load());
  return failures == 0 ? 0 : 1;
}
