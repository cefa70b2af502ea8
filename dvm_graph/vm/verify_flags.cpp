#include "vm/verify_flags.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "vm/disassemble.h"
#include "vm/order.h"
#include "vm/sync.h"

namespace dvm {
namespace {

bool is_flag(Family family) {
  return family == Family::s_set_flag || family == Family::s_wait_flag;
}

struct Signal {
  uint64_t word;
  QueueClock known;
};

// The sync instructions of one event of one direction.
struct Event {
  int sets = 0, waits = 0;
  int distance = -1;
};
constexpr int kEvents = kQueues * kQueues * 256;

}  // namespace

// Of a thread, which verifies one program at a time: nothing takes memory anew.
struct FlagVerifier::State {
  QueueSteps steps;
  std::vector<const uint64_t*> words;  // of each
  std::vector<Signal> signals;
  Event events[kEvents];
  std::vector<int> used;  // of them, by the program before: the others are as new
};

namespace {

std::string at(std::span<const uint64_t> body, const uint64_t* words) {
  return "word " + std::to_string(words - body.data()) + ", " + disassemble_instruction(words);
}

template <class State>
std::string check_balance(std::span<const uint64_t> body, State& state) {
  for (const int index : state.used) state.events[index] = {};
  state.used.clear();
  for (const uint64_t* const words : state.words) {
    const Head head = head_of(words);
    if (!is_flag(family_of(head))) continue;
    const auto wrong = [&](const char* what) { return at(body, words) + ": " + what; };
    const uint64_t word = *extra_words(Form::sync, words);
    if (is_between_cores(word)) continue;
    if (head.changed_mask != 0 || head.flags != 0) return wrong("a flag has a predicate");
    const int direction =
        static_cast<int>(sync_from(word)) * kQueues + static_cast<int>(sync_to(word));
    const int index = direction * 256 + static_cast<int>(sync_event(word));
    Event& event = state.events[index];
    if (event.sets + event.waits == 0) state.used.push_back(index);
    if (event.distance >= 0 && event.distance != sync_distance(word)) {
      return wrong("an event within tiles and across them");
    }
    event.distance = sync_distance(word);
    ++(family_of(head) == Family::s_set_flag ? event.sets : event.waits);
    if (event.distance == 0 && event.waits > event.sets) {
      return wrong("waits for a flag nobody has set");
    }
  }
  for (const int index : state.used) {
    const Event& event = state.events[index];
    if (event.sets > event.waits) return "a flag is set more often than waited for";
    if (event.sets < event.waits) return "a flag is waited for more often than set";
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
        known_(state.steps) {
    state_.signals.clear();
  }

  std::string run() {
    const QueueSteps& all = state_.steps;
    for (int tile = 0; tile < tiles_; ++tile) {
      for (int32_t i = 0; i < all.count(); ++i) {
        const uint64_t* const words = state_.words[static_cast<size_t>(i)];
        const QueueSteps::Step& step = all.steps[static_cast<size_t>(i)];
        if (step.first < step.end) {
          int32_t earlier = 0;
          known_.missing(tile, i, [&](int, int32_t time) { earlier = time; });
          if (earlier != 0) return wrong(words, earlier);
        } else if (const Family family = family_of(head_of(words)); is_flag(family)) {
          follow(family, *extra_words(Form::sync, words), step.queue, tile);
        }
        known_.issue(tile, i);
      }
    }
    return {};
  }

 private:
  std::string wrong(const uint64_t* words, int32_t time) const {
    const auto earlier = static_cast<size_t>((time - 1) % state_.steps.count());
    return at(body_, words) + ": touches what " + at(body_, state_.words[earlier]) +
           " does, and no flag orders them";
  }

  void follow(Family family, uint64_t word, int queue, int tile) {
    if (is_between_cores(word)) return;
    if (!sync_runs(family, word, tile, tile + kMostDistance + 1)) return;
    std::vector<Signal>& signals = state_.signals;
    if (family == Family::s_set_flag) {
      signals.push_back({word, known_.of(queue)});
      return;
    }
    const auto signal = std::ranges::find(signals, word, &Signal::word);
    if (signal == signals.end()) return;
    known_.learn(queue, signal->known);
    signals.erase(signal);
  }

  const std::span<const uint64_t> body_;
  const int tiles_;
  State& state_;
  QueueKnowledge known_;
};

}  // namespace

FlagVerifier::State& FlagVerifier::of_thread() {
  thread_local State state;
  return state;
}

FlagVerifier::FlagVerifier() : state_(of_thread()) {
  state_.steps.clear();
  state_.words.clear();
}

void FlagVerifier::take(const uint64_t* words) {
  state_.words.push_back(words);
  state_.steps.add(queue_of(words));
}

void FlagVerifier::touch(Role role, int64_t low, int64_t high, int64_t second) {
  state_.steps.touch(role == Role::reads, low, high, second);
}

std::string FlagVerifier::check(std::span<const uint64_t> body, int64_t tiles) const {
  state_.steps.end();
  std::string wrong = check_balance(body, state_);
  return wrong.empty() ? Follower(body, tiles, state_).run() : wrong;
}

}  // namespace dvm
