// Joined instructions (vm/strips.h): every row of their loops is walked once, in strips of a few
// vectors that stay in registers from one instruction to the next. Groups that go over the same
// rows (vm/row_blocks.h) take turns on a few rows at a time.
//
// The order in which a reduction adds depends on the extents only; sums are cascaded in three
// levels.
#include "npu/host/joined_group.h"
#include "npu/host/units.h"
#include "vm/row_blocks.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kStrip = strip_vectors(kVectorBytes);

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

// Runs the next `rows` rows, `n` elements of each. `Op`: the fold at the end, or NoFold.
template <class Op, class Steps = AnySteps>
void run_rows(Group& group, int64_t rows, int64_t n, FetchAhead& ahead) {
  for (; rows > 0; rows--) {
    const int64_t before = group.streams ? align_streams(group, n) : 0;
    if constexpr (std::is_same_v<Op, NoFold>) {
      NoFold none;
      run_row<Op, Steps>(group.steps, group.count, n, before, none, ahead);
    } else {
      typename Folding<Op>::Carried carried;
      Folding<Op> fold(carried);
      run_row<Op, Steps>(group.steps, group.count, n, before, fold, ahead);
      const float total = fold.total();
      float* const to = group.folded.at;
      *to = group.accumulate ? combine_one<Op>(*to, total) : total;
      group.folded.at += group.folded.middle;
    }
    for (int s = 0; s < group.count; s++) {
      group.steps[s].in += group.places[s].in.middle;
      group.steps[s].out += group.places[s].out.middle;
    }
  }
}

// The code for the group: that of one of the sequences if it consists of it.
template <class Op, class... Sequences>
RunRows choose(const Group& group) {
  RunRows run = &run_rows<Op, AnySteps>;
  (void)((Sequences::are(group) && (run = &run_rows<Op, Sequences>, true)) || ...);
  return run;
}

RunRows choose_run(const Group& group) {
  using enum Do;
  using Load = TheseSteps<load_row>;
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
      return choose<Fold<Family::v_reduce_sum>, Load, SquareOfDifference, ExpOfDifference, Square,
                    Add>(group);
    case Family::v_reduce_max: return choose<Fold<Family::v_reduce_max>, Load>(group);
    case Family::v_reduce_min: return choose<Fold<Family::v_reduce_min>>(group);
    default: return choose<NoFold, NormaliseScaleShift, NormaliseScale, Normalise, Scale>(group);
  }
}

// Bytes of a row's operand that a block of rows is meant to have, so that what the groups read
// stays in the first-level cache; and how far ahead memory is read into the second level. Shorter
// blocks wait longer for what is reduced.
constexpr int64_t kBlockBytes = 8192, kFetchDistance = 12288;
constexpr int64_t kMostBlockRows = 16;

// Groups that go over the same rows, block by block.
class RowBlocks {
 public:
  RowBlocks(Core& core, const uint64_t* words) : core_(core) {
    do {
      Group& group = groups_[count_++];
      Decoder(core, group).run(words);
      words = group.end;
    } while (groups_[count_ - 1].goes_on && count_ < kMostRowGroups);
    choose_block();
    for (int g = 0; g < count_; g++) start(groups_[g]);
  }

  const uint64_t* run() {
    FetchAhead ahead(core_, kFetchDistance);
    for (int64_t at = 0; at < rows_; at += block_) {
      const int64_t rows = lesser(block_, rows_ - at);
      for (int g = 0; g < count_; g++) {
        Group& group = groups_[g];
        if (group.along)
          group.run(group, 1, rows, ahead);
        else
          group.run(group, rows, group.extents.inner, ahead);
      }
    }
    return groups_[count_ - 1].end;
  }

 private:
  void choose_block() {
    rows_ = groups_[0].extents.middle;
    int64_t widest = 1;
    for (int g = 0; g < count_; g++) {
      Group& group = groups_[g];
      group.along = group.extents.middle != rows_;
      if (!group.along) widest = greater(widest, group.extents.inner);
    }
    block_ = greater<int64_t>(kBlockBytes / (widest * int64_t{sizeof(float)}), 1);
    block_ = lesser(block_, kMostBlockRows);
  }

  void start(Group& group) {
    group.run = choose_run(group);
    group.start(0);
    if (!group.along) return;
    for (int s = 0; s < group.count; s++) {
      group.places[s].in.middle = group.places[s].in.inner * block_;
      group.places[s].out.middle = group.places[s].out.inner * block_;
    }
  }

  Core& core_;
  Group groups_[kMostRowGroups];
  int count_ = 0;
  int64_t rows_ = 0, block_ = 1;
};

}  // namespace

const uint64_t* run_joined(Core& core, const uint64_t* words) {
  if ((flags_of(words) & kRows) != 0) return RowBlocks(core, words).run();
  Group group;
  Decoder(core, group).run(words);
  const Extents& e = group.extents;
  const RunRows run = choose_run(group);
  const Tile<float> folded = group.folded;
  FetchAhead ahead(core);
  for (int64_t o = 0; o < e.outer; o++) {
    group.start(o);
    group.folded = folded;
    run(group, e.middle, e.inner, ahead);
  }
  return group.end;
}

}  // namespace dvm::DVM_LEVEL
