// Joined instructions (vm/strips.h): every row of their loops is walked once, in strips of a few
// vectors that stay in registers from one instruction to the next.
//
// An instruction becomes one or two steps that change the strip: load the left operand, unless it
// is what the instruction before has left, and apply the operation with the right one. The order in
// which a reduction adds depends on the extents only; sums are cascaded in three levels.
#include "npu/host/folds.h"
#include "npu/host/functions.h"
#include "npu/host/loops.h"
#include "npu/host/units.h"
#include "vm/strips.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kStrip = strip_vectors(kVectorBytes);

// Fetches lines that the next tile will read, the more evenly the better: memory works meanwhile.
class FetchAhead {
 public:
  DVM_INLINE explicit FetchAhead(Core& core) : core_(core), ahead_(core.ahead) {}
  DVM_INLINE ~FetchAhead() { core_.ahead = ahead_; }
  DVM_INLINE void strip() {
    for (int i = 0; i < ahead_.lines && ahead_.at < ahead_.end; i++) {
      __builtin_prefetch(ahead_.at, 0, 2);
      ahead_.at += kLine;
    }
    if (ahead_.at >= ahead_.end && ahead_.next_at < ahead_.next_end) [[unlikely]] {
      ahead_.at = ahead_.next_at;
      ahead_.end = ahead_.next_end;
      ahead_.next_end = ahead_.next_at;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  Core& core_;
  Ahead ahead_;
};

// How a step changes the strip x. Binary operations come in threes: the other operand y is a row,
// one value for the whole row, or x itself.
#define DVM_BINARY_STEPS(STEP)                 \
  STEP(load, y)                                \
  STEP(add, x + y)                             \
  STEP(subtract, x - y)                        \
  STEP(subtract_from, y - x)                   \
  STEP(multiply, x* y)                         \
  STEP(divide, x / y)                          \
  STEP(divide_into, y / x)                     \
  STEP(least, x != x ? x : lesser_lanes(x, y)) \
  STEP(greatest, x != x ? x : greater_lanes(x, y))
#define DVM_UNARY_STEPS(STEP)          \
  STEP(absolute, absolute(x))          \
  STEP(negate, -x)                     \
  STEP(reciprocal, splat<F>(1.0f) / x) \
  STEP(exp, exp_lanes(x))              \
  STEP(log, log_lanes(x))              \
  STEP(erf, erf_lanes(x))              \
  STEP(tanh, tanh_lanes(x))            \
  STEP(sigmoid, sigmoid_lanes(x))

enum class Do : uint8_t {
#define DVM_STEP(name, expression) name##_row, name##_value, name##_self,
  DVM_BINARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, expression) name,
      DVM_UNARY_STEPS(DVM_STEP)
#undef DVM_STEP
};

enum class Keep : uint8_t { nothing, store, stream };

struct Step {
  Do what;
  Keep keep;
  const float* in;  // of the current row
  float* out;
};

// Where the rows of a step's operands begin.
struct Place {
  Tile<const float> in;
  Tile<float> out;
  Keep keep;  // as the step's, but for rows where a stream is not aligned
};

struct Group {
  Step steps[2 * kMostJoined];
  Place places[2 * kMostJoined];
  int count = 0;
  bool streams = false;
  Family fold = Family::count_;  // of the reduction at the end
  Tile<float> folded{};
  bool accumulate = false;
  const uint64_t* end = nullptr;
};

Do unary_step(Family family) {
  switch (family) {
    case Family::v_abs: return Do::absolute;
    case Family::v_neg: return Do::negate;
    case Family::v_reciprocal: return Do::reciprocal;
    case Family::v_exp: return Do::exp;
    case Family::v_log: return Do::log;
    case Family::v_erf: return Do::erf;
    case Family::v_tanh: return Do::tanh;
    default: return Do::sigmoid;
  }
}

// `turned`: the strip is the right operand.
Do binary_step(Family family, bool turned) {
  switch (family) {
    case Family::v_add: return Do::add_row;
    case Family::v_sub: return turned ? Do::subtract_from_row : Do::subtract_row;
    case Family::v_mul: return Do::multiply_row;
    case Family::v_div: return turned ? Do::divide_into_row : Do::divide_row;
    case Family::v_min: return Do::least_row;
    default: return Do::greatest_row;
  }
}

// The step for y that is a row or one value, and for y that is x, from the step for a row.
Do with_source(Do row, const Tile<const float>& y) {
  return static_cast<Do>(static_cast<int>(row) + (y.inner == 0 ? 1 : 0));
}
Do of_itself(Do row) { return static_cast<Do>(static_cast<int>(row) + 2); }

class Decoder {
 public:
  Decoder(Core& core, Group& group) : core_(core), group_(group) {}

