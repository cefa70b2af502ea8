#include "vm/order.h"

#include <algorithm>

namespace dvm {

void QueueSteps::clear() {
  touches.clear();
  steps.clear();
  for (int queue = 0; queue < kQueues; ++queue) {
    of_queue[queue].clear();
    low[queue] = INT64_MAX;
    high[queue] = INT64_MIN;
  }
}

void QueueSteps::add(Queue queue) {
  const auto at = static_cast<int32_t>(touches.size());
  steps.push_back({static_cast<int>(queue), at, at, INT64_MAX, INT64_MIN, 0});
}

void QueueSteps::touch(bool reads, int64_t from, int64_t to, int64_t second) {
  Step& step = steps.back();
  if (step.first == step.end) of_queue[step.queue].push_back(count() - 1);
  touches.push_back({from, to, second, reads});
  ++step.end;
  step.low = std::min(step.low, from + std::min<int64_t>(second, 0));
  step.high = std::max(step.high, to + std::max<int64_t>(second, 0));
  low[step.queue] = std::min(low[step.queue], step.low);
  high[step.queue] = std::max(high[step.queue], step.high);
}

void QueueSteps::end() {
  for (Step& step : steps) {
    if (step.first == step.end) continue;
    for (int queue = 0; queue < kQueues; ++queue) {
      if (queue != step.queue && low[queue] < step.high && step.low < high[queue])
        step.others |= 1u << queue;
    }
  }
}

}  // namespace dvm
