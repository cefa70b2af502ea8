#include "vm/order.h"

#include <algorithm>

namespace dvm {

void QueueSteps::clear() {
  places.clear();
  touches.clear();
  steps.clear();
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