  void run(const uint64_t* words) {
    bool joined = true;
    do {
      joined = (flags_of(words) & kJoined) != 0;
      decode(words);
      words += (words[0] >> 16) & 0xff;
    } while (joined && group_.count + 2 <= 2 * kMostJoined);
    group_.end = words;
  }

 private:
  void decode(const uint64_t* words) {
    const auto family = static_cast<Family>((words[0] & 0xffff) / 16);
    const Form form = form_of(family);
    if (form == Form::binary) {
      const bool left = left_behind(words + 3), right = left_behind(words + 5);
      if (!left && !right) load(words + 3, false);
      const bool turned = right && !left;
      const Tile<const float> other = tile_at<const float>(core_, words + (turned ? 3 : 5));
      const Do step = binary_step(family, turned);
      add(left && right ? of_itself(step) : with_source(step, other), other);
    } else {
      if (!left_behind(words + 3)) load(words + 3, form == Form::reduce);
      if (form == Form::unary) add(unary_step(family), {});
    }
    if (form == Form::reduce) {
      finish(family, words);
      return;
    }
    Step& last = group_.steps[group_.count - 1];
    group_.places[group_.count - 1].out = tile_at<float>(core_, words + 1);
    if ((flags_of(words) & kTransient) == 0) {
      last.keep = (flags_of(words) & kStream) != 0 ? Keep::stream : Keep::store;
      group_.places[group_.count - 1].keep = last.keep;
      group_.streams |= last.keep == Keep::stream;
    }
    last_out_ = static_cast<uint32_t>(words[1]);
  }

  static Form form_of(Family family) {
    if (family >= Family::v_reduce_sum) return Form::reduce;
    return family >= Family::v_add ? Form::binary : Form::unary;
  }

  // The operand is what the instruction before has left in the strip.
  bool left_behind(const uint64_t* word) const {
    return group_.count > 0 && static_cast<uint32_t>(word[0]) == last_out_;
  }

  void load(const uint64_t* word, bool reduces) {
    const Tile<const float> in = tile_at<const float>(core_, word);
    if (reduces)
      add(Do::load_row, {in.at, 0, in.outer, 1});
    else
      add(with_source(Do::load_row, in), in);
  }

  void add(Do what, const Tile<const float>& in) {
    group_.steps[group_.count] = {what, Keep::nothing, nullptr, nullptr};
    group_.places[group_.count++] = {in, {}, Keep::nothing};
  }

  void finish(Family family, const uint64_t* words) {
    const uint8_t flags = flags_of(words);
    const Tile<float> out = tile_at<float>(core_, words + 1);
    group_.fold = family;
    group_.folded = {out.at, 0, out.outer, 0};
    group_.accumulate =
        (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core_.first_chunk);
  }

