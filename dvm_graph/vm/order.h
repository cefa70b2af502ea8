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

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "vm/isa.h"

namespace dvm {

inline constexpr int kOrderedTiles = 3;

// The instructions of a tile, by queue, and what they touch of local memory: cells, which are what
// lies between neighbours of all places where something that is touched begins or ends.
struct QueueSteps {
  struct Cells {
    int32_t first, end;
  };
  // [low, high) in tiles of even number, `second` bytes behind it in others.
  struct Place {
    int64_t low, high, second;
    Cells cells[2];  // in tiles of even number and of odd

    bool is(int64_t l, int64_t h, int64_t s) const { return low == l && high == h && second == s; }
  };
  struct Touch {
    int32_t place;
    bool reads;
    Cells cells[2];  // of the place
  };
  struct Step {
    int queue;
    int32_t first, end;  // of its touches
  };
  std::vector<Place> places;
  std::vector<Touch> touches;
  std::vector<Step> steps;
  int32_t cells = 0;

  void clear();
  void add(Queue queue) {
    const auto at = static_cast<int32_t>(touches.size());
    steps.push_back({static_cast<int>(queue), at, at});
  }
  // By the step that was added last.
  void touch(bool reads, int64_t low, int64_t high, int64_t second) {
    touches.push_back({place_of(low, high, second), reads, {}});
    ++steps.back().end;
  }
  // All steps are added.
  void end();

  int32_t count() const { return static_cast<int32_t>(steps.size()); }

 private:
  // A place's begin or end.
  struct Cut {
    int64_t at;
    int32_t* cell;
  };

  static constexpr int kRecentBits = 6;

  int32_t place_of(int64_t low, int64_t high, int64_t second) {
    constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;
    const uint64_t bits = static_cast<uint64_t>(low) + (static_cast<uint64_t>(high) << 20);
    int32_t& recent = recent_[bits * kSpread >> (64 - kRecentBits)];
    const auto count = static_cast<int32_t>(places.size());
    if (recent < count && places[static_cast<size_t>(recent)].is(low, high, second)) return recent;
    places.push_back({low, high, second, {}});
    return recent = count;
  }

  std::vector<Cut> cuts_;
  // The place that was added last of those of a hash. One that is added again is another with the
  // same cells.
  int32_t recent_[size_t{1} << kRecentBits] = {};
};

// How far each queue is, as somebody knows it: the number of a step among those of all tiles, from
// 1. Always written whole: a vector cannot be read soon behind a part of it that was written.
class QueueClock {
 public:
  QueueClock() = default;
  // Of one queue.
  QueueClock(int queue, int time)
      : times_((kNumbers == static_cast<int16_t>(queue)) & static_cast<int16_t>(time)) {}

  int operator[](int queue) const { return times_[queue]; }

  void advance(const QueueClock& to) { times_ = times_ > to.times_ ? times_ : to.times_; }
  // In some queue.
  bool is_ahead_of(const QueueClock& other) const {
    const Times ahead = times_ > other.times_;
    const auto words = std::bit_cast<std::array<uint64_t, sizeof(Times) / sizeof(uint64_t)>>(ahead);
    return std::ranges::any_of(words, [](uint64_t word) { return word != 0; });
  }

 private:
  static constexpr size_t kRoom = std::bit_ceil(static_cast<unsigned>(kQueues));
  typedef int16_t Times __attribute__((vector_size(kRoom * sizeof(int16_t))));
  static constexpr Times kNumbers = {0, 1, 2, 3, 4, 5, 6, 7};

  Times times_ = {};
};
// Of a tile: what clocks have room for.
inline constexpr size_t kMostOrdered = INT16_MAX / kOrderedTiles;

// What has been issued, and what queues know of it.
class QueueKnowledge {
 public:
  // Nothing is, of steps that have ended.
  void begin(const QueueSteps& steps);

  int time_of(int tile, int32_t step) const { return tile * steps_->count() + step + 1; }
  const QueueClock& of(int queue) const { return known_[queue]; }

  void learn(int queue, const QueueClock& clock) { known_[queue].advance(clock); }

  // Issues a step that touches something. Tells for each other queue that has done something which
  // it meets, and of which its queue does not know, when the last of that was issued.
  template <class Missing>
  void issue(int tile, int32_t step, Missing missing) {
    const QueueSteps::Step& issued = steps_->steps[static_cast<size_t>(step)];
    QueueClock& known = known_[issued.queue];
    const QueueClock now(issued.queue, time_of(tile, step));
    known.advance(now);
    QueueClock met;
    const int odd = tile % 2;
    const std::span touches(steps_->touches.data() + issued.first,
                            static_cast<size_t>(issued.end - issued.first));
    Cell* const cells = cells_.data();
    for (const QueueSteps::Touch& touch : touches) {
      const auto [first, end] = touch.cells[odd];
      for (Cell& cell : std::span(cells + first, cells + end)) {
        met.advance(cell.done[kWritten]);
        met.advance(cell.done[touch.reads ? kWritten : kRead]);
        cell.done[touch.reads ? kRead : kWritten].advance(now);
      }
    }
    if (!met.is_ahead_of(known)) return;
    for (int queue = 0; queue < kQueues; ++queue) {
      if (met[queue] > known[queue]) missing(queue, met[queue]);
    }
  }

 private:
  // When each queue read it last, and when it wrote it.
  static constexpr int kRead = 0, kWritten = 1;
  struct Cell {
    QueueClock done[2];
  };

  const QueueSteps* steps_ = nullptr;
  QueueClock known_[kQueues];
  std::vector<Cell> cells_;
};

}  // namespace dvm
