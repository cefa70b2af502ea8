// Rows of a group of joined instructions: every row is walked once, in strips of a few vectors that
// stay in registers from one instruction to the next.
//
// The order in which a reduction adds depends on the extents only; sums are cascaded in three
// levels. Compiled per level: see simd.h.
#pragma once

#include "npu/host/first_lanes.h"
#include "npu/host/joined_steps.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kLevel = 16;  // strips, or sums of them, that a level of sums takes

// Folds fewer strips than a level takes; two vectors of a strip go to the same sum.
template <class Op>
struct Sums {
  static constexpr int kCount = kStrip / 2;
  F at[kCount];

  DVM_INLINE void clear() {
    each<kCount>([&](auto index)
                     DVM_LAMBDA_INLINE { at[index.k] = splat<F>(Op::template kIdentity<float>); });
  }
  DVM_INLINE void add(const F (&strip)[kStrip]) {
    each<kCount>([&](auto index) DVM_LAMBDA_INLINE {
      const F pair = Op::combine(strip[index.k], strip[index.k + kCount]);
      at[index.k] = Op::combine(at[index.k], pair);
    });
  }
  template <int K>
  DVM_INLINE void add(const F (&some)[K])
    requires(K <= kCount)
  {
    each<K>([&](auto index)
                DVM_LAMBDA_INLINE { at[index.k] = Op::combine(at[index.k], some[index.k]); });
  }
  DVM_INLINE void add(const Sums& other) {
    each<kCount>([&](auto index) DVM_LAMBDA_INLINE {
      at[index.k] = Op::combine(at[index.k], other.at[index.k]);
    });
  }
  // A vector whose lanes are left to fold.
  DVM_INLINE F total() const {
    const F total = Op::combine(at[0], at[1]);
    if constexpr (kCount == 2) return total;
    return Op::combine(total, Op::combine(at[kCount - 2], at[kCount - 1]));
  }
};

// Folds any number of strips: sums are carried over to the next of three levels after kLevel of
// them, so that the error of a long row stays small. What is carried is no member of the object, so
// that the sums themselves stay in registers.
template <class Op>
class Folding {
 public:
  struct Carried {  // from the first full level on
    Sums<Op> level[2];
  };

  DVM_INLINE explicit Folding(Carried& carried) : carried_(carried) { sums_.clear(); }
  DVM_INLINE void add(const F (&strip)[kStrip]) {
    sums_.add(strip);
    if (++strips_ % kLevel == 0) [[unlikely]] {
      const Sums<Op> full = sums_;
      sums_.clear();
      carry_over(carried_, full, strips_);
    }
  }
  template <int K>
  DVM_INLINE void add(const F (&some)[K])
    requires(K < kStrip)
  {
    sums_.add(some);
  }
  DVM_INLINE F total() {
    if (strips_ >= kLevel) [[unlikely]] {
      Sums<Op> carried = carried_.level[0];
      carried.add(carried_.level[1]);
      sums_.add(carried);
    }
    return sums_.total();
  }

 private:
  [[gnu::noinline, gnu::cold]] static void carry_over(Carried& to, const Sums<Op>& sums,
                                                      uint64_t strips) {
    if (strips == kLevel) {
      for (Sums<Op>& level : to.level) level.clear();
    }
    to.level[0].add(sums);
    if (strips % (kLevel * kLevel) != 0) return;
    to.level[1].add(to.level[0]);
    to.level[0].clear();
  }

  Sums<Op> sums_;
  Carried& carried_;
  uint64_t strips_ = 0;
};

struct NoFold {
  template <int K>
  DVM_INLINE void add(const F (&)[K]) {}
};

// The lanes past `count` replaced by the identity.
template <class Op>
DVM_INLINE F identity_beyond(F v, int64_t count) {
  return first_lanes(v, count, splat<F>(Op::template kIdentity<float>));
}

