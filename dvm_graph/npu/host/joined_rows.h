// Rows of a group of joined instructions: every row is walked once, in strips of a few vectors that
// stay in registers from one instruction to the next.
//
// The order in which a reduction adds depends on the extents only; sums are cascaded in three
// levels. Compiled per level: see simd.h.
#pragma once

#include "npu/host/joined_group.h"
#include "npu/host/quotients.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kStrip = strip_vectors(kVectorBytes);
// Strips at a time where steps are looked up, which takes as long for many vectors as for a few.
constexpr int kStripsLookedUp = kVectorBytes == 32 ? 2 : 1;

// Lanes of a row of this storage type, from element i on: a whole vector, or the first `lanes`.
template <class S, bool Partial>
DVM_INLINE F row_lanes(const std::byte* row, int64_t i, int64_t lanes) {
  using T = LaneType<S>;
  using V = Vec<T, kF>;
  const T* const from = reinterpret_cast<const T*>(row) + i;
  if constexpr (Partial)
    return convert_lanes<float, S, kF>(load_partial<V>(from, lanes));
  else
    return convert_lanes<float, S, kF>(load<V>(from));
}

// The bits of i32 that bytes are.
template <class S, bool Partial>
DVM_INLINE F byte_lanes(const std::byte* row, int64_t i, int64_t lanes) {
  const S* const from = reinterpret_cast<const S*>(row) + i;
  const auto bytes = Partial ? load_partial<Vec<S, kF>>(from, lanes) : load<Vec<S, kF>>(from);
  return bits_as<F>(convert<int32_t>(bytes));
}

// What a step reads that is one value for the row.
DVM_INLINE float number_at(const Step& step) { return *reinterpret_cast<const float*>(step.in); }
DVM_INLINE int32_t bits_at(const Step& step) { return *reinterpret_cast<const int32_t*>(step.in); }

// A value in all lanes, whatever its bits are.
DVM_INLINE F value_lanes(const std::byte* at) {
  return bits_as<F>(splat<I>(*reinterpret_cast<const int32_t*>(at)));
}

// Where steps are looked up, a function that needs all registers is a call: else the strip would
// lie in memory for the sake of one step among many.
template <int K, class Body>
[[gnu::noinline]] void call_on(F (&strip)[K], Body body) {
  body(strip);
}
template <int K, class Body>
DVM_INLINE void run_aside(F (&strip)[K], Body body) {
  constexpr int kPart = K < kStrip ? K : kStrip;
  each<K / kPart>([&](auto part) DVM_LAMBDA_INLINE {
    constexpr int kFirst = decltype(part)::k * kPart;
    F copy[kPart];
    each<kPart>([&](auto index) DVM_LAMBDA_INLINE { copy[index.k] = strip[kFirst + index.k]; });
    call_on(copy, body);
    each<kPart>([&](auto index) DVM_LAMBDA_INLINE { strip[kFirst + index.k] = copy[index.k]; });
  });
}

