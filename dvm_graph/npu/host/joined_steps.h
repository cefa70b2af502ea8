// Steps of joined instructions on a strip: each looked up, or those of a sequence that is met
// often. Compiled per level: see simd.h.
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

// Of the lanes of a strip from its first element on, those of vector k.
template <int K, class Index>
DVM_INLINE int64_t lanes_of(int64_t lanes, Index k) {
  if constexpr (K == 1) return lanes;
  constexpr int64_t L = kLanes<float>;
  return greater<int64_t>(lesser(lanes - k.k * L, L), 0);
}

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

// One step on K vectors from element i of the row on: all, or the first `lanes` of theirs.
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
#define DVM_ROW(S) \
  row_lanes<S, Partial>(step.in, i + index.k * kLanes<float>, lanes_of<K>(lanes, index))
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
#define DVM_STEP(name, type)                                                  \
  if constexpr (what == Do::name)                                             \
    DVM_EACH((byte_lanes<type, Partial>(step.in, i + index.k * kLanes<float>, \
                                        lanes_of<K>(lanes, index))),          \
             y);
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

// Levels that numbers are rounded to: whole, and so near that floats tell them apart where
// 1.5 * 2^23 is added.
struct WholeLevels {
  float low, high;  // less what is added to them
  int32_t zero;     // which that is

  static constexpr float kRound = 0x1.8p23f, kFarthest = 0x1p20f;

  // Half to even, as the bits of i32; the lowest of NaN.
  DVM_INLINE F rounded(F x) const {
    const F kept = lesser_lanes(greater_lanes(x, splat<F>(low)), splat<F>(high));
    const int32_t more = zero - __builtin_bit_cast(int32_t, kRound);
    return bits_as<F>(bits_as<I>(kept + splat<F>(kRound)) + more);
  }
};

// Those that a run ends with, which is add_value or not, least_value, to_i32, and
// greatest_i32_value. False: they are not whole, or too far apart.
DVM_INLINE bool find_levels(const Step* end, bool adds, WholeLevels& levels) {
  const float zero = adds ? number_at(end[-4]) : 0, high = number_at(end[-3]);
  const auto low = static_cast<float>(bits_at(end[-1]));
  if (!(low <= high)) return false;
  for (const float number : {zero, low, high}) {
    if (!(__builtin_fabsf(number) <= WholeLevels::kFarthest)) return false;
    if (static_cast<float>(static_cast<int32_t>(number)) != number) return false;
  }
  levels = {low - zero, high - zero, static_cast<int32_t>(zero)};
  return true;
}

// A run that quantises: divide_value or not, round, and what find_levels says.
template <Do first, Do... behind, int K>
DVM_INLINE void apply_quantize(const Step*& at, int64_t i, int64_t lanes, F (&strip)[K]) {
  constexpr bool kDivides = first == Do::divide_value;
  constexpr int kBehind = sizeof...(behind);
  const Step* const last = at + kBehind;
  WholeLevels levels;
  if (!find_levels(last + 1, kBehind - kDivides > 3, levels)) [[unlikely]]
    return apply_run<first, behind...>(at, i, lanes, strip);
  const F by = kDivides ? splat<F>(number_at(*at)) : F{};
  each<K>([&](auto index) DVM_LAMBDA_INLINE {
    const F x = strip[index.k];
    strip[index.k] = levels.rounded(kDivides ? x / by : x);
  });
  at = last;
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
    if constexpr (first == Do::divide_value || first == Do::round)    \
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
  if constexpr (!std::is_same_v<S, float> && K > 1 && !Partial) {
    each<K / 2>([&](auto index) DVM_LAMBDA_INLINE {
      constexpr int k = 2 * decltype(index)::k;
      const Full<uint16_t> two = narrow_two<S>(strip[k], strip[k + 1]);
      step.keep == Keep::stream ? store_stream(to + k * L, two) : store(to + k * L, two);
    });
  } else if constexpr (Partial) {
    const bool stream = step.keep == Keep::stream;
    each<K>([&](auto index) DVM_LAMBDA_INLINE {
      const int64_t held = lanes_of<K>(lanes, index);
      auto* const at = to + index.k * L;
      if (stream && held == L) {
        return kStreamsVectors<S> ? store_stream(at, kept(index.k)) : store(at, kept(index.k));
      }
      store_lanes(at, kept(index.k), held, stream);
    });
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
      store_partial(to + index.k * kLanes<float>, bytes, lanes_of<K>(lanes, index));
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

}  // namespace
}  // namespace dvm::DVM_LEVEL