  Core& core_;
  Group& group_;
  uint32_t last_out_ = 0;
};

template <int Number>
struct Index {
  static constexpr int k = Number;
};

// body(Index<0>{}), ..., body(Index<K - 1>{}): constant indices, so that strips are registers.
template <int K, class Body>
DVM_INLINE void each(Body body) {
  [&]<int... k>(std::integer_sequence<int, k...>)
      DVM_LAMBDA_INLINE { (body(Index<k>{}), ...); }(std::make_integer_sequence<int, K>{});
}

// A masked store in front of a stream would fetch the line behind, which the stream then throws
// out.
DVM_INLINE void store_lanes(float* to, F v, int64_t lanes, bool stream) {
  if (!stream) return store_partial(to, v, lanes);
  float row[kF];
  store(row, v);
  copy_pieces<kF>(to, row, lanes);
}

// Changes K vectors from element i of the row on; of the last one, `lanes`. Where `what` is known
// to the compiler, one case is left of the switch.
template <int K, bool Partial>
DVM_INLINE void apply(Do what, const Step& step, int64_t i, int64_t lanes, F (&strip)[K]) {
  constexpr int64_t L = kLanes<float>;
  const auto row = [&](int k) DVM_LAMBDA_INLINE {
    if constexpr (Partial)
      return load_partial<F>(step.in + i, lanes);
    else
      return load<F>(step.in + i + k * L);
  };
  switch (what) {
#define DVM_STEP(name, expression)                 \
  case Do::name##_row:                             \
    each<K>([&](auto index) DVM_LAMBDA_INLINE {    \
      const F y = row(index.k);                    \
      [[maybe_unused]] const F x = strip[index.k]; \
      strip[index.k] = expression;                 \
    });                                            \
    break;                                         \
  case Do::name##_value: {                         \
    const F y = splat<F>(*step.in);                \
    each<K>([&](auto index) DVM_LAMBDA_INLINE {    \
      [[maybe_unused]] const F x = strip[index.k]; \
      strip[index.k] = expression;                 \
    });                                            \
    break;                                         \
  }                                                \
  case Do::name##_self:                            \
    each<K>([&](auto index) DVM_LAMBDA_INLINE {    \
      const F x = strip[index.k];                  \
      [[maybe_unused]] const F y = x;              \
      strip[index.k] = expression;                 \
    });                                            \
    break;
    DVM_BINARY_STEPS(DVM_STEP)
#undef DVM_STEP
#define DVM_STEP(name, expression)              \
  case Do::name:                                \
    each<K>([&](auto index) DVM_LAMBDA_INLINE { \
      const F x = strip[index.k];               \
      strip[index.k] = expression;              \
    });                                         \
    break;
    DVM_UNARY_STEPS(DVM_STEP)
#undef DVM_STEP
  }
}

template <int K, bool Partial>
DVM_INLINE void keep(const Step& step, int64_t i, int64_t lanes, const F (&strip)[K]) {
  constexpr int64_t L = kLanes<float>;
  if (step.keep == Keep::nothing) return;
  float* const to = step.out + i;
  if constexpr (Partial) {
    store_lanes(to, strip[0], lanes, step.keep == Keep::stream);
  } else if (step.keep == Keep::stream) {
    each<K>([&](auto index) DVM_LAMBDA_INLINE { store_stream(to + index.k * L, strip[index.k]); });
  } else {
    each<K>([&](auto index) DVM_LAMBDA_INLINE { store(to + index.k * L, strip[index.k]); });
  }
}

// Any steps, looked up strip by strip.
struct AnySteps {
  template <int K, bool Partial>
  DVM_INLINE static void run(const Step* steps, int count, int64_t i, int64_t lanes,
                             F (&strip)[K]) {
    for (const Step* step = steps; step != steps + count; step++) {
      apply<K, Partial>(step->what, *step, i, lanes, strip);
      keep<K, Partial>(*step, i, lanes, strip);
    }
  }
};

