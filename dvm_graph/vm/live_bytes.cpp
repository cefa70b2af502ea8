#include "vm/live_bytes.h"

#include <algorithm>
#include <bit>

#include "vm/strips.h"

namespace dvm {
namespace {

// Loads and stores that vanish on unified memory, as far as the plan alone can tell. `joined`:
// those count that convert as part of what is computed (vm/strips.h).
bool absorbed(const NormalPlan& plan, const Target& target, const NormalAccess& access, DType dtype,
              bool joined) {
  const bool widens = (dtype == DType::f32 && is_half(access.storage)) ||
                      (dtype == DType::i32 && is_byte(access.storage));
  const bool converts = joined && widens;
  if (!target.unified_memory || (access.storage != dtype && !converts)) return false;
  const int64_t inner = plan.rank == 0 ? 0 : access.strides[plan.rank - 1];
  return inner == 0 || inner == 1;
}

// Share of a full tile that a value over `axes` takes, if parallel axes count in full.
double share_of(const NormalPlan& plan, uint32_t axes, uint32_t reduced) {
  double share = 1;
  for (uint32_t gone = reduced & ~axes; gone != 0; gone &= gone - 1) {
    share /= static_cast<double>(plan.extents[std::countr_zero(gone)]);
  }
  return share;
}

// Live bytes after each node of the plan, for given weights of the nodes' values.
class Liveness {
 public:
  explicit Liveness(const NormalPlan& plan)
      : plan_(plan), count_(std::min<size_t>(plan.nodes.size(), kMaxNodes)) {
    const uint32_t reduced = plan.reduced_axes();
    for (size_t i = 0; i < count_; ++i) {
      const NormalNode& node = plan.nodes[i];
      // Of one element there is one, whatever the tile.
      const double share = node.axes == 0 ? 0 : share_of(plan, node.axes, reduced);
      bytes_[i] = static_cast<double>(size_of(node.dtype)) * share;
      last_use_[i] = -1;
      uses_[i] = 0;
      for (const int32_t input : node.inputs) {
        if (input < 0 || last_use_[input] == static_cast<int16_t>(i)) continue;
        last_use_[input] = static_cast<int16_t>(i);
        ++uses_[input];
      }
    }
  }

  // `reused`: count absorbed values that are used more than once, in the bytes that are read, and
  // nothing else of what joined instructions convert.
  void weigh(const Target& target, bool reused) {
    for (size_t i = 0; i < count_; ++i) {
      const NormalNode& node = plan_.nodes[i];
      weight_[i] = bytes_[i];
      if (node.op == PlanOp::fill_ || node.op == PlanOp::store_) weight_[i] = 0;
      if (node.op == PlanOp::load_) {
        const NormalAccess& access = plan_.accesses[node.access];
        if (absorbed(plan_, target, access, node.dtype, reused)) {
          const bool keeps = reused && uses_[i] > 1;
          const double read = static_cast<double>(size_of(access.storage)) /
                              static_cast<double>(size_of(node.dtype));
          weight_[i] = keeps ? bytes_[i] * read : 0;
        }
      }
      if (node.op == PlanOp::store_) weigh_stored(target, node, reused);
    }
  }

  double peak() {
    std::fill_n(alive_, count_, false);
    double live = 0, peak = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (plan_.nodes[i].op == PlanOp::load_) continue;  // lowered at its first use
      double dying = 0, reusable = 0;
      for (const int32_t input : plan_.nodes[i].inputs) {
        if (input < 0) continue;
        if (plan_.nodes[input].op == PlanOp::load_ && !alive_[input]) {
          alive_[input] = true;
          live += weight_[input];
        }
        if (last_use_[input] != static_cast<int16_t>(i) || !alive_[input]) continue;
        alive_[input] = false;
        dying += weight_[input];
        reusable = std::max(reusable, weight_[input]);
      }
      const bool in_place =
          info_of(plan_.nodes[i].op).kind == PlanOpKind::map && reusable >= weight_[i];
      peak = std::max(peak, live + (in_place ? 0 : weight_[i]));
      live += weight_[i] - dying;
      alive_[i] = true;
    }
    return peak;
  }

 private:
  void weigh_stored(const Target& target, const NormalNode& store, bool reused) {
    const int32_t source = store.inputs[0];
    const NormalNode& stored = plan_.nodes[source];
    if (absorbed(plan_, target, plan_.accesses[store.access], stored.dtype, reused)) {
      if (store.axes == stored.axes && !(reused && uses_[source] > 1)) weight_[source] = 0;
    } else if (stored.op == PlanOp::load_) {  // a store to scattered places reads local memory
      weight_[source] = bytes_[source];
    }
  }

  const NormalPlan& plan_;
  const size_t count_;
  int16_t last_use_[kMaxNodes], uses_[kMaxNodes];
  double bytes_[kMaxNodes];   // of a full tile's value, per element
  double weight_[kMaxNodes];  // of which count
  bool alive_[kMaxNodes];
};

}  // namespace

LiveBytes peak_live_bytes(const NormalPlan& plan, const Target& target) {
  Liveness liveness(plan);
  LiveBytes bytes;
  liveness.weigh(target, false);
  bytes.local = liveness.peak();
  if (!target.unified_memory) {
    bytes.cached = bytes.local;
    return bytes;
  }
  liveness.weigh(target, true);
  bytes.cached = liveness.peak();
  return bytes;
}

}  // namespace dvm