// One step on K vectors from element i of the row on; of the last one, `lanes`.
template <Do what, int K, bool Partial>
DVM_INLINE void apply(const Step& step, int64_t i, int64_t lanes, F (&strip)[K]) {
  // The compiler reads the one branch that is the step's: a switch would be all of them, for each
  // step of each sequence.
#define DVM_EACH(operand, expression)            \
  each<K>([&](auto index) DVM_LAMBDA_INLINE {    \
    [[maybe_unused]] const F x = strip[index.k]; \
    [[maybe_unused]] const F y = operand;        \
    strip[index.k] = expression;                 \
  })
#define DVM_ROW(S) row_lanes<S, Partial>(step.in, i + index.k * kLanes<float>, lanes)
#define DVM_STEP(name, expression)                                            \
  if constexpr (what == Do::name##_row) DVM_EACH(DVM_ROW(float), expression); \
  if constexpr (what == Do::name##_value && what != Do::divide_value) {       \
    const F value = value_lanes(step.in);                                     \
    DVM_EACH(value, expression);                                              \
  }                                                                           \
  if constexpr (what == Do::name##_self) DVM_EACH(x, expression);             \
  if constexpr (what == Do::name##_f16) DVM_EACH(DVM_ROW(Half), expression);  \
  if constexpr (what == Do::name##_bf16) DVM_EACH(DVM_ROW(BFloat), expression);
  DVM_BINARY_STEPS(DVM_STEP)
#undef DVM_STEP
  if constexpr (what == Do::divide_value) divide_by(number_at(step), strip);
#define DVM_STEP(name, expression) \
  if constexpr (what == Do::name) DVM_EACH(x, expression);
  DVM_UNARY_STEPS(DVM_STEP)
#undef DVM_STEP
#undef DVM_ROW
#define DVM_STEP(name, type)      \
  if constexpr (what == Do::name) \
    DVM_EACH((byte_lanes<type, Partial>(step.in, i + index.k * kLanes<float>, lanes)), y);
  DVM_BYTE_STEPS(DVM_STEP)
#undef DVM_STEP
#undef DVM_EACH
#define DVM_STEP(name) \
  if constexpr (what == Do::name) name##_strip(strip);
  DVM_STRIP_STEPS(DVM_STEP)
#undef DVM_STEP
}

// The steps of a run, `at` the first one; leaves it at the last one.
template <Do... what, int K>
DVM_INLINE void apply_run(const Step*& at, int64_t i, int64_t lanes, F (&strip)[K]) {
  const Step* step = at;
  (apply<what, K, K == 1>(*step++, i, lanes, strip), ...);
  at = step - 1;
}

// Of a run that quantises: divide_value, round, add_value or not, least_value, to_i32,
// greatest_i32_value. Between its bounds are so few numbers that quotients need not be exact.
template <Do divide, Do round, Do... rest, int K>
DVM_INLINE void apply_quantize(const Step*& at, int64_t i, int64_t lanes, F (&strip)[K]) {
  const Step* const last = at + 1 + sizeof...(rest);
  const float zero = sizeof...(rest) > 3 ? number_at(at[2]) : 0;
  const float high = number_at(last[-2]) - zero, low = static_cast<float>(bits_at(*last)) - zero;
  const float farthest = greater(__builtin_fabsf(low), __builtin_fabsf(high));
  if (!divide_and_round(number_at(*at), farthest, strip)) [[unlikely]] {
    apply<divide, K, K == 1>(at[0], i, lanes, strip);
    apply<round, K, K == 1>(at[1], i, lanes, strip);
  }
  at += 2;
  apply_run<rest...>(at, i, lanes, strip);
}

// A step that is looked up, or a run of them: then `at` is left at the last one.
template <int K, bool Partial>
DVM_INLINE void look_up(const Step*& at, int64_t i, int64_t lanes, F (&strip)[K]) {
  using enum Do;
  const Step& step = *at;
  switch (step.what) {
#define DVM_CASE(name) \
  case Do::name: return apply<Do::name, K, Partial>(step, i, lanes, strip);
#define DVM_STEP(name, expression) \
  DVM_CASE(name##_row)             \
  DVM_CASE(name##_value) DVM_CASE(name##_self) DVM_CASE(name##_f16) DVM_CASE(name##_bf16)
    DVM_BINARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, expression) DVM_CASE(name)
    DVM_UNARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, type) DVM_CASE(name)
    DVM_BYTE_STEPS(DVM_STEP)
#undef DVM_STEP
#undef DVM_CASE
#define DVM_STEP(name) \
  case Do::name: return run_aside(strip, [](auto& x) DVM_LAMBDA_INLINE { name##_strip(x); });
    DVM_STRIP_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_RUN(name, first, ...)                                     \
  case Do::name:                                                      \
    if constexpr (first == Do::divide_value)                          \
      return apply_quantize<first, __VA_ARGS__>(at, i, lanes, strip); \
    else                                                              \
      return apply_run<first, __VA_ARGS__>(at, i, lanes, strip);
    DVM_RUNS(DVM_RUN)
#undef DVM_RUN
  }
}

// What is half a line must not go around the caches where the other half does not.
template <class S>
constexpr bool kStreamsVectors = std::is_same_v<S, float>;

template <class S, int K, bool Partial>
DVM_INLINE void keep_as(const Step& step, int64_t i, int64_t lanes, const F (&strip)[K]) {
  constexpr int64_t L = kLanes<float>;
  auto* const to = reinterpret_cast<LaneType<S>*>(step.out) + i;
  const auto kept = [&](int k) DVM_LAMBDA_INLINE { return convert_lanes<S, float, kF>(strip[k]); };
  if constexpr (!std::is_same_v<S, float> && K > 1) {
    each<K / 2>([&](auto index) DVM_LAMBDA_INLINE {
      constexpr int k = 2 * decltype(index)::k;
      const Full<uint16_t> two = narrow_two<S>(strip[k], strip[k + 1]);
      step.keep == Keep::stream ? store_stream(to + k * L, two) : store(to + k * L, two);
    });
  } else if constexpr (Partial) {
    const bool stream = step.keep == Keep::stream;
    if (stream && lanes == L) {
      return kStreamsVectors<S> ? store_stream(to, kept(0)) : store(to, kept(0));
    }
    store_lanes(to, kept(0), lanes, stream);
  } else if (step.keep == Keep::stream && kStreamsVectors<S>) {
    each<K>([&](auto index) DVM_LAMBDA_INLINE { store_stream(to + index.k * L, kept(index.k)); });
  } else {
    each<K>([&](auto index) DVM_LAMBDA_INLINE { store(to + index.k * L, kept(index.k)); });
  }
}

// Wraps, so that it is the same for both signs.
template <int K, bool Partial>
DVM_INLINE void keep_bytes(const Step& step, int64_t i, int64_t lanes, const F (&strip)[K]) {
  auto* const to = reinterpret_cast<uint8_t*>(step.out) + i;
  each<K>([&](auto index) DVM_LAMBDA_INLINE {
    const auto bytes = convert<uint8_t>(bits_as<I>(strip[index.k]));
    if constexpr (Partial)
      store_partial(to, bytes, lanes);
    else
      store(to + index.k * kLanes<float>, bytes);
  });
}

template <int K, bool Partial>
DVM_INLINE void keep(const Step& step, int64_t i, int64_t lanes, const F (&strip)[K]) {
  if (step.keep == Keep::nothing) return;
  switch (step.kept_as) {
    case DType::f16: return keep_as<Half, K, Partial>(step, i, lanes, strip);
    case DType::bf16: return keep_as<BFloat, K, Partial>(step, i, lanes, strip);
    case DType::i8:
    case DType::u8: return keep_bytes<K, Partial>(step, i, lanes, strip);
    default: return keep_as<float, K, Partial>(step, i, lanes, strip);
  }
}

// How known steps keep what they leave of rows that consist of whole vectors.
enum class Result : uint8_t { nothing, stored, streamed };

template <Result result, int K>
DVM_INLINE void keep_whole(const Step& step, int64_t i, const F (&strip)[K]) {
  constexpr int64_t L = kLanes<float>;
  [[maybe_unused]] auto* const to = reinterpret_cast<float*>(step.out) + i;
  each<K>([&](auto index) DVM_LAMBDA_INLINE {
    if constexpr (result == Result::stored) store(to + index.k * L, strip[index.k]);
    if constexpr (result == Result::streamed) store_stream(to + index.k * L, strip[index.k]);
  });
}

// Any steps, looked up strip by strip.
struct AnySteps {
  static constexpr int kCount = 0;  // not known
  static constexpr bool stores(int) { return true; }

  template <int K, bool Partial>
  DVM_INLINE static void run(const Step* steps, int count, int64_t i, int64_t lanes,
                             F (&strip)[K]) {
    run_all<K>(steps, count, i, lanes, strip);
  }

 private:
  template <int K>
  DVM_INLINE static void run_all(const Step* steps, int count, int64_t i, int64_t lanes,
                                 F* result) {
    constexpr bool kPartial = K == 1;
    F strip[K] = {};
    for (const Step* step = steps; step != steps + count; step++) {
      look_up<K, kPartial>(step, i, lanes, strip);
      keep<K, kPartial>(*step, i, lanes, strip);
    }
    each<K>([&](auto index) DVM_LAMBDA_INLINE { result[index.k] = strip[index.k]; });
  }
};

// Of a known step: what it leaves is stored as well, for a later one.
constexpr Do kept(Do what) { return static_cast<Do>(static_cast<int>(what) | 0x80); }
constexpr bool is_kept(Do what) { return (static_cast<int>(what) & 0x80) != 0; }
constexpr Do without_kept(Do what) { return static_cast<Do>(static_cast<int>(what) & 0x7f); }

// Steps that are met often, in code of their own: looking them up costs as much as doing them.
template <Do... what>
struct TheseSteps {
  static constexpr int kCount = sizeof...(what);

  static constexpr bool stores(int s) {
    constexpr bool kKept[] = {is_kept(what)...};
    return s == kCount - 1 || kKept[s];
  }
  static bool are(const Group& group) {
    if (group.count != kCount) return false;
    int s = 0;
    return (is(what, group, s++) && ...);
  }
  template <int K, bool Partial>
  DVM_INLINE static void run(const Step* steps, int, int64_t i, int64_t lanes, F (&strip)[K]) {
    const Step* step = steps;
    (run_one<what, K, Partial>(*step++, i, lanes, strip), ...);
    keep<K, Partial>(steps[kCount - 1], i, lanes, strip);
  }
  template <Result result, int K>
  DVM_INLINE static void run_whole(const Step* steps, int64_t i, F (&strip)[K]) {
    const Step* step = steps;
    (run_one<what, K, false>(*step++, i, kLanes<float>, strip), ...);
    keep_whole<result>(steps[kCount - 1], i, strip);
  }

 private:
  // The last one may keep what it leaves in any way.
  static bool is(Do known, const Group& group, int s) {
    const Step& step = group.steps[s];
    if (step.what != without_kept(known)) return false;
    if (s == kCount - 1) return true;
    if (!is_kept(known)) return step.keep == Keep::nothing;
    return step.keep == Keep::store && step.kept_as == DType::f32;
  }
  template <Do known, int K, bool Partial>
  DVM_INLINE static void run_one(const Step& step, int64_t i, int64_t lanes, F (&strip)[K]) {
    apply<without_kept(known), K, Partial>(step, i, lanes, strip);
    if constexpr (!is_kept(known)) return;
    if constexpr (Partial) return keep_as<float, K, Partial>(step, i, lanes, strip);
    keep_whole<Result::stored>(step, i, strip);
  }
};

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
  DVM_INLINE void add(const F (&half)[kCount]) {
    each<kCount>([&](auto index)
                     DVM_LAMBDA_INLINE { at[index.k] = Op::combine(at[index.k], half[index.k]); });
  }
  DVM_INLINE void add(F v) { at[0] = Op::combine(at[0], v); }
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
  DVM_INLINE void add(F v) { sums_.add(v); }
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
  DVM_INLINE void add(const F (&)[kStrip]) {}
  DVM_INLINE void add(const F (&)[kStrip / 2]) {}
  DVM_INLINE void add(F) {}
};

// The lanes past `count` replaced by the identity.
template <class Op>
DVM_INLINE F identity_beyond(F v, int64_t count) {
  I lane;
  for (int i = 0; i < kF; i++) lane[i] = i;
  return lane < static_cast<int32_t>(count) ? v : splat<F>(Op::template kIdentity<float>);
}

template <class Op, class Steps, class Fold>
DVM_INLINE void run_row(const Step* steps, int count, int64_t n, int64_t before, Fold& fold,
                        FetchAhead& ahead) {
  constexpr int64_t L = kLanes<float>;
  const auto part = [&](int64_t i, int64_t lanes) DVM_LAMBDA_INLINE {
    F one[1] = {};
    Steps::template run<1, true>(steps, count, i, lanes, one);
    if constexpr (!std::is_same_v<Fold, NoFold>) fold.add(identity_beyond<Op>(one[0], lanes));
  };
  int64_t i = 0;
  for (; i < before; i += lesser(L, before - i)) part(i, lesser(L, before - i));
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
  // A fold adds what is left vector by vector, in this order; looking up takes less for several.
  constexpr int kHalf = kStrip / 2;
  if constexpr (std::is_same_v<Fold, NoFold> && Steps::kCount == 0) {
    if (i + kHalf * L <= n) {
      F half[kHalf] = {};
      Steps::template run<kHalf, false>(steps, count, i, L, half);
      i += kHalf * L;
    }
  }
  for (; i + L <= n; i += L) {
    F one[1] = {};
    Steps::template run<1, false>(steps, count, i, L, one);
    fold.add(one[0]);
  }
  if (i < n) part(i, n - i);
  if (n < kStrip * L) ahead.strip();
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
  if (i + kStrip / 2 * L <= n) {
    F half[kStrip / 2] = {};
    Steps::template run_whole<result>(steps, i, half);
    fold.add(half);
    i += kStrip / 2 * L;
  }
  for (; i < n; i += L) {
    F one[1] = {};
    Steps::template run_whole<result>(steps, i, one);
    fold.add(one[0]);
  }
  if (n < kStrip * L) ahead.strip();
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

using RunRows = void (*)(const Group& group, const Rows& rows, FetchAhead& ahead);

// Sequences cost more time to build than all else: they are left out for x86 without AVX, which
// runs everything but is the best level of no CPU that is still sold.
#if defined(DVM_X86) && !defined(__AVX__)
constexpr bool kKnowsSequences = false;
#else
constexpr bool kKnowsSequences = true;
#endif

// The code for the group: that of one of the sequences if it consists of it.
template <class Op, class... Sequences>
RunRows choose(const Group& group) {
  RunRows run = &run_rows<Op, AnySteps>;
  if constexpr (kKnowsSequences) {
    (void)((Sequences::are(group) && (run = &run_known_rows<Op, Sequences>, true)) || ...);
  }
  return run;
}

// Of a group whose first row comes from there.
template <From from>
RunRows choose_from(const Group& group) {
  using enum Do;
  constexpr Do load = with_source(load_row, from);
  using Load = TheseSteps<load>;
  using Normalise = TheseSteps<load, subtract_value, multiply_value>;
  using NormaliseScale = TheseSteps<load, subtract_value, multiply_value, multiply_row>;
  using NormaliseScaleShift =
      TheseSteps<load, subtract_value, multiply_value, multiply_row, add_row>;
  using Scale = TheseSteps<load, multiply_value, multiply_row>;
  using SquareOfDifference = TheseSteps<load, subtract_value, multiply_self>;
  using ExpOfDifference = TheseSteps<load, subtract_value, exp>;
  using Square = TheseSteps<load, multiply_self>;
  using Add = TheseSteps<load, with_source(add_row, from)>;
  // What is computed first is kept for the last factor.
  using Gelu = TheseSteps<load, multiply_value, erf, add_value, multiply_value, multiply_row>;
  using GeluOfSum =
      TheseSteps<load, kept(add_row), multiply_value, erf, add_value, multiply_value, multiply_row>;
  using GeluOfShifted = TheseSteps<load, kept(add_value), multiply_value, erf, add_value,
                                   multiply_value, multiply_row>;
  using TanhGelu =
      TheseSteps<load, kept(multiply_value), load, multiply_self, multiply_row, multiply_value,
                 add_row, multiply_value, Do::tanh, add_value, multiply_row>;
  using Silu = TheseSteps<load, sigmoid, multiply_row>;
  using SiluOfSum = TheseSteps<load, kept(add_row), sigmoid, multiply_row>;
  using SiluOfShifted = TheseSteps<load, kept(add_value), sigmoid, multiply_row>;
  using SiluTimes = TheseSteps<load, sigmoid, multiply_row, multiply_row>;
  switch (group.fold) {
    case Family::v_reduce_sum:
      return choose<Fold<Family::v_reduce_sum>, Load, SquareOfDifference, ExpOfDifference, Square,
                    Add>(group);
    case Family::v_reduce_max: return choose<Fold<Family::v_reduce_max>, Load, Add>(group);
    case Family::v_reduce_min: return choose<Fold<Family::v_reduce_min>>(group);
    default: break;
  }
  // Activations follow products, whose results are f32.
  if constexpr (from == From::row) {
    return choose<NoFold, NormaliseScaleShift, NormaliseScale, Normalise, Scale, Gelu, GeluOfSum,
                  GeluOfShifted, TanhGelu, Silu, SiluOfSum, SiluOfShifted, SiluTimes>(group);
  } else {
    return choose<NoFold, NormaliseScaleShift, NormaliseScale, Normalise, Scale>(group);
  }
}

RunRows choose_run(const Group& group) {
  switch (group.steps[0].what) {
    case Do::load_f16: return choose_from<From::f16>(group);
    case Do::load_bf16: return choose_from<From::bf16>(group);
    default: return choose_from<From::row>(group);
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
