// Gathers: of an axis, the elements or the rows that indices pick.
//
// Elements of a row are picked a piece at a time: where they lie is known for all rows that share
// their indices. Where neighbours lie near each other, as they do in an image that is resized, a
// vector of them is shuffled out of two; else they are read one by one. Compiled per level: see
// simd.h.
#pragma once

#include "npu/host/rows.h"
#include "npu/host/storage.h"

namespace dvm::DVM_LEVEL {
namespace {

// The wrapped index, or -1 after leaving a trap.
DVM_INLINE int64_t checked_index(Core& core, int64_t index, int64_t limit) {
  const int64_t wrapped = index < 0 ? index + limit : index;
  if (wrapped >= 0 && wrapped < limit) return wrapped;
  core.trap.kind = TrapKind::index_out_of_range;
  core.trap.value = index;
  core.trap.limit = limit;
  return -1;
}

// Some elements of a row, of type S: how far behind the first of their axis they lie.
template <class S>
class Picked {
 public:
  static constexpr int64_t kMost = 256;

  // Of indices a `stride` apart, of elements a `step` apart; false after leaving a trap.
  DVM_INLINE bool find(Core& core, const int64_t* indices, int64_t stride, int64_t n,
                       int64_t axis_stride, int64_t step, int64_t limit) {
    if constexpr (kShuffles) {
      if (stride == 1 && find_near(indices, n, axis_stride, step, limit)) return true;
    } else if (stride == 1 && all_inside(indices, n, limit)) {
      DVM_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; i++)
        places_[i] = wrapped_index(indices[i], limit) * axis_stride + i * step;
      return true;
    }
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = checked_index(core, indices[i * stride], limit);
      if (at < 0) return false;
      places_[i] = at * axis_stride + i * step;
    }
    near_ = false;
    return true;
  }

  DVM_INLINE int64_t operator[](int64_t i) const { return places_[i]; }

  // The first n, from the axis that begins at `in`.
  DVM_INLINE void copy(S* out, const S* in, int64_t n) const {
    if constexpr (kShuffles)
      if (near_) return shuffle(out, in, n);
#pragma GCC unroll 8  // a loop of so few instructions runs at the pace of its jumps
    for (int64_t i = 0; i < n; i++) out[i] = in[places_[i]];
  }

 private:
  using V = Full<float>;
  static constexpr int64_t L = kLanes<float>;
  static constexpr bool kShuffles = std::is_same_v<S, float> && kShufflesAtOnce;