// Steps that are met often, in code of their own: looking them up costs as much as doing them.
template <Do... what>
struct TheseSteps {
  static bool are(const Group& group) {
    if (group.count != sizeof...(what)) return false;
    const Step* step = group.steps;
    return ((step->what == what &&
             (step++->keep == Keep::nothing || step == group.steps + group.count)) &&
            ...);
  }
  template <int K, bool Partial>
  DVM_INLINE static void run(const Step* steps, int, int64_t i, int64_t lanes, F (&strip)[K]) {
    const Step* step = steps;
    (apply<K, Partial>(what, *step++, i, lanes, strip), ...);
    keep<K, Partial>(steps[sizeof...(what) - 1], i, lanes, strip);
  }
};

// Folds strip by strip. Sums are carried over to the next of three levels after 16 additions, so
// that the error of a long row stays small. What is carried is no member of the object, so that
// the sums themselves stay in registers.
template <class Op>
class Folding {
 public:
  struct Carried {
    F level[2][kStrip];
  };

  DVM_INLINE explicit Folding(Carried& carried) : carried_(carried) {
    each<kStrip>([&](auto index) DVM_LAMBDA_INLINE { sums_[index.k] = identity(); });
  }
  DVM_INLINE void add(const F (&strip)[kStrip]) {
    each<kStrip>([&](auto index) DVM_LAMBDA_INLINE {
      sums_[index.k] = Op::combine(sums_[index.k], strip[index.k]);
    });
    if ((++strips_ & 15) == 0) [[unlikely]] {
      F carried[kStrip];
      each<kStrip>([&](auto index) DVM_LAMBDA_INLINE {
        carried[index.k] = sums_[index.k];
        sums_[index.k] = identity();
      });
      carry_over(carried_, carried, strips_);
    }
  }
  DVM_INLINE void add(F v) { sums_[0] = Op::combine(sums_[0], v); }
  DVM_INLINE float total() {
    if (strips_ > 15) [[unlikely]] {
      each<kStrip>([&](auto index) DVM_LAMBDA_INLINE {
        sums_[index.k] = Op::combine(
            sums_[index.k], Op::combine(carried_.level[0][index.k], carried_.level[1][index.k]));
      });
    }
    F pairs[kStrip / 2];
    each<kStrip / 2>([&](auto index) DVM_LAMBDA_INLINE {
      pairs[index.k] = Op::combine(sums_[index.k], sums_[index.k + kStrip / 2]);
    });
    if constexpr (kStrip == 8) {
      pairs[0] = Op::combine(pairs[0], pairs[2]);
      pairs[1] = Op::combine(pairs[1], pairs[3]);
    }
    return fold_lanes<Op>(Op::combine(pairs[0], pairs[1]));
  }

 private:
  DVM_INLINE static F identity() { return splat<F>(Op::template kIdentity<float>); }

  [[gnu::noinline, gnu::cold]] static void carry_over(Carried& to, const F* sums, int64_t strips) {
    if (strips == 16) {
      for (auto& level : to.level) {
        for (F& v : level) v = identity();
      }
    }
    for (int k = 0; k < kStrip; k++) to.level[0][k] = Op::combine(to.level[0][k], sums[k]);
    if ((strips & 255) != 0) return;
    for (int k = 0; k < kStrip; k++) {
      to.level[1][k] = Op::combine(to.level[1][k], to.level[0][k]);
      to.level[0][k] = identity();
    }
  }

  F sums_[kStrip];
  Carried& carried_;
  int64_t strips_ = 0;
};

struct NoFold {
  DVM_INLINE void add(const F (&)[kStrip]) {}
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
  int64_t i = before;
  if (before > 0) part(0, before);
  for (; i + kStrip * L <= n; i += kStrip * L) {
    F strip[kStrip] = {};
    ahead.strip();
    Steps::template run<kStrip, false>(steps, count, i, L, strip);
    fold.add(strip);
  }
  for (; i + L <= n; i += L) {
    F one[1] = {};
    Steps::template run<1, false>(steps, count, i, L, one);
    fold.add(one[0]);
  }
  if (i < n) part(i, n - i);
  if (n < kStrip * L) ahead.strip();
}

