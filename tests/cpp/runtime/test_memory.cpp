// Tests of memory below Python: plans of buffers, values written over others, arenas and outputs.
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "checks.h"
#include "models.h"
#include "runtime/errors.h"
#include "runtime/output_pool.h"
#include "runtime/schedule.h"

namespace dvm::testing {
namespace {

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
    const int64_t cached = round % 2 * draw(0, 100000);
    const int64_t total = planner.plan(requests, cached);
    check(total <= sum, "a plan is no larger than no plan");
    const bool by_size = cached > 0 && sum <= cached;  // then it fits
    for (size_t i = 0; i < requests.size(); i++) {
      const BufferRequest& a = requests[i];
      check(a.offset % 64 == 0 && a.offset >= 0 && a.offset + a.bytes <= total, "placed inside");
      for (size_t j = 0; j < i; j++) {
        const BufferRequest& b = requests[j];
        const bool alive = a.first <= b.last && b.first <= a.last;
        const bool meet = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        const bool over = a.over == static_cast<int32_t>(j) && a.bytes <= b.bytes;
        const bool under = b.over == static_cast<int32_t>(i) && b.bytes <= a.bytes;
        const bool written_over = a.over >= 0 || b.over >= 0;
        check(!by_size || written_over || !meet || a.bytes == b.bytes, "sizes lie apart");
        if (over || under) {
          check(a.offset == b.offset, "written over what fits");
        } else {
          check(!alive || !meet, "live buffers are apart");
        }
      }
    }
  }
  std::vector<BufferRequest> huge(3, {std::numeric_limits<int64_t>::max() / 2, 0, 1, 0});
  for (const int64_t cached : {int64_t{0}, int64_t{1000}, std::numeric_limits<int64_t>::max()}) {
    check_throws<OutOfMemoryError>([&] { planner.plan(huge, cached); }, "an overflowing plan");
  }
  // One after the other: in one place, or each size in its own where there is room for both.
  std::vector<BufferRequest> sizes{{640, 0, 1}, {128, 2, 3}, {640, 4, 5}, {128, 6, 7}};
  for (const auto& [cached, bytes] : {std::pair{767, 640}, {768, 768}}) {
    check(planner.plan(sizes, cached) == bytes, "room for both sizes");
    check(sizes[0].offset == sizes[2].offset && sizes[1].offset == sizes[3].offset, "one size");
    check((sizes[0].offset == sizes[1].offset) == (bytes == 640), "two sizes");
  }
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
  check(pool->take(kLarge / OutputPool::kMostSlack / 2, "an output").get() != address,
        "no block is held by what needs a small part of it");
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
    check(pool->unused_bytes() >= kLarge, "held while recent runs took as much");
    pool->take(OutputPool::kSmallest, "an output");
    pool->end_run();
  }
  check(pool->unused_bytes() <= 2 * OutputPool::kSmallest, "shrinks to what recent runs took");
  check_throws<OutOfMemoryError>([&] { pool->take(int64_t{1} << 60, "an output"); }, "too much");
  pool->begin_run();
  pool->take(OutputPool::kSmallest, "an output");
  pool->end_run();
  pool->take(kLarge, "an output");
  pool->end_run();
  check(pool->unused_bytes() <= kLarge + kLarge / 2, "what a run that failed took is not counted");

  pool.reset();
  static_cast<std::byte*>(second.get())[kLarge - 1] = std::byte{1};
  second.reset();  // after its pool
}

}  // namespace
}  // namespace dvm::testing

int main() {
  using namespace dvm::testing;
  test_memory_plans();
  test_written_over();
  test_arena();
  test_arena_keeps_pages();
  test_output_pool();
  return report();
}
