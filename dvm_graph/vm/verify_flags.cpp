#include "vm/verify_flags.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "vm/disassemble.h"
#include "vm/sync.h"

namespace dvm {
namespace {

constexpr int64_t kTiles = 3;

bool is_flag(Family family) {
  return family == Family::s_set_flag || family == Family::s_wait_flag;
}

struct Touch {
  Role role;
  int64_t low, high, second;
};

struct Step {
  const uint64_t* words;
  Family family;
  int queue;
  int32_t touches, end;  // of State::touches
};

// In all tiles.
struct Reach {
  int64_t low = INT64_MAX, high = INT64_MIN;

  void add(const Touch& touch) {
    low = std::min(low, touch.low + std::min<int64_t>(touch.second, 0));
    high = std::max(high, touch.high + std::max<int64_t>(touch.second, 0));
  }
  bool meets(const Reach& other) const { return low < other.high && other.low < high; }
};

// How far each queue is, in steps: as somebody knows it.
using Clock = std::array<int64_t, kQueues>;

struct Signal {
  uint64_t word;
  Clock known;
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
  std::vector<Step> steps;
  std::vector<Touch> touches;
  std::vector<int32_t> of_queue[kQueues];  // those that touch something
  Reach reaches[kQueues];                  // and what, together
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
  for (const Step& step : state.steps) {
    if (!is_flag(step.family)) continue;
    const auto wrong = [&](const char* what) { return at(body, step.words) + ": " + what; };
    const uint64_t word = *extra_words(Form::sync, step.words);
    if (is_between_cores(word)) continue;
    const Head head = head_of(step.words);
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
    ++(step.family == Family::s_set_flag ? event.sets : event.waits);
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
      : body_(body), tiles_(static_cast<int>(std::min(tiles, kTiles))), state_(state) {
    state_.signals.clear();
  }

  std::string run() {
    for (tile_ = 0; tile_ < tiles_; ++tile_) {
      for (index_ = 0; index_ < count(); ++index_) {
        const Step& step = state_.steps[static_cast<size_t>(index_)];
        if (is_flag(step.family)) {
          follow(step);
        } else if (const Step* earlier = unordered(step)) {
          return at(body_, step.words) + ": touches what " + at(body_, earlier->words) +
                 " does, and no flag orders them";
        }
        known_[step.queue][static_cast<size_t>(step.queue)] = now(tile_, index_);
      }
    }
    return {};
  }

 private:
  int32_t count() const { return static_cast<int32_t>(state_.steps.size()); }
  int64_t now(int64_t tile, int32_t index) const { return tile * count() + index + 1; }

  void follow(const Step& step) {
    const uint64_t word = *extra_words(Form::sync, step.words);
    if (is_between_cores(word)) return;
    if (!sync_runs(step.family, word, tile_, tile_ + kMostDistance + 1)) return;
    std::vector<Signal>& signals = state_.signals;
    Clock& mine = known_[step.queue];
    if (step.family == Family::s_set_flag) {
      signals.push_back({word, mine});
      return;
    }
    const auto signal = std::ranges::find(signals, word, &Signal::word);
    if (signal == signals.end()) return;
    for (size_t queue = 0; queue < kQueues; ++queue) {
      mine[queue] = std::max(mine[queue], signal->known[queue]);
    }
    signals.erase(signal);
  }

  // What this step meets and its queue has not waited for; null: nothing.
  const Step* unordered(const Step& step) const {
    if (step.touches == step.end) return nullptr;
    Reach reach;
    for (int32_t i = step.touches; i < step.end; ++i)
      reach.add(state_.touches[static_cast<size_t>(i)]);
    for (int queue = 0; queue < kQueues; ++queue) {
      if (queue == step.queue || !state_.reaches[queue].meets(reach)) continue;
      const int64_t done = known_[step.queue][static_cast<size_t>(queue)];
      const std::vector<int32_t>& others = state_.of_queue[queue];
      for (int tile = tile_; tile >= 0 && now(tile + 1, -1) > done; --tile) {
        for (auto other = others.rbegin(); other != others.rend(); ++other) {
          if (tile == tile_ && *other > index_) continue;
          if (now(tile, *other) <= done) break;
          const Step& earlier = state_.steps[static_cast<size_t>(*other)];
          if (meet(earlier, tile, step, tile_)) return &earlier;
        }
      }
    }
    return nullptr;
  }

  bool meet(const Step& a, int a_tile, const Step& b, int b_tile) const {
    for (int32_t i = a.touches; i < a.end; ++i) {
      const Touch& x = state_.touches[static_cast<size_t>(i)];
      const int64_t x_low = x.low + a_tile % 2 * x.second, x_high = x.high + a_tile % 2 * x.second;
      for (int32_t j = b.touches; j < b.end; ++j) {
        const Touch& y = state_.touches[static_cast<size_t>(j)];
        if (x.role == Role::reads && y.role == Role::reads) continue;
        const int64_t shift = b_tile % 2 * y.second;
        if (x_low < y.high + shift && y.low + shift < x_high) return true;
      }
    }
    return false;
  }

  const std::span<const uint64_t> body_;
  const int tiles_;
  State& state_;
  int tile_ = 0;
  int32_t index_ = 0;
  Clock known_[kQueues] = {};
};

}  // namespace

FlagVerifier::State& FlagVerifier::of_thread() {
  thread_local State state;
  return state;
}

FlagVerifier::FlagVerifier() : state_(of_thread()) {
  state_.steps.clear();
  state_.touches.clear();
  for (std::vector<int32_t>& queue : state_.of_queue) queue.clear();
  for (Reach& reach : state_.reaches) reach = {};
}

void FlagVerifier::take(const uint64_t* words) {
  const auto touches = static_cast<int32_t>(state_.touches.size());
  state_.steps.push_back(
      {words, family_of(head_of(words)), static_cast<int>(queue_of(words)), touches, touches});
}

void FlagVerifier::touch(Role role, int64_t low, int64_t high, int64_t second) {
  Step& step = state_.steps.back();
  if (step.touches == step.end) {
    state_.of_queue[step.queue].push_back(static_cast<int32_t>(state_.steps.size()) - 1);
  }
  state_.touches.push_back({role, low, high, second});
  state_.reaches[step.queue].add(state_.touches.back());
  ++step.end;
}

std::string FlagVerifier::check(std::span<const uint64_t> body, int64_t tiles) const {
  std::string wrong = check_balance(body, state_);
  return wrong.empty() ? Follower(body, tiles, state_).run() : wrong;
}

}  // namespace dvm
