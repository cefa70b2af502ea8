#include "npu/simulator/queues.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "vm/interpret.h"
#include "vm/sync.h"

namespace dvm {
namespace {

struct Issued {
  size_t tile;
  const uint64_t* words;
  int64_t lane;  // that a flag between cores is of
};

// What the scalar unit of a core has issued: registers are those of the tile.
struct Issue {
  std::vector<Core> tiles;
  std::vector<Issued> queues[kQueues];
  size_t next[kQueues] = {};
  int64_t group = 0, groups = 0, lane = 0;  // at hand

  bool done() const {
    for (int queue = 0; queue < kQueues; ++queue) {
      if (next[queue] < queues[queue].size()) return false;
    }
    return true;
  }
};

thread_local Issue* issue = nullptr;

void record(Core& core, const uint64_t* words) {
  const Family family = family_of(head_of(words));
  if (family == Family::s_wait_flag || family == Family::s_set_flag) {
    const uint64_t word = *extra_words(Form::sync, words);
    const bool runs = is_between_cores(word)
                          ? sync_runs(family, word, issue->group, issue->groups)
                          : sync_runs(family, word, core.share_tile, core.share_tiles);
    if (!runs) return;
  }
  if (issue->tiles.empty() || issue->tiles.back().share_tile != core.share_tile) {
    issue->tiles.push_back(core);
  }
  issue->queues[static_cast<int>(queue_of(words))].push_back(
      {issue->tiles.size() - 1, words, issue->lane});
}

void issue_all(const QueuedCore& of, Issue& issued) {
  static const InstructionTable recorder = [] {
    InstructionTable made{};
    for (Handler& handler : made.handlers) handler = record;
    return made;
  }();
  issue = &issued;
  const ProgramHeader& header = of.program->header();
  ShareWalk walk(header, of.groups, of.lane);
  issued.groups = walk.groups();
  for (TileRun run; walk.next(run);) {
    issued.group = run.group;
    issued.lane = header.in_pair() ? run.group % header.lanes : 0;
    std::byte* const slot =
        header.in_pair() ? slot_of(*of.program, of.buffers, of.number, run) : nullptr;
    run_of_share(*of.program, recorder, *of.core, of.buffers, run, walk.tiles(), slot);
  }
  issue = nullptr;
}

class Run {
 public:
  Run(std::span<const QueuedCore> cores, std::vector<Issue>& issues, const InstructionTable& table)
      : cores_(cores), issues_(issues), table_(table) {}

  // Always the first queue of the order that may go on.
  bool by(const QueueOrder& order) {
    while (step(order)) {
    }
    return trapped_ || std::all_of(issues_.begin(), issues_.end(),
                                   [](const Issue& issued) { return issued.done(); });
  }

 private:
  bool step(const QueueOrder& order) {
    for (size_t core = 0; core < cores_.size(); ++core) {
      for (const Queue queue : order) {
        if (advance(core, static_cast<int>(queue))) return !trapped_;
      }
    }
    return false;
  }

  bool advance(size_t number, int queue) {
    Issue& issued = issues_[number];
    if (issued.next[queue] == issued.queues[queue].size()) return false;
    const auto [tile, words, lane] = issued.queues[queue][issued.next[queue]];
    const Head head = head_of(words);
    const Family family = family_of(head);
    if (family == Family::s_wait_flag || family == Family::s_set_flag) {
      const uint64_t word = *extra_words(Form::sync, words);
      // Of a core, or between the cores of a lane.
      const auto whose = is_between_cores(word) ? lane : static_cast<int64_t>(number);
      int& signals = signals_[{word, whose}];
      if (family == Family::s_wait_flag && signals == 0) return false;
      signals += family == Family::s_set_flag ? 1 : -1;
    } else if (const Handler handler = table_.handlers[head.opcode]) {
      Core& core = issued.tiles[tile];
      handler(core, words);
      if (core.trap.kind != TrapKind::none) {
        Core& whole = *cores_[number].core;
        whole.trap = core.trap;
        whole.trap.pc = static_cast<uint32_t>(words - cores_[number].program->body().data());
        trapped_ = true;
      }
    }
    ++issued.next[queue];
    return true;
  }

  std::span<const QueuedCore> cores_;
  std::vector<Issue>& issues_;
  const InstructionTable& table_;
  bool trapped_ = false;
  std::map<std::pair<uint64_t, int64_t>, int> signals_;
};

}  // namespace

QueueRun queue_run_from_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"in_order", "adversarial", "audited"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<QueueRun>(i);
  }
  throw std::invalid_argument("no such run of queues: " + std::string(name));
}

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

bool run_queues(std::span<const QueuedCore> cores, const InstructionTable& table,
                const QueueOrder& order) {
  std::vector<Issue> issues(cores.size());
  for (size_t core = 0; core < cores.size(); ++core) issue_all(cores[core], issues[core]);
  return Run(cores, issues, table).by(order);
}

void run_in_order(std::span<const QueuedCore> cores, const InstructionTable& table) {
  std::vector<ShareWalk> walks;
  for (const QueuedCore& each : cores)
    walks.emplace_back(each.program->header(), each.groups, each.lane);
  const auto go_on = [&](size_t place) {
    const QueuedCore& at = cores[place];
    TileRun run;
    if (!walks[place].next(run)) return int64_t{-1};
    std::byte* const slot =
        at.program->header().in_pair() ? slot_of(*at.program, at.buffers, at.number, run) : nullptr;
    run_of_share(*at.program, table, *at.core, at.buffers, run, walks[place].tiles(), slot);
    return at.core->trap.kind == TrapKind::none ? run.group : -1;
  };
  for (int64_t group = go_on(0); group >= 0; group = go_on(0)) {
    if (cores.size() == 1) continue;
    if (go_on(1 + static_cast<size_t>(group) % (cores.size() - 1)) < 0) return;
  }
}

}  // namespace dvm
