// Equal tiles: where the state of all cores repeats, but for the time, after some tiles, and the
// tiles to come are the same again, they are not simulated but counted.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "npu/simulator/stage_state.h"

namespace dvm {

class Periods {
 public:
  Periods(StageState& state, StageTrace& trace) : state_(state), trace_(trace) {}

  // Behind each event: skips what repeats, whenever the first core that still decodes has come to
  // another tile.
  void look();

  struct Snapshot {
    double at = 0;
    std::vector<double> state;
    std::vector<int64_t> tiles;
    std::vector<CoreTotals> totals;
  };

 private:
  Snapshot take_snapshot() const;
  int64_t periods_ahead(const Snapshot& since, int64_t most) const;
  void skip(const Snapshot& since, const Snapshot& here, int64_t periods);

  StageState& state_;
  StageTrace& trace_;
  size_t watched_ = 0, watched_core_ = 0;
  int64_t watched_tile_ = 0;
  std::deque<Snapshot> snapshots_;
};

}  // namespace dvm
