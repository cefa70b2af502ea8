#include "vm/verify_flags.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "vm/disassemble.h"
#include "vm/order.h"
#include "vm/sync.h"

namespace dvm {
namespace {

// A sync instruction within a core.
struct Flag {
  int32_t step;
  bool sets;
  int32_t other;  // of a set: the next one of its event; of a wait: whose signal it takes
  uint64_t word;
  const uint64_t* words;  // of the body
};

// The flags of one event of one direction.
struct Event {
  int count[2] = {};  // of those that wait, and of those that set
  int distance = -1;
  int32_t first = -1, last = -1;  // that sets it

  int waits() const { return count[0]; }
  int sets() const { return count[1]; }
};
constexpr int kEvents = kQueues * kQueues * 256;

// Events of low number lie together, for which devices have few.
int event_of(uint64_t word) {
  const int direction =
      static_cast<int>(sync_from(word)) * kQueues + static_cast<int>(sync_to(word));
  return sync_event(word) * kQueues * kQueues + direction;
}

}  // namespace

// Of a thread, which verifies one program at a time: nothing takes memory anew.
struct FlagVerifier::State {
  QueueSteps steps;
  QueueKnowledge known;
  std::vector<Flag> flags;
  std::vector<QueueClock> signals;  // what was known at each flag, tile by tile
  Event events[kEvents];            // as new but while balance is checked

  // As new again.
  void clear_events() {
    for (const Flag& flag : flags) events[event_of(flag.word)] = {};
  }
};

namespace {

std::string at(std::span<const uint64_t> body, const uint64_t* words) {
  return "word " + std::to_string(words - body.data()) + ", " + disassemble_instruction(words);
}

template <class State>
std::string check_balance(std::span<const uint64_t> body, State& state) {
  for (size_t f = 0; f < state.flags.size(); ++f) {
    const Flag& flag = state.flags[f];
    const Head head = head_of(flag.words);
    const auto wrong = [&](const char* what) { return at(body, flag.words) + ": " + what; };
    if (head.changed_mask != 0 || head.flags != 0) return wrong("a flag has a predicate");
    Event& event = state.events[event_of(flag.word)];
    if (event.distance >= 0 && event.distance != sync_distance(flag.word)) {
      return wrong("an event within tiles and across them");
    }
    event.distance = sync_distance(flag.word);
    ++event.count[flag.sets ? 1 : 0];
    if (event.distance == 0 && event.waits() > event.sets()) {
      return wrong("waits for a flag nobody has set");
    }
    if (!flag.sets) continue;
    (event.last < 0 ? event.first : state.flags[static_cast<size_t>(event.last)].other) =
        static_cast<int32_t>(f);
    event.last = static_cast<int32_t>(f);
  }
  for (const Flag& flag : state.flags) {
    const Event& event = state.events[event_of(flag.word)];
    if (event.sets() > event.waits()) return "a flag is set more often than waited for";
    if (event.sets() < event.waits()) return "a flag is waited for more often than set";
  }
  for (Flag& flag : state.flags) {  // waits take the signals of an event in turn
    if (flag.sets) continue;
    Event& event = state.events[event_of(flag.word)];
    flag.other = event.first;
    event.first = state.flags[static_cast<size_t>(event.first)].other;
  }
  return {};
}

// Issues the body for a few tiles, and follows what each queue knows of the others.
template <class State>
class Follower {
 public:
  Follower(std::span<const uint64_t> body, int64_t tiles, State& state)
      : body_(body),
        tiles_(static_cast<int>(std::min<int64_t>(tiles, kOrderedTiles))),
        state_(state),
        known_(state.known),
        flags_(state.flags) {
    known_.begin(state.steps);
    state_.signals.resize(flags_.size() * static_cast<size_t>(tiles_));
  }

  std::string run() {
    const std::span<const QueueSteps::Step> steps = state_.steps.steps;
    QueueClock* signals = state_.signals.data();  // of the tile
    for (int tile = 0; tile < tiles_; ++tile, signals += flags_.size()) {
      size_t flag = 0;
      for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].first < steps[i].end) {
          const auto step = static_cast<int32_t>(i);
          int earlier = 0;
          known_.issue(tile, step, [&](int, int time) { earlier = time; });
          if (earlier != 0) return wrong(step, earlier);
        } else if (flag < flags_.size() && flags_[flag].step == static_cast<int32_t>(i)) {
          follow(flag++, steps[i].queue, tile, signals);
        }
      }
    }
    return {};
  }

 private:
  std::string wrong(int32_t step, int32_t time) const {
    const int32_t earlier = (time - 1) % state_.steps.count();
    const auto named = [&](int32_t i) {
      const uint64_t* words = body_.data();
      for (; i > 0; --i) words += head_of(words).words;
      return at(body_, words);
    };
    return named(step) + ": touches what " + named(earlier) + " does, and no flag orders them";
  }

  void follow(size_t number, int queue, int tile, QueueClock* signals) {
    const Flag& flag = flags_[number];
    if (flag.sets) {
      signals[number] = known_.of(queue);
    } else if (const int distance = sync_distance(flag.word); tile >= distance) {
      const auto before = static_cast<std::ptrdiff_t>(flags_.size()) * distance;
      known_.learn(queue, signals[flag.other - before]);
    }
  }

  const std::span<const uint64_t> body_;
  const int tiles_;
  State& state_;
  QueueKnowledge& known_;
  const std::span<const Flag> flags_;
};

}  // namespace

FlagVerifier::State& FlagVerifier::of_thread() {
  thread_local State state;
  return state;
}

FlagVerifier::FlagVerifier() : state_(of_thread()) {
  state_.steps.clear();
  state_.flags.clear();
}

void FlagVerifier::take(Family family, const uint64_t* words) {
  const int32_t step = state_.steps.count();
  const bool sets = family == Family::s_set_flag;
  if (!sets && family != Family::s_wait_flag) return state_.steps.add(info_of(family).queue);
  const uint64_t word = *extra_words(Form::sync, words);
  state_.steps.add(sets ? sync_from(word) : sync_to(word));
  if (!is_between_cores(word)) state_.flags.push_back({step, sets, -1, word, words});
}

void FlagVerifier::touch(Role role, int64_t low, int64_t high, int64_t second) {
  state_.steps.touch(role == Role::reads, low, high, second);
}

std::string FlagVerifier::check(std::span<const uint64_t> body, int64_t tiles) const {
  if (state_.steps.steps.size() > kMostOrdered) return "too many instructions to prove their order";
  state_.steps.end();
  std::string wrong = check_balance(body, state_);
  state_.clear_events();
  return wrong.empty() ? Follower(body, tiles, state_).run() : wrong;
}

}  // namespace dvm
