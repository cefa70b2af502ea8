// Gathers: of an axis, the elements or the rows that indices pick.
//
// Elements of a row are picked a long piece at a time: where they lie is known for all rows that
// share their indices. Where neighbours lie near each other, as they do in an image that is
// resized, a vector of them is shuffled out of two; else they are read one by one. Compiled per
// level: see simd.h.
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

// Some elements of a row, of type S: how far behind the first of their axis they lie. Of each few
// of them, the first one's place, and how far the others are from it.
template <class S>
class Picked {
 public:
  static constexpr int64_t kMost = 2048;

  // Of indices a `stride` apart, of elements a `step` apart; false after leaving a trap.
  DVM_INLINE bool find(Core& core, const int64_t* indices, int64_t stride, int64_t n,
                       int64_t axis_stride, int64_t step, int64_t limit) {
    if (stride == 1) {
      const bool found = axis_stride == 1 && step == 0
                             ? find_all<true>(indices, n, axis_stride, step, limit)
                             : find_all<false>(indices, n, axis_stride, step, limit);
      if (found) return true;
    }
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = checked_index(core, indices[i * stride], limit);
      if (at < 0) return false;
      place(i, at * axis_stride + i * step);
    }
    near_ = false;
    return true;
  }

  // Whether places of an axis are so near each other that they can be told.
  DVM_INLINE static bool reaches(int64_t axis_stride, int64_t step, int64_t limit) {
    constexpr int64_t kFar = int64_t{1} << 30;
    const auto far = [](int64_t stride, int64_t count) DVM_LAMBDA_INLINE {
      return stride > kFar / count || stride < -kFar / count;
    };
    return !far(axis_stride, limit < 1 ? 1 : limit) && !far(step, kMost);
  }

  DVM_INLINE int64_t operator[](int64_t i) const { return firsts_[i / L] + within_[i]; }

  // The first n, from the axis that begins at `in`.
  DVM_INLINE void copy(S* out, const S* in, int64_t n) const {
    if constexpr (kShuffles)
      if (near_) return shuffle(out, in, n);
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      const S* const from = in + firsts_[i / L];
#pragma GCC unroll 16  // a loop of so few instructions runs at the pace of its jumps
      for (int64_t j = 0; j < L; j++) out[i + j] = from[within_[i + j]];
    }
    for (; i < n; i++) out[i] = in[(*this)[i]];
  }

 private:
  using V = Full<float>;
  static constexpr int64_t L = kLanes<float>;
  static constexpr bool kShuffles = std::is_same_v<S, float> && kShufflesAtOnce;

  DVM_INLINE void place(int64_t i, int64_t at) {
    if (i % L == 0) firsts_[i / L] = at;
    within_[i] = static_cast<int32_t>(at - firsts_[i / L]);
  }

  // And whether they are near: each vector of elements lies within two, from its first element on.
  // False if some index is out of range.
  template <bool AsIs>
  DVM_INLINE bool find_all(const int64_t* indices, int64_t n, int64_t axis_stride, int64_t step,
                           int64_t limit) {
    using Numbers = Full<int64_t>;
    constexpr int64_t kNumbers = kLanes<int64_t>;
    Numbers signs{}, apart{};  // signs: of the distances to both ends
    Numbers last = splat<Numbers>(INT64_MIN);
    Numbers of_step{};  // what steps add to the places of the next numbers
    if constexpr (!AsIs)
      for (int64_t i = 0; i < kNumbers; i++) of_step[i] = i * step;
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      int64_t first = 0;
#pragma GCC unroll 4
      for (int64_t j = 0; j < L; j += kNumbers) {
        const auto index = load<Numbers>(indices + i + j);
        const Numbers wrapped = index + (limit & (index >> 63));
        signs |= wrapped | (limit - 1 - wrapped);
        Numbers places = wrapped;
        if constexpr (!AsIs) {
          places = wrapped * axis_stride + of_step;
          of_step += kNumbers * step;
        }
        if constexpr (kShuffles) last = greater_lanes(last, places);
        if (j == 0) first = places[0];
        const Numbers behind = places - first;
        apart |= behind;
        store(within_ + i + j, convert<int32_t>(behind));
      }
      firsts_[i / L] = first;
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
      const int64_t at = wrapped_index(indices[j], limit) * axis_stride + j * step;
      place(j, at);
      all_apart |= within_[j];
      last_ = greater(last_, at);
    }
    for (int64_t j = n; j < i + L; j++) within_[j] = 0;
    near_ = (all_apart & ~(2 * L - 1)) == 0;
    return true;
  }

  DVM_INLINE void shuffle(S* out, const S* in, int64_t n) const {
    for (int64_t i = 0; i < n; i += L) {
      const S* const from = in + firsts_[i / L];
      const int64_t there = last_ + 1 - firsts_[i / L];  // elements that are known to exist
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

  int64_t firsts_[kMost / L + 1];
  int32_t within_[kMost + L];
  int64_t last_;  // the furthest
  bool near_ = false;
};

template <class R, class S>
struct Gather {
  Extents e;
  Tile<R> to;
  Tile<const S> from;
  Tile<const int64_t> index;
  int64_t axis_stride, limit;
  bool stream;

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
          convert_row(row(o, m), start, e.inner, stream);
        else
          for (int64_t i = 0; i < e.inner; i++)
            row(o, m)[i * to.inner] = convert_one<R>(start[i * from.inner]);
      }
    }
  }

  // Each index picks an element. Indices that all rows have in common are looked at once; else rows
  // are taken as a whole, as they lie in memory, but where each column picks from its own: some of
  // those, of all rows.
  void elements(Core& core) const {
    if (!Picked<S>::reaches(axis_stride, from.inner, limit)) return apart(core);
    Picked<S> picked;
    const auto find = [&](const int64_t* indices, int64_t n) DVM_LAMBDA_INLINE {
      return picked.find(core, indices, index.inner, n, axis_stride, from.inner, limit);
    };
    const bool common = index.outer == 0 && index.middle == 0;
    const int64_t together = common ? picked.kMost : from.inner == 0 ? e.inner : kColumns;
    for (int64_t start = 0; start < e.inner; start += together) {
      const int64_t end = lesser(e.inner, start + together);
      if (common && !find(index.at + start * index.inner, end - start)) return;
      for (int64_t o = 0; o < e.outer; o++) {
        for (int64_t m = 0; m < e.middle; m++) {
          const int64_t* const indices = index.at + o * index.outer + m * index.middle;
          for (int64_t first = start; first < end; first += picked.kMost) {
            const int64_t n = lesser(end - first, picked.kMost);
            if (!common && !find(indices + first * index.inner, n)) return;
            pick(row(o, m) + first * to.inner, source(o, m) + first * from.inner, picked, n);
          }
        }
      }
    }
  }

 private:
  static constexpr int64_t kColumns = 256;

  // One by one.
  void apart(Core& core) const {
    for (int64_t o = 0; o < e.outer; o++) {
      for (int64_t m = 0; m < e.middle; m++) {
        for (int64_t i = 0; i < e.inner; i++) {
          const int64_t* const number =
              index.at + o * index.outer + m * index.middle + i * index.inner;
          const int64_t at = checked_index(core, *number, limit);
          if (at < 0) return;
          row(o, m)[i * to.inner] = convert_one<R>(source(o, m)[at * axis_stride + i * from.inner]);
        }
      }
    }
  }

  DVM_INLINE void pick(R* out, const S* in, const Picked<S>& picked, int64_t n) const {
    if (to.inner != 1) {
      for (int64_t i = 0; i < n; i++) out[i * to.inner] = convert_one<R>(in[picked[i]]);
    } else if (std::is_same_v<R, S> && !stream) {
      if constexpr (std::is_same_v<R, S>) picked.copy(out, in, n);
    } else {  // whole vectors are converted, and go around the caches
      S row[Picked<S>::kMost];
      picked.copy(row, in, n);
      convert_row(out, row, n, stream);
    }
  }
};

}  // namespace
}  // namespace dvm::DVM_LEVEL
