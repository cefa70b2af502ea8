// The host device: every tile runs exactly once whatever the claims and the number of cores, stages
// are ordered, traps end a stage, and devices start and stop cleanly. The runner is the test's own,
// so that the cores are tested without the interpreter. Also run under the thread sanitizer.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "check.h"
#include "stages.h"

namespace dvm::test {
namespace {

void test_stages(int cores, std::chrono::microseconds spin, int stages) {
  HostDevice device = make_device(cores, spin);
  Random random(static_cast<uint64_t>(cores));
  for (int s = 0; s < stages; s++) {
    context = std::to_string(cores) + " cores, stage " + std::to_string(s);
    Stage stage;
    const int64_t count = random.integer(0, 4);
    for (int64_t t = 0; t < count; t++) {
      stage.add(random.integer(0, 60), random.integer(1, 5), some_program());
    }
    const int repeats = static_cast<int>(random.integer(1, 5));
    for (int r = 0; r < repeats; r++) {
      device.submit(stage.tasks);
      if (random.chance(0.2)) std::this_thread::yield();
      if (random.chance(0.01)) std::this_thread::sleep_for(2 * spin);
      CHECK(device.finish().kind == TrapKind::none);
    }
    for (const auto& record : stage.records) {
      CHECK(!record->misaligned);
      for (size_t i = 0; i < record->plain.size(); i++) {
        CHECK(record->runs[i] == repeats && record->plain[i] == repeats);
      }
    }
  }
}

void test_traps(int cores) {
  HostDevice device = make_device(cores, std::chrono::microseconds(20));
  for (int i = 0; i < 200; i++) {
    context = "trap " + std::to_string(i);
    Stage stage;
    stage.add(100, 3, some_program());
    stage.add(50, 1, some_program());
    stage.records[1]->trap_at = i % 50;
    const Trap trap = device.run(stage.tasks);
    CHECK(trap.kind == TrapKind::index_out_of_range && trap.tile == i % 50);
    stage.records[1]->trap_at = -1;
    CHECK(device.run(stage.tasks).kind == TrapKind::none);
  }
}

void test_lifetimes() {
  for (int i = 0; i < 30; i++) {
    HostDevice device = make_device(1 + i % 4, std::chrono::microseconds(i % 3 * 50));
    if (i % 2 == 0) continue;  // destroyed without any stage
    Stage stage;
    stage.add(10, 1, some_program());
    device.run(stage.tasks);
    device.finish();  // without a stage: nothing
  }
}

// Every tile of every task is in one span of the core that ran it, under the task's tag.
void test_records(int cores) {
  constexpr uint32_t kTags = 5;
  HostDevice device = make_device(cores, std::chrono::microseconds(20));
  Random random(static_cast<uint64_t>(cores));
  std::vector<CoreRecord> records(static_cast<size_t>(cores));
  for (CoreRecord& record : records) record.times.resize(kTags);
  std::vector<int64_t> expected(kTags), recorded(kTags);
  for (int s = 0; s < 200; s++) {
    context = std::to_string(cores) + " cores, recorded stage " + std::to_string(s);
    const bool recording = s % 3 != 0;
    device.record(recording ? std::span(records) : std::span<CoreRecord>());
    Stage stage;
    for (uint32_t tag = 0; tag < kTags; tag++) {
      const int64_t tiles = random.integer(0, 30);
      stage.add(tiles, random.integer(1, 5), some_program());
      stage.tasks.back().tag = tag;
      if (recording) expected[tag] += tiles;
    }
    CHECK(device.run(stage.tasks).kind == TrapKind::none);
  }
  device.record({});
  for (const CoreRecord& record : records) {
    int64_t last = 0;
    for (const CoreSpan& span : record.spans) {
      CHECK(span.start_ns >= last && span.end_ns >= span.start_ns && span.tiles > 0);
      last = span.end_ns;
      recorded[span.tag] += span.tiles;
    }
  }
  CHECK(recorded == expected);
}

// A core claims its share from one end and the next stage's from the other; what it takes from
// others it takes from the end that they come to last.
void test_order() {
  static std::vector<int64_t> order;
  const auto note = [](const Program&, const InstructionTable&, Core&, std::byte* const*,
                       int64_t begin, int64_t end, int64_t) {
    for (int64_t tile = begin; tile < end; tile++) order.push_back(tile);
  };
  Target target;
  target.local_bytes = 1 << 10;
  HostDevice device(1, best_table(), target, {std::chrono::microseconds(0), note});
  const std::vector<int64_t> orders[] = {{0, 1, 2, 3, 4, 5, 6}, {6, 4, 5, 2, 3, 0, 1}};
  for (int s = 0; s < 4; s++) {
    context = "order of stage " + std::to_string(s);
    order.clear();
    Stage stage;
    stage.add(7, 2, some_program());
    device.run(stage.tasks);
    CHECK(order == orders[s % 2]);
  }
}

// Cores that keep step with each other run what they were dealt: the same share of every task.
struct InStep {
  std::atomic<int> ran[2] = {};  // tiles, by the caller and by the worker
  std::thread::id caller;
};

struct SharedTask {
  InStep* step;
  std::vector<int> core;  // that ran a tile
};

void run_in_step(const Program&, const InstructionTable&, Core&, std::byte* const* buffers,
                 int64_t begin, int64_t end, int64_t) {
  SharedTask& task = *reinterpret_cast<SharedTask*>(buffers[0]);
  const int own = std::this_thread::get_id() == task.step->caller ? 0 : 1;
  for (int64_t tile = begin; tile < end; tile++) task.core[static_cast<size_t>(tile)] = own;
  const int ran = ++task.step->ran[own];
  while (task.step->ran[1 - own] < ran) std::this_thread::yield();
}

void test_shares() {
  Target target;
  HostDevice device(2, best_table(), target, {std::chrono::microseconds(50), &run_in_step});
  struct Case {
    std::vector<int64_t> tiles, of_caller;
    int64_t claim;
  };
  // What is odd goes to the caller, and evens out over the tasks.
  const Case cases[] = {{{12, 6, 2}, {6, 3, 1}, 1},
                        {{1, 1, 1, 1}, {1, 0, 1, 0}, 1},
                        {{3, 5, 0, 4}, {2, 2, 0, 2}, 1},
                        {{7, 1, 8, 2}, {4, 1, 4, 0}, 2}};
  for (int s = 0; s < 40; s++) {
    context = "shares of stage " + std::to_string(s);
    const Case& expected = cases[s % 4];
    InStep step;
    step.caller = std::this_thread::get_id();
    std::vector<SharedTask> shared;
    std::vector<std::byte*> buffers;
    std::vector<Task> tasks;
    for (const int64_t tiles : expected.tiles) {
      shared.push_back({&step, std::vector<int>(static_cast<size_t>(tiles))});
    }
    for (SharedTask& task : shared) buffers.push_back(reinterpret_cast<std::byte*>(&task));
    for (size_t i = 0; i < shared.size(); i++) {
      tasks.push_back({some_program(), &buffers[i], expected.tiles[i], expected.claim});
    }
    CHECK(device.run(tasks).kind == TrapKind::none);
    for (size_t i = 0; i < shared.size(); i++) {
      for (int64_t tile = 0; tile < expected.tiles[i]; tile++) {
        CHECK(shared[i].core[static_cast<size_t>(tile)] == (tile < expected.of_caller[i] ? 0 : 1));
      }
    }
  }
}

// A single claim is the caller's, also where workers wait awake; its trap and its tiles are told.
void test_single_claims() {
  static std::atomic<int> elsewhere;
  static std::thread::id caller;
  elsewhere = 0;
  caller = std::this_thread::get_id();
  const auto note = [](const Program& program, const InstructionTable& table, Core& core,
                       std::byte* const* buffers, int64_t begin, int64_t end, int64_t next) {
    if (std::this_thread::get_id() != caller) elsewhere++;
    run_record(program, table, core, buffers, begin, end, next);
  };
  Target target;
  target.local_bytes = 1 << 10;
  HostDevice device(3, best_table(), target, {std::chrono::microseconds(1000), note});
  device.wake();
  for (int i = 0; i < 300; i++) {
    context = "single claim of stage " + std::to_string(i);
    Stage stage;
    stage.add(0, 1, some_program());
    stage.add(5, 5 + i % 2, some_program());
    if (i % 7 == 0) stage.records[1]->trap_at = 3;
    device.submit(stage.tasks);
    CHECK(!device.has_unclaimed_tiles());
    const Trap trap = device.finish();
    CHECK((trap.kind == TrapKind::index_out_of_range) == (i % 7 == 0));
    CHECK(trap.kind == TrapKind::none || (trap.task == 1 && trap.tile == 3));
    CHECK(device.finish().kind == TrapKind::none);
    CHECK(elsewhere == 0);
    for (int64_t tile = 0; tile < 5; tile++) {
      CHECK(stage.records[1]->plain[tile] == (i % 7 == 0 && tile >= 3 ? 0 : 1));
    }
    if (i % 50 != 0) continue;
    Stage many;  // the workers still come to the next stage
    many.add(100, 1, some_program());
    device.run(many.tasks);
    for (const int64_t runs : many.records[0]->plain) CHECK(runs == 1);
    elsewhere = 0;
  }
}

// Waking parked cores starts nothing; a stage behind it finds every tile once.
void test_waking() {
  HostDevice device = make_device(3, std::chrono::microseconds(0));
  for (int i = 0; i < 300; i++) {
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (int wakes = 0; wakes < i % 4; wakes++) device.wake();
    Stage stage;
    stage.add(10, 1, some_program());
    context = "woken before stage " + std::to_string(i);
    device.submit(stage.tasks);
    CHECK(device.finish().kind == TrapKind::none);
    CHECK(!device.has_unclaimed_tiles());
    for (const int64_t runs : stage.records[0]->plain) CHECK(runs == 1);
  }
}

// Where tiles ran that the calling thread did not run itself.
struct Places {
  std::thread::id caller;
  std::atomic<int> elsewhere{0};  // tiles of workers
  std::atomic<int> beside{0};     // of them on the CPU `of_caller`
  int of_caller = -1;
  cpu_set_t* of_worker = nullptr;  // where it may run
};

// The caller's tile lasts until a worker has run one, however late it comes.
void run_places(const Program&, const InstructionTable&, Core&, std::byte* const* buffers, int64_t,
                int64_t, int64_t) {
  Places& places = *reinterpret_cast<Places*>(buffers[0]);
  if (std::this_thread::get_id() != places.caller) {
    const int cpu = sched_getcpu();
    cpu_set_t may_run;
    sched_getaffinity(0, sizeof may_run, &may_run);
    // Later the caller may have given up its CPU for this thread.
    if (places.elsewhere == 0) {
      if (cpu == places.of_caller) places.beside++;
      if (places.of_worker != nullptr) *places.of_worker = may_run;
    }
    places.elsewhere++;
    return;
  }
  while (places.elsewhere.load() == 0) std::this_thread::yield();
}

// Workers run on other CPUs than the thread that woke them, wherever it moves.
void test_placement() {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  Target target;
  const int cores = std::min(CPU_COUNT(&all), 4);
  if (cores < 2) return;  // nowhere else to run
  HostDevice device(cores, best_table(), target, {std::chrono::microseconds(0), &run_places});
  int round = 0;
  for (int cpu = 0; round < 8; cpu = (cpu + 1) % CPU_SETSIZE) {
    if (!CPU_ISSET(cpu, &all)) continue;
    context = "called from CPU " + std::to_string(cpu);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    Places places;
    places.caller = std::this_thread::get_id();
    places.of_caller = cpu;
    std::byte* buffers[] = {reinterpret_cast<std::byte*>(&places)};
    const Task task{some_program(), buffers, 2 * cores, 1};
    device.wake();
    CHECK(device.run({&task, 1}).kind == TrapKind::none);
    CHECK(places.elsewhere > 0 && places.beside == 0);
    round++;
  }
  CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

// Workers follow when the process is given more CPUs than it had when the device was made.
void test_placement_on_other_cpus() {
  context = "given more CPUs";
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  HostDevice device(2, best_table(), Target{}, {std::chrono::microseconds(0), &run_places});
  device.wake();  // nowhere to keep off
  CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
  cpu_set_t workers;
  Places places;
  places.caller = std::this_thread::get_id();
  places.of_worker = &workers;
  std::byte* buffers[] = {reinterpret_cast<std::byte*>(&places)};
  const Task task{some_program(), buffers, 4, 1};
  int caller;
  do {
    caller = sched_getcpu();
    device.wake();
  } while (sched_getcpu() != caller);
  CHECK(device.run({&task, 1}).kind == TrapKind::none);
  CHECK(!CPU_ISSET(caller, &workers) && CPU_COUNT(&workers) == CPU_COUNT(&all) - 1);
}

void run_nothing(const Program&, const InstructionTable&, Core&, std::byte* const*, int64_t,
                 int64_t, int64_t) {}

// In a forked process, which has no workers, a device leaves the caller where it wants to run.
void test_placement_after_fork() {
  context = "forked";
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
  Target target;
  HostDevice device(2, best_table(), target, {std::chrono::microseconds(0), &run_nothing});
  const pid_t child = fork();
  if (child == 0) {
    bool stayed = true;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (!CPU_ISSET(cpu, &all)) continue;
      cpu_set_t one, now;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      std::byte* buffers[] = {nullptr};
      const Task task{some_program(), buffers, 8, 1};
      device.wake();
      device.run({&task, 1});
      stayed &= sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&one, &now);
    }
    _exit(stayed ? 0 : 1);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

// Counts its runs; goes on until it is let go.
struct CountedErrand final : Errand {
  std::atomic<int> begun{0}, ended{0};
  std::atomic<bool> may_end{true};
  void run() noexcept override {
    begun++;
    while (!may_end) std::this_thread::yield();
    ended++;
  }
};

constexpr std::chrono::microseconds kLongSpin = std::chrono::seconds(20);

void wait_for(const std::atomic<int>& count, int wanted) {
  for (int i = 0; i < 20000 && count < wanted; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A worker that waits does an errand once; stages do not wait for it, recall does.
void test_errands(int cores) {
  context = std::to_string(cores) + " cores, errands";
  HostDevice device = make_device(cores, kLongSpin);
  CountedErrand errand;
  const int workers = cores > 1 ? 1 : 0;
  for (int i = 1; i <= 20; i++) {
    device.standby()->post(errand);
    if (workers > 0) wait_for(errand.ended, i);
    CHECK(errand.begun == i * workers && errand.ended == i * workers);
  }
  errand.may_end = false;
  device.standby()->post(errand);
  if (workers > 0) wait_for(errand.begun, 21);
  Stage stage;
  stage.add(50, 1, some_program());
  CHECK(device.run(stage.tasks).kind == TrapKind::none);
  for (const int64_t runs : stage.records[0]->plain) CHECK(runs == 1);
  CHECK(errand.ended == 20 * workers);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    errand.may_end = true;
  });
  device.standby()->recall(errand);
  CHECK(errand.ended == errand.begun);
  release.join();
}

// Nobody begins an errand once it is recalled.
void test_recalled_errands() {
  context = "recalled errands";
  HostDevice device = make_device(3, kLongSpin);
  for (int i = 0; i < 2000; i++) {
    CountedErrand errand;
    device.standby()->post(errand);
    if (i % 3 == 0) std::this_thread::yield();
    device.standby()->recall(errand);
    const int begun = errand.begun;
    CHECK(begun <= 1 && errand.ended == begun);
  }
}

// An errand is withdrawn, or it runs.
void test_withdrawn_errands() {
  context = "withdrawn errands";
  HostDevice device = make_device(3, kLongSpin);
  for (int i = 0; i < 2000; i++) {
    CountedErrand errand;
    device.standby()->post(errand);
    if (i % 3 == 0) std::this_thread::yield();
    const bool withdrawn = device.standby()->withdraw(errand);
    if (!withdrawn) wait_for(errand.ended, 1);
    CHECK(!device.standby()->has_errand() && errand.ended == (withdrawn ? 0 : 1));
    device.standby()->recall(errand);
  }
  HostDevice alone = make_device(1, kLongSpin);
  CHECK(!alone.standby()->waits());
}

void test_two_devices() {
  std::thread other([] { test_stages(2, std::chrono::microseconds(10), 200); });
  HostDevice device = make_device(2, std::chrono::microseconds(10));
  for (int i = 0; i < 200; i++) {
    Stage stage;
    stage.add(40, 1, some_program());
    device.run(stage.tasks);
  }
  other.join();
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  using std::chrono::microseconds;
  for (const int cores : {1, 2, 3, 8}) {
    test_stages(cores, microseconds(50), 300);
    test_stages(cores, microseconds(0), 300);
    test_traps(cores);
    test_records(cores);
  }
  for (const int cores : {1, 2, 4}) test_errands(cores);
  test_recalled_errands();
  test_withdrawn_errands();
  test_lifetimes();
  test_order();
  test_shares();
  test_single_claims();
  test_waking();
  test_placement();
  test_placement_on_other_cpus();
  test_placement_after_fork();
  test_two_devices();
  return report("device");
}
