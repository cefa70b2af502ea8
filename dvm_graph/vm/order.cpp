#include "vm/order.h"

#include <algorithm>

namespace dvm {

void QueueSteps::clear() {
  places.clear();
  touches.clear();
  steps.clear();
}

void QueueSteps::add(Queue queue) {
  const auto at = static_cast<int32_t>(touches.size());
  steps.push_back({static_cast<int>(queue), at, at});
}

void QueueSteps::touch(bool reads, int64_t low, int64_t high, int64_t second) {
  const auto is_other = [&](const Place& p) {
    return p.low != low || p.high != high || p.second != second;
  };
  size_t place = places.size();  // mostly one that was touched a short while ago
  while (place > 0 && is_other(places[place - 1])) --place;
  if (place == 0) {
    Place& made = places.emplace_back();
    made.low = low;
    made.high = high;
    made.second = second;
    place = places.size();
  }
  Touch& made = touches.emplace_back();
  made.place = static_cast<int32_t>(place) - 1;
  made.reads = reads;
  ++steps.back().end;
}

void QueueSteps::end() {
  cuts_.clear();
  for (Place& p : places) {
    for (int odd = 0; odd < (p.second == 0 ? 1 : 2); ++odd) {
      cuts_.push_back({p.low + odd * p.second, &p.cells[odd].first});
      cuts_.push_back({p.high + odd * p.second, &p.cells[odd].end});
    }
  }
  std::ranges::sort(cuts_, {}, &Cut::at);
  cells = -1;
  int64_t at = -1;
  for (const Cut& cut : cuts_) {
    if (cut.at != at) ++cells;
    at = cut.at;
    *cut.cell = cells;
  }
  ++cells;
  for (Place& p : places) {
    if (p.second == 0) p.cells[1] = p.cells[0];
  }
  for (Touch& touch : touches) {
    const Place& place = places[static_cast<size_t>(touch.place)];
    std::ranges::copy(place.cells, touch.cells);
  }
}

void QueueKnowledge::begin(const QueueSteps& steps) {
  steps_ = &steps;
  std::ranges::fill(known_, QueueClock());
  cells_.assign(static_cast<size_t>(steps.cells), {});
}

}  // namespace dvm
