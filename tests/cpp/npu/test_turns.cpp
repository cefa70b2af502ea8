// Turns and loops on the host device: every tile runs once a turn, stages of a turn are ordered,
// loops know nothing of each other, and a trap ends them all. Also run under the thread sanitizer.
#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "check.h"
#include "stages.h"

namespace dvm::test {
namespace {

// Counts turns, and that every tile of the turn before ran once, stage behind stage.
class CountedTurns final : public Turns {
 public:
  CountedTurns(std::span<const std::unique_ptr<Stage>> stages, int turns)
      : stages_(stages), turns_(turns) {}

  bool begin() noexcept override {
    for (const auto& stage : stages_) {
      for (const auto& record : stage->records) {
        for (const int64_t runs : record->plain) right_ &= runs == begun_ || record->trap_at >= 0;
      }
    }
    return begun_ < turns_ && ++begun_ > 0;
  }
  int begun() const { return begun_; }
  bool right() const { return right_; }

 private:
  const std::span<const std::unique_ptr<Stage>> stages_;
  const int turns_;
  int begun_ = 0;
  bool right_ = true;
};

// Writes, tile by tile, one more than the least of what the stage before left: of the same turn, or
// of the one before.
struct Link {
  const std::vector<int64_t>* before;
  std::vector<int64_t> own;
};

void run_link(const Program&, const InstructionTable&, Core&, std::byte* const* buffers,
              int64_t begin, int64_t end, int64_t) {
  Link& link = *reinterpret_cast<Link*>(buffers[0]);
  for (int64_t tile = begin; tile < end; tile++) {
    link.own[static_cast<size_t>(tile)] = 1 + *std::ranges::min_element(*link.before);
  }
}

// Turns of several stages: every tile once a turn, stages in order, whoever works at them.
void test_turns(int cores, std::chrono::microseconds spin) {
  HostDevice device = make_device(cores, spin);
  Random random(static_cast<uint64_t>(cores) + 7);
  for (int round = 0; round < 60; round++) {
    context = std::to_string(cores) + " cores, turns " + std::to_string(round);
    std::vector<std::unique_ptr<Stage>> stages;
    std::vector<Task> tasks;
    std::vector<size_t> ends;
    for (int64_t i = random.integer(0, 4); i > 0; i--) {
      Stage& stage = *stages.emplace_back(std::make_unique<Stage>());
      for (int64_t t = random.integer(0, 3); t > 0; t--) {
        stage.add(random.integer(0, 20), random.integer(1, 5), some_program());
      }
      tasks.insert(tasks.end(), stage.tasks.begin(), stage.tasks.end());
      ends.push_back(tasks.size());
    }
    CountedTurns turns(stages, static_cast<int>(random.integer(0, 40)));
    CHECK(device.run_turns(tasks, ends, turns).kind == TrapKind::none);
    CHECK(turns.right());
    Stage after;
    after.add(random.integer(0, 20), 2, some_program());
    CHECK(device.run(after.tasks).kind == TrapKind::none);
    for (const int64_t runs : after.records[0]->plain) CHECK(runs == 1);
  }
}

void test_order_of_turns(int cores) {
  Target target;
  target.local_bytes = 1 << 10;
  HostDevice device(cores, best_table(), target, {std::chrono::microseconds(1000), &run_link});
  for (int round = 0; round < 20; round++) {
    context = "links " + std::to_string(round);
    Link links[3];
    std::byte* buffers[3];
    std::vector<Task> tasks;
    const size_t ends[] = {1, 2, 3};
    for (size_t i = 0; i < 3; i++) {
      links[i] = {&links[(i + 2) % 3].own, std::vector<int64_t>(i == 1 ? 1 : 6)};
      buffers[i] = reinterpret_cast<std::byte*>(&links[i]);
      tasks.push_back({some_program(), &buffers[i], i == 1 ? 1 : 6, 1});
    }
    CountedTurns turns({}, 500);
    CHECK(device.run_turns(tasks, ends, turns).kind == TrapKind::none);
    for (const int64_t last : links[2].own) CHECK(last == 3 * 500);
  }
}

// Loops know nothing of each other: each runs its tasks in order, in as many turns as it has.
void test_loops(int cores, std::chrono::microseconds spin) {
  HostDevice device = make_device(cores, spin);
  Random random(static_cast<uint64_t>(cores) + 9);
  for (int round = 0; round < 60; round++) {
    context = std::to_string(cores) + " cores, loops " + std::to_string(round);
    std::vector<std::vector<std::unique_ptr<Stage>>> stages(
        static_cast<size_t>(random.integer(0, 5)));
    std::deque<CountedTurns> turns;
    std::vector<TurnLoop> loops;
    for (auto& of_loop : stages) {
      Stage& stage = *of_loop.emplace_back(std::make_unique<Stage>());
      for (int64_t t = random.integer(0, 3); t > 0; t--) {
        stage.add(random.integer(0, 20), random.integer(1, 5), some_program());
      }
      turns.emplace_back(of_loop, static_cast<int>(random.integer(0, 40)));
      loops.push_back({stage.tasks, &turns.back()});
    }
    CHECK(device.run_loops(loops).kind == TrapKind::none);
    for (CountedTurns& loop : turns) CHECK(!loop.begin() && loop.right());
    Stage after;
    after.add(random.integer(0, 20), 2, some_program());
    CHECK(device.run(after.tasks).kind == TrapKind::none);
    for (const int64_t runs : after.records[0]->plain) CHECK(runs == 1);
  }
}

// A trap ends all loops, and says in which task of all.
void test_trapped_loop(int cores) {
  HostDevice device = make_device(cores, std::chrono::microseconds(1000));
  for (uint32_t at = 0; at < 6; at++) {
    context = "trapped loop " + std::to_string(at);
    Stage stages[3];
    std::deque<CountedTurns> turns;
    std::vector<TurnLoop> loops;
    for (uint32_t i = 0; i < 3; i++) {
      for (uint32_t t = 0; t < 2; t++) {
        stages[i].add(4, 1, some_program());
        if (2 * i + t == at) stages[i].records.back()->trap_at = 2;
      }
      turns.emplace_back(std::span<const std::unique_ptr<Stage>>{}, at == 2 * i + 1 ? 50 : 3);
      loops.push_back({stages[i].tasks, &turns.back()});
    }
    const Trap trap = device.run_loops(loops);
    CHECK(trap.kind == TrapKind::index_out_of_range && trap.task == at);
    CountedTurns others({}, 10);
    const TurnLoop other{{}, &others};
    CHECK(device.run_loops({&other, 1}).kind == TrapKind::none && others.begun() == 10);
  }
}

// A trap ends the turns, and says in which task of all.
void test_trapped_turns(int cores) {
  HostDevice device = make_device(cores, std::chrono::microseconds(500));
  for (int i = 0; i < 60; i++) {
    context = "trapped turns " + std::to_string(i);
    std::vector<std::unique_ptr<Stage>> stages;
    std::vector<Task> tasks;
    for (const int64_t tiles : {12, 1, 12}) {
      stages.push_back(std::make_unique<Stage>());
      stages.back()->add(tiles, 1, some_program());
      tasks.push_back(stages.back()->tasks[0]);
    }
    const auto at = static_cast<size_t>(i % 3);
    stages[at]->records[0]->trap_at = at == 1 ? 0 : i % 12;
    const size_t ends[] = {1, 2, 3};
    CountedTurns turns(stages, 50);
    const Trap trap = device.run_turns(tasks, ends, turns);
    CHECK(trap.kind == TrapKind::index_out_of_range && trap.task == at && turns.begun() == 1);
    stages[at]->records[0]->trap_at = -1;
    CountedTurns others({}, 10);
    CHECK(device.run_turns(tasks, ends, others).kind == TrapKind::none && others.begun() == 10);
  }
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  using std::chrono::microseconds;
  for (const int cores : {1, 2, 3, 8}) {
    test_turns(cores, microseconds(1000));
    test_turns(cores, microseconds(0));
    test_order_of_turns(cores);
    test_trapped_turns(cores);
    test_loops(cores, microseconds(1000));
    test_loops(cores, microseconds(0));
    test_trapped_loop(cores);
  }
  return report("turns");
}