template <class Op, class Steps, class Fold>
DVM_INLINE void run_row(const Step* steps, int count, int64_t n, int64_t before, Fold& fold,
                        FetchAhead& ahead) {
  constexpr int64_t L = kLanes<float>;
  constexpr bool kFolds = !std::is_same_v<Fold, NoFold>;
  const auto part = [&](int64_t i, int64_t lanes, auto vectors) DVM_LAMBDA_INLINE {
    constexpr int K = decltype(vectors)::k;
    F some[K] = {};
    Steps::template run<K, true>(steps, count, i, lanes, some);
    if constexpr (kFolds) {
      each<K>([&](auto index) DVM_LAMBDA_INLINE {
        some[index.k] = identity_beyond<Op>(some[index.k], lanes_of<K>(lanes, index));
      });
      fold.add(some);
    }
  };
  int64_t i = 0;
  for (; i < before; i += lesser(L, before - i)) part(i, lesser(L, before - i), Index<1>{});
  if constexpr (Steps::kCount == 0 && kStripsLookedUp > 1) {
    constexpr int kVectors = kStripsLookedUp * kStrip;
    for (; i + kVectors * L <= n; i += kVectors * L) {
      F strips[kStripsLookedUp][kStrip] = {};
      each<kStripsLookedUp>([&](auto) DVM_LAMBDA_INLINE { ahead.strip(); });
      Steps::template run<kVectors, false>(steps, count, i, L,
                                           reinterpret_cast<F(&)[kVectors]>(strips));
      each<kStripsLookedUp>([&](auto index) DVM_LAMBDA_INLINE { fold.add(strips[index.k]); });
    }
  }
  for (; i + kStrip * L <= n; i += kStrip * L) {
    F strip[kStrip] = {};
    ahead.strip();
    Steps::template run<kStrip, false>(steps, count, i, L, strip);
    fold.add(strip);
  }
  if (i < n) ahead.strip();
  constexpr int kHalf = kStrip / 2;
  if constexpr (kFolds == (Steps::kCount > 0)) {
    if (i + kHalf * L <= n) {
      F half[kHalf] = {};
      Steps::template run<kHalf, false>(steps, count, i, L, half);
      fold.add(half);
      i += kHalf * L;
    }
  }
  // One vector at a time would take as long as several: each has to wait for what it computes.
  if constexpr (kFolds && Steps::kCount > 0) {
    const int64_t rest = n - i;
    if constexpr (kHalf > 2) {
      if (rest > 3 * L) return part(i, rest, Index<4>{});
      if (rest > 2 * L) return part(i, rest, Index<3>{});
    }
    if (rest > L) return part(i, rest, Index<2>{});
  }
  for (; i + L <= n; i += L) {
    F one[1] = {};
    Steps::template run<1, false>(steps, count, i, L, one);
    fold.add(one);
  }
  if (i < n) part(i, n - i, Index<1>{});
}

// Rows of a group that are run in one go.
struct Rows {
  int64_t first = 0;  // by the places' outer strides
  int64_t count = 0;
  int64_t elements = 0;  // of each
  float* folded = nullptr;
  float* lanes = nullptr;  // where a vector of what each row is folded to goes as well; or null
};

// The steps at the current row.
template <class Steps>
class RowSteps {
  static constexpr int Count = Steps::kCount;

 public:
  DVM_INLINE RowSteps(const Group& group, const Rows& rows)
      : group_(group), count_(Count > 0 ? Count : group.count) {
    each_step([&](int s) DVM_LAMBDA_INLINE {
      const Place& place = group.places[s];
      steps_[s] = {group.steps[s].what, group.steps[s].keep, group.steps[s].kept_as,
                   place.in.at + rows.first * place.in.outer,
                   place.out.at + rows.first * place.out.outer};
      in_stride_[s] = place.in.middle;
      out_stride_[s] = place.out.middle;
    });
  }
  DVM_INLINE const Step* steps() const { return steps_; }
  DVM_INLINE void next_row() {
    each_step([&](int s) DVM_LAMBDA_INLINE {
      steps_[s].in += in_stride_[s];
      if (Steps::stores(s)) steps_[s].out += out_stride_[s];
    });
  }
  // Streams need whole vectors of the memory: returns the elements before the first one, and stores
  // as usual where another output is not aligned with it.
  DVM_INLINE int64_t align_streams(int64_t n) {
    if (!group_.streams) return 0;
    int64_t before = -1;
    each_step([&](int s) DVM_LAMBDA_INLINE {
      if (!Steps::stores(s) || group_.places[s].keep != Keep::stream) return;
      const int64_t missing = missing_to_stream(steps_[s], n);
      if (before < 0) before = missing;
      steps_[s].keep = missing == before ? Keep::stream : Keep::store;
    });
    return before;
  }

 private:
  template <class Body>
  DVM_INLINE void each_step(Body body) const {
    if constexpr (Count > 0) {
      each<Count>([&](auto index) DVM_LAMBDA_INLINE { body(index.k); });
    } else {
      for (int s = 0; s < count_; s++) body(s);
    }
  }
  static int64_t missing_to_stream(const Step& step, int64_t n) {
    if (step.kept_as == DType::f32) return to_alignment(reinterpret_cast<float*>(step.out), n);
    return to_alignment(reinterpret_cast<uint16_t*>(step.out), n);
  }

  static constexpr int kMost = Count > 0 ? Count : 2 * kMostJoined;
  const Group& group_;
  const int count_;
  Step steps_[kMost];
  int64_t in_stride_[kMost], out_stride_[kMost];
};

