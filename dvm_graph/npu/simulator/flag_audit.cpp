#include "npu/simulator/flag_audit.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "npu/simulator/queues.h"
#include "vm/program.h"
#include "vm/shares.h"
#include "vm/sync.h"
#include "vm/verify.h"

namespace dvm {
namespace {

constexpr size_t kFlagWords = form_info(Form::sync).words();

// A wait of a program, at a word of its body, and the flag that is set for it.
struct FlagPair {
  size_t wait_in, wait;
  size_t set_in, set;
  uint64_t word;
};

// Of every event, the n-th wait of a tile takes the n-th signal; between cores, that of another
// half.
std::vector<FlagPair> flag_pairs(std::span<const Task> halves) {
  struct Event {
    std::vector<std::pair<size_t, size_t>> sets, waits;
  };
  std::map<std::pair<uint64_t, size_t>, Event> events;
  for (size_t half = 0; half < halves.size(); ++half) {
    const std::span<const uint64_t> body = halves[half].program->body();
    for (size_t pc = 0; pc < body.size(); pc += head_of(&body[pc]).words) {
      const Family family = family_of(head_of(&body[pc]));
      if (family != Family::s_set_flag && family != Family::s_wait_flag) continue;
      const uint64_t word = *extra_words(Form::sync, &body[pc]);
      Event& event = events[{word, is_between_cores(word) ? 0 : half}];
      (family == Family::s_set_flag ? event.sets : event.waits).emplace_back(half, pc);
    }
  }
  std::vector<FlagPair> pairs;
  for (const auto& [key, event] : events) {
    for (size_t i = 0; i < event.waits.size(); ++i) {
      const auto [wait_in, wait] = event.waits[i];
      const auto [set_in, set] = event.sets[i];
      pairs.push_back({wait_in, wait, set_in, set, key.first});
    }
  }
  return pairs;
}

using Programs = std::vector<Program>;

Program without(const Program& program, size_t left_out) {
  std::vector<uint64_t> body(program.body().begin(), program.body().end());
  const auto from = body.begin() + static_cast<std::ptrdiff_t>(left_out);
  body.erase(from, from + head_of(&body[left_out]).words);
  Program rest;
  rest.assign(program.header(), program.grid(), program.extents(), program.pointers(), body);
  return rest;
}

// As far as the program alone tells: buffers are as long as it takes them for.
bool passes(const Program& program, const Target& target) {
  std::vector<ValueInfo> values;
  int64_t workspace = 0;
  for (const PointerRegister& pointer : program.pointers()) {
    if (pointer.buffer == kWorkspace) workspace = std::max(workspace, pointer.high);
    if (pointer.buffer < 0) continue;
    const auto value = static_cast<size_t>(pointer.buffer);
    if (value >= values.size()) values.resize(value + 1);
    values[value].bytes = std::max(values[value].bytes, pointer.high);
  }
  return verify(program, values.data(), values.size(), workspace, target).empty();
}

bool pass(const Programs& programs, const Target& target) {
  return std::ranges::all_of(programs, [&](const Program& each) { return passes(each, target); });
}

// Tasks that run as often as one likes, always from what their buffers held first.
class Rehearsal {
 public:
  Rehearsal(std::span<const Task> tasks, const Programs& programs, const Target& target,
            const InstructionTable& table, std::span<const Core> cores)
      : tasks_(tasks), target_(target), table_(table), cores_(cores) {
    for (const Task& task : tasks_) find_places(task);
    before_ = contents();
    run(programs, nullptr, 0);
    after_ = contents();
  }
  ~Rehearsal() { restore(); }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // Whether programs in place of the tasks' compute other bits, trap or never end, whichever core
  // of a pair goes first.
  bool differ(const Programs& programs, const QueueOrder& order) {
    for (size_t turn = 0; turn <= static_cast<size_t>(programs[0].header().lanes()); ++turn) {
      restore();
      if (!run(programs, &order, turn) || contents() != after_) return true;
    }
    return false;
  }

 private:
  struct Place {
    std::byte* at;
    size_t bytes;
  };

  void find_places(const Task& task) {
    const Program& program = *task.program;
    for (size_t pc = 0; pc < program.body().size();) {
      const uint64_t* const words = &program.body()[pc];
      const FormInfo& form = form_info(family_of(head_of(words)));
      for (int k = 0; k < form.outputs; ++k) {
        const Operand operand = operand_of(words, k);
        if (operand.space() != Space::pointer) continue;
        const PointerRegister& pointer = program.pointers()[operand.offset()];
        const bool ring = program.header().reaches_ring(operand.offset());
        (ring ? rings_ : places_)
            .push_back({task.buffers[pointer.buffer] + pointer.low,
                        static_cast<size_t>(pointer.high - pointer.low)});
      }
      pc += head_of(words).words;
    }
  }

