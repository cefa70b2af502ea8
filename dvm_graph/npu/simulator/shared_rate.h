// A bandwidth that the transfers in flight share: each gets the same, but no more than its own
// limit.
//
// Flows of one limit advance alike, so a class of them keeps one clock of bytes per flow, and a
// flow is done when that clock has come as far as it has bytes. What classes of a low limit leave
// goes to the others (max-min fairness). Starting, ending and asking who is next take logarithmic
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <vector>

namespace dvm {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

class SharedRate {
 public:
  // Bytes per cycle of all flows together.
  explicit SharedRate(double rate) : rate_(rate) {}

  // `weight` flows of so many bytes each, one after the other of its own, begin at `now`.
  void start(double now, double limit, double weight, double bytes, uint32_t flow) {
    advance(now);
    Class& c = of_limit(limit);
    c.weight += weight;
    c.flows.push({c.clock + bytes, weight, flow});
    share();
  }

  // When the next flow ends; kNever: none is in flight.
  double next_end() const {
    double soonest = kNever;
    for (const Class& c : classes_) {
      if (!c.flows.empty()) soonest = std::min(soonest, end_of(c));
    }
    return soonest;
  }

  // Ends the flow that ends first, at `now`; says which.
  uint32_t end_next(double now) {
    size_t soonest = 0;
    for (size_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i].flows.empty()) continue;
      if (classes_[soonest].flows.empty() || end_of(classes_[i]) < end_of(classes_[soonest])) {
        soonest = i;
      }
    }
    advance(now);
    Class& c = classes_[soonest];
    const Flow flow = c.flows.top();
    c.flows.pop();
    c.weight = c.flows.empty() ? 0 : c.weight - flow.weight;
    share();
    return flow.id;
  }

  // Bytes that a flow still has to move at `now`, by flow: what a snapshot of the state holds.
  template <class Take>
  void remaining(double now, Take take) const {
    for (const Class& c : classes_) {
      const double clock = c.clock + c.per_flow * (now - at_);
      auto flows = c.flows;
      for (; !flows.empty(); flows.pop()) take(flows.top().id, flows.top().end - clock);
    }
  }

  // Everything happens so much later.
  void delay(double cycles) { at_ += cycles; }

 private:
  struct Flow {
    double end, weight;  // end: of the class's clock
    uint32_t id;

    bool operator<(const Flow& other) const {  // the one that ends first on top
      return end != other.end ? end > other.end : id > other.id;
    }
  };
  struct Class {
    double limit;
    double clock = 0;     // bytes that every flow has moved since the beginning of time
    double per_flow = 0;  // bytes per cycle now
    double weight = 0;    // flows in flight
    std::priority_queue<Flow> flows;
  };

  double end_of(const Class& c) const {
    return at_ + std::max(c.flows.top().end - c.clock, 0.0) / c.per_flow;
  }

  Class& of_limit(double limit) {
    for (Class& c : classes_) {
      if (c.limit == limit) return c;
    }
    const auto after = std::find_if(classes_.begin(), classes_.end(),
                                    [&](const Class& c) { return c.limit > limit; });
    Class fresh{};
    fresh.limit = limit;
    return *classes_.insert(after, std::move(fresh));
  }

  void advance(double now) {
    for (Class& c : classes_) c.clock += c.per_flow * (now - at_);
    at_ = now;
  }

  void share() {
    double left = rate_, flows = 0;
    for (const Class& c : classes_) flows += c.weight;
    for (Class& c : classes_) {  // by rising limit
      if (c.weight == 0) continue;
      c.per_flow = std::min(c.limit, left / flows);
      left -= c.per_flow * c.weight;
      flows -= c.weight;
    }
  }

  double rate_;
  double at_ = 0;
  std::vector<Class> classes_;  // by rising limit
};

}  // namespace dvm
