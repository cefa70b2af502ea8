#include "npu/simulator/queues.h"

#include <map>
#include <utility>

#include "vm/interpret.h"
#include "vm/sync.h"

namespace dvm {
namespace {

// What the scalar unit has issued: registers are those of the tile.
struct Issue {
  std::vector<Core> tiles;
  std::vector<std::pair<size_t, const uint64_t*>> queues[kQueues];
};

thread_local Issue* issue = nullptr;

void record(Core& core, const uint64_t* words) {
  const Family family = family_of(head_of(words));
  const bool flag = family == Family::s_set_flag || family == Family::s_wait_flag;
  const uint64_t word = *extra_words(Form::sync, words);
  if (flag && !sync_runs(family, word, core.share_tile, core.share_tiles)) return;
  if (issue->tiles.empty() || issue->tiles.back().share_tile != core.share_tile) {
    issue->tiles.push_back(core);
  }
  issue->queues[static_cast<int>(queue_of(words))].emplace_back(issue->tiles.size() - 1, words);
}

class Run {
 public:
  Run(Issue& issued, const InstructionTable& table, Core& core, const uint64_t* body)
      : issued_(issued), table_(table), core_(core), body_(body) {}

  // Always the first queue of the order that may go on.
  bool by(const QueueOrder& order) {
    for (bool moved = true; moved && core_.trap.kind == TrapKind::none;) {
      moved = false;
      for (const Queue queue : order) {
        if (!advance(static_cast<int>(queue))) continue;
        moved = true;
        break;
      }
    }
    if (core_.trap.kind != TrapKind::none) return true;
    for (int queue = 0; queue < kQueues; ++queue) {
      if (next_[queue] < issued_.queues[queue].size()) return false;
    }
    return true;
  }

 private:
  bool advance(int queue) {
    if (next_[queue] == issued_.queues[queue].size()) return false;
    const auto [tile, words] = issued_.queues[queue][next_[queue]];
    const Head head = head_of(words);
    const Family family = family_of(head);
    if (family == Family::s_wait_flag || family == Family::s_set_flag) {
      int& signals = signals_[*extra_words(Form::sync, words)];
      if (family == Family::s_wait_flag && signals == 0) return false;
      signals += family == Family::s_set_flag ? 1 : -1;
    } else if (const Handler handler = table_.handlers[head.opcode]) {
      Core& core = issued_.tiles[tile];
      handler(core, words);
      if (core.trap.kind != TrapKind::none) {
        core_.trap = core.trap;
        core_.trap.pc = static_cast<uint32_t>(words - body_);
      }
    }
    ++next_[queue];
    return true;
  }

  Issue& issued_;
  const InstructionTable& table_;
  Core& core_;
  const uint64_t* const body_;
  size_t next_[kQueues] = {};
  std::map<uint64_t, int> signals_;
};

}  // namespace

std::vector<QueueOrder> adversarial_orders() {
  std::vector<QueueOrder> orders;
  for (int first = 0; first < kQueues; ++first) {
    for (int last = 0; last < kQueues; ++last) {
      if (first == last) continue;
      QueueOrder order{};
      size_t next = 1;
      for (int queue = 0; queue < kQueues; ++queue) {
        if (queue != first && queue != last) order[next++] = static_cast<Queue>(queue);
      }
      order.front() = static_cast<Queue>(first);
      order.back() = static_cast<Queue>(last);
      orders.push_back(order);
    }
  }
  return orders;
}

bool run_queues(const Program& program, const InstructionTable& table, Core& core,
                std::byte* const* buffers, int64_t begin, int64_t end, const QueueOrder& order) {
  static const InstructionTable recorder = [] {
    InstructionTable made{};
    for (Handler& handler : made.handlers) handler = record;
    return made;
  }();
  Issue issued;
  issue = &issued;
  run_tiles(program, recorder, core, buffers, begin, end);
  issue = nullptr;
  return Run(issued, table, core, program.body().data()).by(order);
}

}  // namespace dvm