// `Op`: the fold at the end, or NoFold.
template <class Op, class Steps = AnySteps>
void run_rows(const Group& group, const Rows& rows, FetchAhead& fetches) {
  FetchAhead ahead = fetches;  // in registers
  RowSteps<Steps> all(group, rows);
  const int64_t count = rows.count, elements = rows.elements;
  if constexpr (std::is_same_v<Op, NoFold>) {
    for (int64_t row = 0; row < count; row++, all.next_row()) {
      const int64_t before = all.align_streams(elements);
      NoFold none;
      run_row<Op, Steps>(all.steps(), group.count, elements, before, none, ahead);
    }
  } else {
    Totals<Op, float> totals(rows.folded, group.folded.middle, group.accumulate, rows.lanes);
    for (int64_t row = 0; row < count; row++, all.next_row()) {
      const int64_t before = all.align_streams(elements);
      typename Folding<Op>::Carried carried;
      Folding<Op> fold(carried);
      run_row<Op, Steps>(all.steps(), group.count, elements, before, fold, ahead);
      totals.add(fold.total());
    }
    totals.write();
  }
  fetches = ahead;
}

template <class Steps, Result result, class Fold>
DVM_INLINE void run_whole_row(const Step* steps, int64_t n, Fold& fold, FetchAhead& ahead) {
  constexpr int64_t L = kLanes<float>;
  int64_t i = 0;
  for (; i + kStrip * L <= n; i += kStrip * L) {
    F strip[kStrip] = {};
    ahead.strip();
    Steps::template run_whole<result>(steps, i, strip);
    fold.add(strip);
  }
  if (i < n) ahead.strip();
  const auto some = [&](auto vectors) DVM_LAMBDA_INLINE {
    constexpr int K = decltype(vectors)::k;
    if (i + K * L > n) return;
    F some[K] = {};
    Steps::template run_whole<result>(steps, i, some);
    fold.add(some);
    i += K * L;
  };
  some(Index<kStrip / 2>{});
  if constexpr (kStrip > 4) some(Index<2>{});
  some(Index<1>{});
}

// Rows of whole vectors, so few that a sum needs one level only. What all of them have in common is
// looked up once: short rows would spend as much time on that as on what is computed.
template <class Op, class Steps, Result result>
void run_whole_rows(const Group& group, const Rows& rows, FetchAhead& fetches) {
  FetchAhead ahead = fetches;  // in registers
  RowSteps<Steps> all(group, rows);
  const int64_t n = rows.elements;
  if constexpr (std::is_same_v<Op, NoFold>) {
    NoFold none;
    for (int64_t row = 0; row < rows.count; row++, all.next_row()) {
      run_whole_row<Steps, result>(all.steps(), n, none, ahead);
    }
  } else {
    Totals<Op, float> totals(rows.folded, group.folded.middle, group.accumulate, rows.lanes);
    for (int64_t first = 0; first < rows.count; first += kF) {
      const int64_t count = lesser<int64_t>(rows.count - first, kF);
      for (int64_t row = 0; row < count; row++, all.next_row()) {
        Sums<Op> sums;
        sums.clear();
        run_whole_row<Steps, result>(all.steps(), n, sums, ahead);
        totals.set(row, sums.total());
      }
      totals.write(count);
    }
  }
  fetches = ahead;
}

// Whether all rows are such, given how the group keeps what it leaves.
template <bool Folds>
bool has_whole_rows(const Group& group, const Rows& rows) {
  constexpr int64_t kMost = int64_t{kLevel} * kStrip * kLanes<float>;
  if (rows.elements % kLanes<float> != 0 || (Folds && rows.elements >= kMost)) return false;
  const Step& step = group.steps[group.count - 1];
  if (step.keep == Keep::nothing) return Folds;
  if (step.kept_as != DType::f32) return false;
  if (step.keep == Keep::store) return true;
  const Tile<std::byte>& out = group.places[group.count - 1].out;
  const auto first = reinterpret_cast<uintptr_t>(out.at + rows.first * out.outer);
  return !Folds && (first | static_cast<uintptr_t>(out.middle)) % kVectorBytes == 0;
}

template <class Op, class Steps>
void run_known_rows(const Group& group, const Rows& rows, FetchAhead& ahead) {
  constexpr bool kFolds = !std::is_same_v<Op, NoFold>;
  if (!has_whole_rows<kFolds>(group, rows)) return run_rows<Op, Steps>(group, rows, ahead);
  if (group.steps[group.count - 1].keep == Keep::store) {
    return run_whole_rows<Op, Steps, Result::stored>(group, rows, ahead);
  }
  // A fold streams nothing, and other groups keep what they leave.
  constexpr Result kOther = kFolds ? Result::nothing : Result::streamed;
  run_whole_rows<Op, Steps, kOther>(group, rows, ahead);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
