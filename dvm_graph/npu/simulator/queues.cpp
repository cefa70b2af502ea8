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
  int first_lane, end_lane;  // that a flag between cores is for
};

// What the scalar unit of a core has issued: registers are those of the tile.
struct Issue {
  std::vector<Core> tiles;
  std::vector<Issued> queues[kQueues];
  size_t next[kQueues] = {};
  const ShareWalk* walk = nullptr;
  TileRun run;  // at hand

  bool done() const {
    for (int queue = 0; queue < kQueues; ++queue) {
      if (next[queue] < queues[queue].size()) return false;
    }
    return true;
  }
};

thread_local Issue* issue = nullptr;

void record(Core& core, const uint64_t* words) {
  HandOver at;
  const Family family = family_of(head_of(words));
  if (family == Family::s_wait_flag || family == Family::s_set_flag) {
    const uint64_t word = *extra_words(Form::sync, words);
    if (is_between_cores(word)) {
      const TileRun& run = issue->run;
      at = issue->walk->hand_over(ring_of(word), run, run.begin + core.share_tile - run.number);
      if (!sync_runs(family, word, at)) return;
    } else if (!sync_runs(family, word, core.share_tile, core.share_tiles)) {
      return;
    }
  }
  if (issue->tiles.empty() || issue->tiles.back().share_tile != core.share_tile) {
    issue->tiles.push_back(core);
  }
  issue->queues[static_cast<int>(queue_of(words))].push_back(
      {issue->tiles.size() - 1, words, at.first_lane, at.end_lane});
}

void issue_all(const QueuedCore& of, Issue& issued) {
  static const InstructionTable recorder = [] {
    InstructionTable made{};
    for (Handler& handler : made.handlers) handler = record;
    return made;
  }();
  issue = &issued;
  ShareWalk walk(of.program->header(), of.groups, of.lane);
  issued.walk = &walk;
  while (walk.next(issued.run)) {
    run_of_share(*of.program, recorder, *of.core, of.buffers, issued.run, walk.tiles(), of.number);
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
    const Issued& next = issued.queues[queue][issued.next[queue]];
    const auto [tile, words] = std::pair(next.tile, next.words);
    const Head head = head_of(words);
    const Family family = family_of(head);
    if (family == Family::s_wait_flag || family == Family::s_set_flag) {
      if (!pass_flag(family, *extra_words(Form::sync, words), number, next)) return false;
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

  // Of a core, or between a cube core and its lanes, all of which are signalled or waited for.
  bool pass_flag(Family family, uint64_t word, size_t number, const Issued& issued) {
    const bool between = is_between_cores(word), sets = family == Family::s_set_flag;
    const auto first = between ? issued.first_lane : static_cast<int>(number);
    const auto end = between ? issued.end_lane : first + 1;
    for (int whose = first; whose < end; ++whose) {
      if (!sets && signals_[{word, whose}] == 0) return false;
    }
    for (int whose = first; whose < end; ++whose) signals_[{word, whose}] += sets ? 1 : -1;
    return true;
  }

  std::span<const QueuedCore> cores_;
  std::vector<Issue>& issues_;
  const InstructionTable& table_;
  bool trapped_ = false;
  std::map<std::pair<uint64_t, int>, int> signals_;
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
  TileRun run;
  const auto take = [&](size_t place) { return walks[place].next(run); };
  const auto go_on = [&](size_t place) {
    const QueuedCore& at = cores[place];
    run_of_share(*at.program, table, *at.core, at.buffers, run, walks[place].tiles(), at.number);
    return at.core->trap.kind == TrapKind::none;
  };
  const auto lanes_go_on = [&](Handed handed, const TileRun& group) {
    const HandOver at = walks[0].hand_over(handed, group, group.begin);
    for (int lane = at.first_lane; lane < at.end_lane; ++lane) {
      const auto place = static_cast<size_t>(lane) + 1;
      if (take(place) && !go_on(place)) return false;
    }
    return true;
  };
  const ProgramHeader& header = cores[0].program->header();
  while (take(0)) {
    const TileRun group = run;
    if (header.ring(Handed::rows).exists() && group.begins_line &&
        !lanes_go_on(Handed::rows, group))
      return;
    run = group;
    if (!go_on(0)) return;
    if (header.ring(Handed::sums).exists() && !lanes_go_on(Handed::sums, group)) return;
  }
}

}  // namespace dvm
