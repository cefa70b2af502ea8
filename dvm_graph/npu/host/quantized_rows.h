// Rows of f32 that become bytes at once: quotients by a number, rounded and kept within levels.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/joined_rows.h"
#include "npu/host/rounding.h"

namespace dvm::DVM_LEVEL {
namespace {

// A group that is such: load_row, then `quantize` or `quantize_around_0` and what goes with it.
inline bool quantizes_rows(const Group& group) {
  const Step& last = group.steps[group.count - 1];
  const bool adds = group.steps[1].what == Do::quantize;
  if (!adds && group.steps[1].what != Do::quantize_around_0) return false;
  if (group.steps[0].what != Do::load_row || group.count != (adds ? 7 : 6)) return false;
  for (int s = 0; s + 1 < group.count; s++) {
    if (group.steps[s].keep != Keep::nothing) return false;
  }
  return last.keep != Keep::nothing && is_byte(last.kept_as);
}

// Quotients by one number, no more than `high`, to the nearest: four vectors at a time.
//
// What is multiplied by a little less and by a little more than the reciprocal lies on either side
// of the quotient, rounded as it is: three roundings of 2^-24 each are less than 2^-22. Where both
// come to the same whole number, so does that. Where they do not, and where the number is not
// moderate, quotients are divided, which takes longer.
class WholeQuotients {
 public:
  DVM_INLINE WholeQuotients(float by, float high)
      : multiplies_(kVectorBytes > 16 && by > 0 && is_moderate(by)),
        by_(splat<F>(by)),
        high_(splat<F>(high)),
        most_(splat<F>(high * by)),
        less_(splat<F>(1 / by * (1 - 0x1p-22f))),
        more_(splat<F>(1 / by * (1 + 0x1p-22f))) {}

  DVM_INLINE void round(const F (&x)[4], I (&wholes)[4]) const {
    if (multiplies_) [[likely]] {
      I apart{};
      each<4>([&](auto index) DVM_LAMBDA_INLINE {
        const F bounded = lesser_lanes(most_, x[index.k]);
        wholes[index.k] = to_nearest(bounded * less_);
        apart |= wholes[index.k] ^ to_nearest(bounded * more_);
      });
      if (!any(apart != I{})) [[likely]]
        return;
    }
    each<4>([&](auto index) DVM_LAMBDA_INLINE {
      wholes[index.k] = to_nearest(lesser_lanes(high_, x[index.k] / by_));
    });
  }

 private:
  const bool multiplies_;
  const F by_, high_, most_, less_, more_;
};

// Four vectors at a time; returns the elements that are done.
inline int64_t quantize_row(const Step* steps, int count, int64_t n, FetchAhead& ahead) {
  constexpr int64_t kFour = 4 * kLanes<float>;
  const Step& last = steps[count - 1];
  WholeLevels whole;
  if (!find_levels(steps + count, steps[1].what == Do::quantize, whole)) return 0;
  const auto level = [&](float less) { return static_cast<int64_t>(less) + whole.zero; };
  const Levels levels{level(whole.low), level(whole.high), whole.zero};
  if (!are_bytes(levels, last.kept_as)) return 0;
  const Rounding rounding = Rounding::to<uint8_t>(levels);
  const WholeQuotients quotients(number_at(steps[1]), rounding.high);
  const auto* from = reinterpret_cast<const float*>(steps[0].in);
  auto* to = reinterpret_cast<uint8_t*>(last.out);
  int64_t i = 0;
  for (; i + kFour <= n; i += kFour) {
    if (i % (kStrip * kLanes<float>) == 0) ahead.strip();
    F x[4];
    I rounded[4];
    each<4>([&](auto index) DVM_LAMBDA_INLINE { x[index.k] = load<F>(from + i + index.k * kF); });
    quotients.round(x, rounded);
    store(to + i, one_by_one(rounding.levels(rounded)));
  }
  return i;
}

inline void quantize_rows(const Group& group, const Rows& rows, FetchAhead& fetches) {
  constexpr int64_t L = kLanes<float>;
  FetchAhead ahead = fetches;  // in registers
  RowSteps<AnySteps> all(group, rows);
  for (int64_t row = 0; row < rows.count; row++, all.next_row()) {
    int64_t i = quantize_row(all.steps(), group.count, rows.elements, ahead);
    for (F one[1]; i < rows.elements; i += L) {
      AnySteps::run<1, true>(all.steps(), group.count, i, lesser(L, rows.elements - i), one);
    }
  }
  fetches = ahead;
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
