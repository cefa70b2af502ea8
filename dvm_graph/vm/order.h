// What the queues of a core know of each other, for those who place flags (vm/sync.cpp) and those
// who prove that they suffice (vm/verify_flags.h): one rule of what has to be ordered, and of what
// orders.
//
// Of two steps of different queues that touch the same bytes of local memory, one of them writing,
// the queue of the later one has to know that the earlier one is done. A queue knows of what it has
// done itself and, where it waits for a signal, of what the queue that signalled knew by then: so
// order comes by way of other queues, too.
//
// Steps are those of a tile, issued for a few tiles: in a later stretch of them more is waited for,
// so queues know no less of each other; and what is three or more tiles apart touches the same
// bytes as what is two less apart, for two places alternate, and a queue runs a step of a tile
// before that of the second next. Three tiles thus stand for any number.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "vm/isa.h"

namespace dvm {

inline constexpr int kOrderedTiles = 3;

// The instructions of a tile, by queue, and what they touch of local memory.
struct QueueSteps {
  // [low, high) in tiles of even number, `second` bytes behind it in others.
  struct Touch {
    int64_t low, high, second;
    bool reads;
  };
  struct Step {
    int queue;
    int32_t first, end;  // of its touches
    int64_t low, high;   // all that it touches, in all tiles
    uint32_t others;     // bits of the other queues that touch something between these
  };
  std::vector<Touch> touches;
  std::vector<Step> steps;
  std::vector<int32_t> of_queue[kQueues];  // those that touch something
  int64_t low[kQueues], high[kQueues];     // and what, together

  void clear();
  void add(Queue queue);
  // By the step that was added last.
  void touch(bool reads, int64_t low, int64_t high, int64_t second);
  // All steps are added.
  void end();

  int32_t count() const { return static_cast<int32_t>(steps.size()); }
  bool meet(const Step& a, int a_tile, const Step& b, int b_tile) const;
};

// How far each queue is, as somebody knows it: the number of a step among those of all tiles, from
// 1.
using QueueClock = std::array<int32_t, kQueues>;

class QueueKnowledge {
 public:
  explicit QueueKnowledge(const QueueSteps& steps) : steps_(steps) {}

  int32_t time_of(int tile, int32_t step) const { return tile * steps_.count() + step + 1; }
  const QueueClock& of(int queue) const { return known_[queue]; }

  void learn(int queue, const QueueClock& clock) {
    for (size_t i = 0; i < clock.size(); ++i) {
      if (known_[queue][i] < clock[i]) known_[queue][i] = clock[i];
    }
  }
  void issue(int tile, int32_t step) {
    const auto queue = static_cast<size_t>(steps_.steps[static_cast<size_t>(step)].queue);
    known_[queue][queue] = time_of(tile, step);
  }

  // Tells for each queue that has done something which this step meets, and of which its queue does
  // not know, when the last of that was issued.
  template <class Missing>
  void missing(int tile, int32_t step, Missing take) const {
    const QueueSteps::Step& later = steps_.steps[static_cast<size_t>(step)];
    for (uint32_t left = later.others; left != 0; left &= left - 1) {
      const int queue = std::countr_zero(left);
      if (const int32_t time = unordered(tile, step, queue)) take(queue, time);
    }
  }

 private:
  int32_t unordered(int tile, int32_t step, int queue) const;

  const QueueSteps& steps_;
  QueueClock known_[kQueues] = {};
};

inline bool QueueSteps::meet(const Step& a, int a_tile, const Step& b, int b_tile) const {
  if (a.low >= b.high || b.low >= a.high) return false;
  for (int32_t i = a.first; i < a.end; ++i) {
    const Touch& x = touches[static_cast<size_t>(i)];
    const int64_t x_low = x.low + a_tile % 2 * x.second, x_high = x.high + a_tile % 2 * x.second;
    for (int32_t j = b.first; j < b.end; ++j) {
      const Touch& y = touches[static_cast<size_t>(j)];
      if (x.reads && y.reads) continue;
      const int64_t shift = b_tile % 2 * y.second;
      if (x_low < y.high + shift && y.low + shift < x_high) return true;
    }
  }
  return false;
}

inline int32_t QueueKnowledge::unordered(int tile, int32_t step, int queue) const {
  const QueueSteps::Step& later = steps_.steps[static_cast<size_t>(step)];
  const std::vector<int32_t>& others = steps_.of_queue[queue];
  const int32_t known = known_[later.queue][static_cast<size_t>(queue)];
  size_t left = others.size();  // in the tile at hand, those before the step
  while (left > 0 && others[left - 1] > step) --left;
  for (int earlier = tile; earlier >= 0; --earlier, left = others.size()) {
    for (; left > 0; --left) {
      const int32_t other = others[left - 1], time = time_of(earlier, other);
      if (time <= known) return 0;
      if (steps_.meet(steps_.steps[static_cast<size_t>(other)], earlier, later, tile)) return time;
    }
  }
  return 0;
}

}  // namespace dvm