// Streams need whole vectors of the memory: returns the elements before the first one, and stores
// as usual where another output is not aligned with it.
int64_t align_streams(Group& group, int64_t n) {
  int64_t before = -1;
  for (int s = 0; s < group.count; s++) {
    if (group.places[s].keep != Keep::stream) continue;
    const int64_t missing = to_alignment(group.steps[s].out, n);
    if (before < 0) before = missing;
    group.steps[s].keep = missing == before ? Keep::stream : Keep::store;
  }
  return before;
}

// `Op`: the fold at the end, or NoFold.
template <class Op, class Steps = AnySteps>
void run_rows(Core& core, Group& group, const Extents& e) {
  FetchAhead ahead(core);
  for (int64_t o = 0; o < e.outer; o++) {
    for (int64_t m = 0; m < e.middle; m++) {
      for (int s = 0; s < group.count; s++) {
        const Place& place = group.places[s];
        group.steps[s].in = place.in.at + o * place.in.outer + m * place.in.middle;
        group.steps[s].out = place.out.at + o * place.out.outer + m * place.out.middle;
      }
      const int64_t before = group.streams ? align_streams(group, e.inner) : 0;
      if constexpr (std::is_same_v<Op, NoFold>) {
        NoFold none;
        run_row<Op, Steps>(group.steps, group.count, e.inner, before, none, ahead);
      } else {
        typename Folding<Op>::Carried carried;
        Folding<Op> fold(carried);
        run_row<Op, Steps>(group.steps, group.count, e.inner, before, fold, ahead);
        float* const to = group.folded.at + m * group.folded.middle;
        const float total = fold.total();
        *to = group.accumulate ? combine_one<Op>(*to, total) : total;
      }
    }
  }
}

// Runs the group if it consists of one of the sequences.
template <class Op, class... Sequences>
bool run_known(Core& core, Group& group, const Extents& e) {
  return ((Sequences::are(group) && (run_rows<Op, Sequences>(core, group, e), true)) || ...);
}

bool run_known(Core& core, Group& group, const Extents& e) {
  using enum Do;
  using Normalise = TheseSteps<load_row, subtract_value, multiply_value>;
  using NormaliseScale = TheseSteps<load_row, subtract_value, multiply_value, multiply_row>;
  using NormaliseScaleShift =
      TheseSteps<load_row, subtract_value, multiply_value, multiply_row, add_row>;
  using Scale = TheseSteps<load_row, multiply_value, multiply_row>;
  using SquareOfDifference = TheseSteps<load_row, subtract_value, multiply_self>;
  using ExpOfDifference = TheseSteps<load_row, subtract_value, exp>;
  using Square = TheseSteps<load_row, multiply_self>;
  using Add = TheseSteps<load_row, add_row>;
  switch (group.fold) {
    case Family::v_reduce_sum:
      return run_known<Fold<Family::v_reduce_sum>, SquareOfDifference, ExpOfDifference, Square,
                       Add>(core, group, e);
    case Family::count_:
      return run_known<NoFold, NormaliseScaleShift, NormaliseScale, Normalise, Scale>(core, group,
                                                                                      e);
    default: return false;
  }
}

}  // namespace

const uint64_t* run_joined(Core& core, const uint64_t* words) {
  Group group;
  Decoder(core, group).run(words);
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.middle <= 0) return group.end;
  if (run_known(core, group, e)) return group.end;
  switch (group.fold) {
    case Family::v_reduce_sum: run_rows<Fold<Family::v_reduce_sum>>(core, group, e); break;
    case Family::v_reduce_max: run_rows<Fold<Family::v_reduce_max>>(core, group, e); break;
    case Family::v_reduce_min: run_rows<Fold<Family::v_reduce_min>>(core, group, e); break;
    default: run_rows<NoFold>(core, group, e);
  }
  return group.end;
}

}  // namespace dvm::DVM_LEVEL