  // And whether they are near: each vector of elements lies within two, from its first element on.
  // False if some index is out of range.
  DVM_INLINE bool find_near(const int64_t* indices, int64_t n, int64_t axis_stride, int64_t step,
                            int64_t limit) {
    using Numbers = Full<int64_t>;
    constexpr int64_t kNumbers = kLanes<int64_t>;
    Numbers signs{}, apart{};  // signs: of the distances to both ends
    Numbers last = splat<Numbers>(INT64_MIN);
    Numbers of_step;  // what steps add to the places of the next numbers
    for (int64_t i = 0; i < kNumbers; i++) of_step[i] = i * step;
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      int64_t first = 0;
#pragma GCC unroll 4
      for (int64_t j = 0; j < L; j += kNumbers) {
        const auto index = load<Numbers>(indices + i + j);
        const Numbers wrapped = index + (limit & (index >> 63));
        signs |= wrapped | (limit - 1 - wrapped);
        const Numbers places = wrapped * axis_stride + of_step;
        of_step += kNumbers * step;
        last = greater_lanes(last, places);
        if (j == 0) first = places[0];
        const Numbers behind = places - first;
        apart |= behind;
        store(places_ + i + j, places);
        store(within_ + i + j, convert<int32_t>(behind));
      }
    }
    last_ = INT64_MIN;
    int64_t all_signs = 0, all_apart = 0;
    for (int64_t lane = 0; lane < kNumbers; lane++) {
      all_signs |= signs[lane];
      all_apart |= apart[lane];
      last_ = greater(last_, last[lane]);
    }
    if (all_signs < 0 || !all_inside(indices + i, n - i, limit)) return false;
    for (int64_t j = i; j < n; j++) {
      places_[j] = wrapped_index(indices[j], limit) * axis_stride + j * step;
      within_[j] = static_cast<int32_t>(places_[j] - places_[i]);
      all_apart |= places_[j] - places_[i];
      last_ = greater(last_, places_[j]);
    }
    for (int64_t j = n; j < i + L; j++) within_[j] = 0;
    near_ = (all_apart & ~(2 * L - 1)) == 0;
    return true;
  }

  DVM_INLINE void shuffle(S* out, const S* in, int64_t n) const {
    for (int64_t i = 0; i < n; i += L) {
      const S* const from = in + places_[i];
      const int64_t there = last_ + 1 - places_[i];  // elements that are known to exist
      V low, high;
      if (there >= 2 * L) {
        low = load<V>(from);
        high = load<V>(from + L);
      } else {
        low = load_partial<V>(from, lesser(there, L));
        high = there > L ? load_partial<V>(from + L, there - L) : V{};
      }
      const V picked = shuffled(low, high, load<IntegerVec<V>>(within_ + i));
      if (i + L <= n)
        store(out + i, picked);
      else
        store_partial(out + i, picked, n - i);
    }
  }

  int64_t places_[kMost];
  int32_t within_[kMost + L];  // behind the first of a vector
  int64_t last_;               // the furthest
  bool near_ = false;
};

template <class R, class S>
struct Gather {
  Extents e;
  Tile<R> to;
  Tile<const S> from;
  Tile<const int64_t> index;
  int64_t axis_stride, limit;

  DVM_INLINE R* row(int64_t o, int64_t m) const { return to.at + o * to.outer + m * to.middle; }
  DVM_INLINE const S* source(int64_t o, int64_t m) const {
    return from.at + o * from.outer + m * from.middle;
  }

  // Each index picks a row.
  void rows(Core& core) const {
    for (int64_t o = 0; o < e.outer; o++) {
      for (int64_t m = 0; m < e.middle; m++) {
        const int64_t at = checked_index(core, index.at[o * index.outer + m * index.middle], limit);
        if (at < 0) return;
        const S* start = source(o, m) + at * axis_stride;
        if (to.inner == 1 && from.inner == 1)
          convert_row(row(o, m), start, e.inner);
        else
          for (int64_t i = 0; i < e.inner; i++)
            row(o, m)[i * to.inner] = convert_one<R>(start[i * from.inner]);
      }
    }
  }

  // Each index picks an element. Indices that many rows have in common are looked at once.
  void elements(Core& core) const {
    const bool common = index.outer == 0 && index.middle == 0;
    Picked<S> picked;
    for (int64_t first = 0; first < e.inner; first += picked.kMost) {
      const int64_t n = lesser(e.inner - first, picked.kMost);
      for (int64_t o = 0; o < e.outer; o++) {
        for (int64_t m = 0; m < e.middle; m++) {
          const int64_t* indices =
              index.at + o * index.outer + m * index.middle + first * index.inner;
          if ((!common || (o == 0 && m == 0)) &&
              !picked.find(core, indices, index.inner, n, axis_stride, from.inner, limit))
            return;
          pick(row(o, m) + first * to.inner, source(o, m) + first * from.inner, picked, n);
        }
      }
    }
  }

 private:
  DVM_INLINE void pick(R* out, const S* in, const Picked<S>& picked, int64_t n) const {
    if (to.inner != 1) {
      for (int64_t i = 0; i < n; i++) out[i * to.inner] = convert_one<R>(in[picked[i]]);
    } else if constexpr (std::is_same_v<R, S>) {
      picked.copy(out, in, n);
    } else {  // whole vectors are converted
      S row[Picked<S>::kMost];
      picked.copy(row, in, n);
      convert_row(out, row, n);
    }
  }
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