  std::vector<std::byte> contents() const {
    std::vector<std::byte> all;
    for (const Place& place : places_) all.insert(all.end(), place.at, place.at + place.bytes);
    return all;
  }

  void restore() const {
    const std::byte* from = before_.data();
    for (const Place& place : places_) {
      std::memcpy(place.at, from, place.bytes);
      from += place.bytes;
    }
    for (const Place& ring : rings_) std::memset(ring.at, kGarbage, ring.bytes);
  }

  // In order where there is no order of queues. On fewer cores than there are, so that a share has
  // several tiles and flags from one to another count.
  bool run(const Programs& programs, const QueueOrder* order, size_t turn) const {
    const ProgramHeader& header = programs[0].header();
    const int64_t most = target_.cores_of(header.kind);
    const int64_t used = std::clamp<int64_t>(header.groups() / kShare, 1, most);
    std::vector<GroupRange> groups;
    for (int64_t number = 0; number < used; ++number) {
      share_of(programs[0], number, used, groups);
      if (!groups.empty() && !run_share(programs, groups, number, order, turn)) return false;
    }
    return true;
  }

  // Local memory holds nothing that an earlier run left there, nor do rings: it might be right.
  bool run_share(const Programs& programs, std::span<const GroupRange> groups, int64_t number,
                 const QueueOrder* order, size_t turn) const {
    const auto places = 1 + static_cast<size_t>(programs[0].header().lanes());
    std::vector<Core> cores(cores_.begin(), cores_.begin() + static_cast<std::ptrdiff_t>(places));
    std::vector<QueuedCore> queued;
    for (size_t place = 0; place < places; ++place) {
      const size_t half = half_of(programs[0].header(), place);
      std::memset(cores[place].local, kGarbage,
                  static_cast<size_t>(programs[half].header().local_bytes));
      queued.push_back({&programs[half], &cores[place], tasks_[half].buffers, groups, number,
                        static_cast<int64_t>(place) - 1});
    }
    if (order == nullptr) {
      run_in_order(queued, table_);
    } else {
      std::ranges::rotate(queued, queued.begin() + static_cast<std::ptrdiff_t>(turn));
      if (!run_queues(queued, table_, *order)) return false;
    }
    return std::ranges::all_of(cores,
                               [](const Core& core) { return core.trap.kind == TrapKind::none; });
  }

  static constexpr int kGarbage = 0x5a;
  static constexpr int64_t kShare = 4;  // groups
  const std::span<const Task> tasks_;
  const Target& target_;
  const InstructionTable& table_;
  const std::span<const Core> cores_;
  std::vector<Place> places_, rings_;
  std::vector<std::byte> before_, after_;
};

// The orders in which `to` is first and `from` last come first: they notice most.
std::vector<QueueOrder> orders_against(uint64_t wait) {
  std::vector<QueueOrder> orders = adversarial_orders();
  std::ranges::stable_partition(orders, [&](const QueueOrder& order) {
    return order.front() == sync_to(wait) && order.back() == sync_from(wait);
  });
  return orders;
}

}  // namespace

bool FlagLedger::opens(const Program& program) {
  const std::lock_guard lock(mutex_);
  return programs_.emplace(program.words().begin(), program.words().end()).second;
}

void FlagLedger::add(const FlagCounts& counts) {
  const std::lock_guard lock(mutex_);
  counts_.add(counts);
}

FlagCounts FlagLedger::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

FlagCounts audit_flags(std::span<const Task> tasks, const Target& target,
                       const InstructionTable& table, std::span<const Core> cores) {
  FlagCounts counts;
  const std::vector<FlagPair> pairs = flag_pairs(tasks);
  if (pairs.empty()) return counts;
  Programs whole;
  for (const Task& task : tasks) whole.push_back(*task.program);
  Rehearsal rehearsal(tasks, whole, target, table, cores);
  for (const FlagPair& pair : pairs) {
    ++counts.waits;
    const auto seen = [&](const Programs& broken) {
      return std::ranges::any_of(orders_against(pair.word), [&](const QueueOrder& order) {
        return rehearsal.differ(broken, order);
      });
    };
    Programs unbalanced = whole;
    unbalanced[pair.wait_in] = without(whole[pair.wait_in], pair.wait);
    Programs unordered = unbalanced;
    const bool moved = pair.set_in == pair.wait_in && pair.wait < pair.set;  // by the wait's words
    unordered[pair.set_in] = without(unordered[pair.set_in], pair.set - (moved ? kFlagWords : 0));
    counts.unbalanced += !pass(unbalanced, target);
    if (pass(unordered, target)) {
      counts.mistaken += seen(unordered);
    } else {
      ++counts.unordered;
      counts.seen += seen(unbalanced);
    }
  }
  return counts;
}

}  // namespace dvm
