// Blocks of C in registers, the innermost loops of the cube unit.
//
// B comes in panels of NR = 2 vectors of columns: packed ([k][NR], padded with zeros) or direct
// from a row-major matrix (panel stride NR, k stride the row length); the last panel may be ragged
// and is then read and written under a mask, never past column n. A is read in place, row by row.
//
// A block of `Rows` x `Vectors` accumulators lives in registers while k runs. Short blocks split k
// over several accumulators, which hides the latency of the FMAs. What blocks go over, and in which
// order, is in panel_loops.h.
//
// How a step of k is read and multiplied is a `Step`: types A and B of the operands' elements, Sum
// of a vector of accumulators and Column of a vector of B; `column(at)`, `column(at, count)` and
// `scalar(at)` read, `multiply_add(sum, scalar, column)` multiplies; kEnds: C begins with an
// addend, which lies elsewhere, where it accumulates, and ends as is said; kRuns: k is not one
// run of steps, but those that `runs` says (window_product_unit.cpp). A Step with a type Wide takes
// time to read: what is read again is stored once as the operands of that Step, kWideSteps steps
// for each, columns by `widen(at, step, column)` and, where A is not the same, rows by
// `widen_row(to, a, k)`. A Step with a type Stored makes elements of that of its
// sums: these start at `Columns`, which go along with the columns, and `store_block(product,
// ragged, sums)` stores what they end as. kPartsOfB: how tiles multiply it (tiles.h).
#pragma once

#include "npu/host/endings.h"
#include "npu/host/fetch_later.h"
#include "npu/host/loops.h"

namespace dvm::DVM_LEVEL {
namespace {

#if defined(DVM_AVX512)
constexpr int kMaxRows = 14;  // 28 accumulators, 2 of B, 1 of A: 31 of 32 registers
#elif defined(DVM_AVX2)
constexpr int kMaxRows = 6;
#elif defined(__aarch64__)
constexpr int kMaxRows = 12;
#else
constexpr int kMaxRows = 5;
#endif
constexpr int kPanelVectors = 2;
// Rows a multiple of a way apart fall into one set of L1, which holds eight lines or more, those of
// half a way into two: wide blocks leave room for lines of B. Where only one panel is left, so many
// rows in one set run fastest.
constexpr int64_t kWayBytes = 4096;
constexpr int kSetRows = 8, kNarrowRows = kMaxRows < 11 ? kMaxRows : 11;
constexpr int kWidePanels = 2, kWideRows = kMaxRows > kSetRows ? 6 : 0;
// Rows of a block of one vector, and of one of a panel and a vector, which the last columns are.
#if defined(DVM_AVX2) && !defined(DVM_AVX512)
constexpr int kHalfPanelRows = 12, kLastPanelRows = 4;
#else
constexpr int kHalfPanelRows = kMaxRows, kLastPanelRows = 0;
#endif
constexpr int kLatencySums = 8;  // accumulators that keep the FMA units busy
// Multiply-adds to a cache line of B from which they leave time to fetch the next panel; shorter
// blocks run at the speed of the hardware's own prefetching, which software prefetches only slow
// down.
constexpr int kAheadVectors = 9;
constexpr int64_t kAheadSteps = 16;  // of k between bursts of prefetches into L2
// Of k that B comes into L1 before its use; 0: none, where multiply-adds leave no room for the
// prefetches. A core's other thread, which may be somebody else's, takes half of the issue slots.
#if defined(DVM_AVX2) && !defined(DVM_AVX512)
constexpr int64_t kNearSteps = 0;
#else
constexpr int64_t kNearSteps = 32;
#endif
// Steps of so few multiply-adds are unrolled, for the same reason: of more, the counting is little.
constexpr int kFewSums = 16;
constexpr int64_t kDirectDepth = 128;  // of k: rows of a direct B stay in L2
// Panels of a direct B whose rows are fetched in one run: those of a panel alone are so short that
// misses of the TLB and of the pages of DRAM would cost more than the reading.
constexpr int64_t kDirectRun = 2;

// Operands in the dtype of the arithmetic.
template <class T>
struct InOneDtype {
  using A = T;
  using B = T;
  using Sum = Full<T>;
  using Column = Sum;
  static constexpr bool kEnds = false, kRuns = false;
  DVM_INLINE static Column column(const B* at) { return load<Column>(at); }
  DVM_INLINE static Column column(const B* at, int64_t count) {
    return load_partial<Column>(at, count);
  }
  DVM_INLINE static Sum scalar(const A* at) { return splat<Sum>(*at); }
  DVM_INLINE static Sum multiply_add(Sum sum, Sum a, Column b) { return sum + a * b; }
};
template <class T>
struct Plain : InOneDtype<T> {};
template <>
struct Plain<float> : InOneDtype<float> {
  static constexpr int kPartsOfB = 3;
};

template <class T>
struct Ended : Plain<T> {
  static constexpr bool kEnds = true;
};

// Runs of k in slices, rows and columns: `k` steps each. Steps between them are those of A, in
// elements, and of k.
struct Runs {
  int64_t slices = 1, rows = 1, columns = 1;
  int64_t a_slice = 0, a_row = 0, a_column = 0;
  int64_t k_slice = 0, k_row = 0, k_column = 0;

  int64_t count() const { return slices * rows * columns; }
};
struct OneRun {};
struct NoEnding {};

template <class Step>
constexpr bool kStores = requires { typename Step::Stored; };
template <class Step>
constexpr bool kWidens = requires { typename Step::Wide; };
// Of a Step of which not only columns are widened.
template <class Step>
constexpr bool kWidensRows = requires { &Step::widen_row; };

// What C holds, and what the columns of it bring along.
template <class Step>
struct StoredBy {
  using C = Element<typename Step::Sum>;
  struct Columns {};
};
template <class Step>
  requires kStores<Step>
struct StoredBy<Step> {
  using C = typename Step::Stored;
  using Columns = typename Step::Columns;
};

// Memory to fetch into L2 meanwhile: `rows` rows of each panel per kAheadSteps steps of k.
struct NextPanels {
  const char* at = nullptr;
  int64_t stride = 0, row_bytes = 0, rows = 0;
  int64_t panels = 1, panel_bytes = 0;  // from panel to panel
  bool with_a = true;  // rows of A may come from afar, too: later panels find them in L2

  bool is_one_run() const { return rows == 1 && panels == 1 && !with_a; }
};

template <class Step>
struct Product {
  using A = typename Step::A;
  using B = typename Step::B;
  using Sum = typename Step::Sum;
  using C = typename StoredBy<Step>::C;
  static constexpr int64_t kLanes = kLanesOf<Sum>, kColumns = kPanelVectors * kLanes;
  static constexpr int64_t kStepBytes = kColumns * static_cast<int64_t>(sizeof(B));

  const A* a;
  int64_t a_row;  // strides, in elements
  const B* b;
  int64_t b_step, b_panel;
  int64_t b_column = 1;  // not 1: k is contiguous
  C* c;
  int64_t c_row;
  int64_t k;
  bool accumulate;
  std::byte* room = nullptr;  // where panels are widened to; null: on their way to the FMAs
  std::byte* rows = nullptr;  // those of A, widened, where Step::Wide has another A
  NextPanels ahead = {};
  FetchLater* later = nullptr;  // null: there is nothing to fetch for later
  const C* from = nullptr;      // what C begins with where it accumulates: C, or an addend
  int64_t from_row = 0;
  int64_t chunk_bytes = 0;               // of A, which pass at a time
  std::byte* scratch = nullptr;          // of the core; null: none
  const Splitting* splitting = nullptr;  // where there is scratch memory
  bool stream = false;                   // C is too large to be read back from a cache
  [[no_unique_address]] typename StoredBy<Step>::Columns of_columns = {};
  [[no_unique_address]] std::conditional_t<Step::kEnds, Ending<C>, NoEnding> ending = {};
  [[no_unique_address]] std::conditional_t<Step::kRuns, Runs, OneRun> runs = {};

  DVM_INLINE void next_columns(int64_t count) {
    c += count;
    if constexpr (Step::kEnds) from += count;
    if constexpr (kStores<Step>) of_columns.next(count);
  }
  bool direct() const { return b_panel == kColumns && b_step != kColumns; }
};

// Where a block of C reads: rows of A and the columns of B at the step of k at hand.
template <class Step, int Rows, int Vectors, bool Ragged>
struct Cursor {
  // One pointer for three rows, which the compiler must not derive from each other: it would run
  // out of registers for the offsets of all rows.
  static constexpr int kGroup = 3, kGroups = (Rows + kGroup - 1) / kGroup;
  static constexpr int64_t L = kLanesOf<typename Step::Sum>;

  const typename Step::A* group[kGroups];
  const typename Step::B* b;
  const int64_t a_row, b_step, b_panel, ragged;

  DVM_INLINE Cursor(const Product<Step>& x, int64_t ragged, const typename Step::A* a,
                    const typename Step::B* b)
      : b(b), a_row(x.a_row), b_step(x.b_step), b_panel(x.b_panel), ragged(ragged) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; g++) {
      group[g] = a + g * kGroup * a_row;
      asm("" : "+r"(group[g]));
    }
  }

  DVM_INLINE const typename Step::A* row(int i) const {
    return group[i / kGroup] + i % kGroup * a_row;
  }

  DVM_INLINE void fetch_next_rows() const {
#pragma GCC unroll 64
    for (int i = 0; i < Rows; i++) __builtin_prefetch(row(i) + Rows * a_row, 0, 2);
  }

  // Multiplies a step of k onto the accumulators from row `first` on, and goes to the next one.
  template <bool Prefetches, class Sums>
  DVM_INLINE void step(Sums& sum, int first) {
    constexpr int64_t kLineElements = kLineBytes / static_cast<int64_t>(sizeof(*b));
    typename Step::Column column[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; j++) {
      const auto* at = b + j / kPanelVectors * b_panel + j % kPanelVectors * L;
      column[j] = Ragged && j == Vectors - 1 ? Step::column(at, ragged) : Step::column(at);
    }
#pragma GCC unroll 64
    for (int i = 0; i < Rows; i++) {
      const auto scalar = Step::scalar(row(i));
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; j++)
        sum[first + i][j] = Step::multiply_add(sum[first + i][j], scalar, column[j]);
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; g++) group[g]++;
    if constexpr (Prefetches && kNearSteps > 0) {
#pragma GCC unroll 4
      for (int64_t n = 0; n < Vectors * L; n += kLineElements)
        __builtin_prefetch(b + kNearSteps * b_step + n / (kPanelVectors * L) * b_panel +
                           n % (kPanelVectors * L));
    }
    b += b_step;
  }
};

// The addend's rows follow one by one: all at once are more lines than a core can wait for.
template <class Step, int Vectors>
struct AddendRows {
  const typename Product<Step>::C* at;
  int64_t row, left;

  DVM_INLINE void fetch() {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; j++) __builtin_prefetch(at + j * kLanesOf<typename Step::Sum>);
    at += row;
    left--;
  }
};

// By the last byte of every line's worth: a B that is not aligned to lines lies in one more, the
// first, which came with the columns before.
DVM_INLINE void fetch_lines(const char* at, int64_t bytes) {
  for (int64_t byte = kLineBytes - 1; byte < bytes; byte += kLineBytes)
    __builtin_prefetch(at + byte, 0, 2);
}

// Calls `body` with where A and B begin in each run of k.
template <class Step, class Body>
DVM_INLINE void for_each_run(const Product<Step>& x, Body body) {
  if constexpr (Step::kRuns) {
    const Runs& runs = x.runs;
    for (int64_t slice = 0; slice < runs.slices; slice++) {
      for (int64_t row = 0; row < runs.rows; row++) {
        const int64_t a = slice * runs.a_slice + row * runs.a_row;
        const int64_t k = slice * runs.k_slice + row * runs.k_row;
        for (int64_t column = 0; column < runs.columns; column++) {
          body(x.a + a + column * runs.a_column, x.b + (k + column * runs.k_column) * x.b_step);
        }
      }
    }
  } else {
    body(x.a, x.b);
  }
}

// Whether blocks of so many rows and vectors fetch what comes after them.
template <class Step>
constexpr bool fetches_ahead(int64_t rows, int vectors) {
  return rows * kPanelVectors * kLineBytes >= kAheadVectors * Product<Step>::kStepBytes ||
         rows == kMaxRows || vectors > kPanelVectors;
}

// All of k on one set of accumulators, in bursts between which prefetches go out.
template <class Step, int Rows, int Vectors, bool Ragged, class Sums>
DVM_INLINE void multiply_steps(const Product<Step>& x, int64_t ragged, Sums& sum,
                               AddendRows<Step, Vectors> addend) {
  constexpr bool kPrefetches = fetches_ahead<Step>(Rows, Vectors);
  NextPanels ahead = x.ahead;
  const bool one_run = ahead.is_one_run();
  for_each_run(x, [&](const auto* a, const auto* b) DVM_LAMBDA_INLINE {
    Cursor<Step, Rows, Vectors, Ragged> at(x, ragged, a, b);
    for (int64_t left = x.k; left > 0; left -= kAheadSteps) {
      if (Step::kEnds && addend.left > 0) addend.fetch();
      if constexpr (kPrefetches) {
        if (one_run) [[likely]] {
          fetch_lines(ahead.at, ahead.row_bytes);
          ahead.at += ahead.stride;
        } else {
          if (ahead.with_a) at.fetch_next_rows();
          for (int64_t row = 0; row < ahead.rows; row++, ahead.at += ahead.stride)
            for (int64_t panel = 0; panel < ahead.panels; panel++)
              fetch_lines(ahead.at + panel * ahead.panel_bytes, ahead.row_bytes);
        }
        if (x.later != nullptr) x.later->fetch();
      }
      if (left >= kAheadSteps) {
        if constexpr (Rows * Vectors <= kFewSums) {
#pragma GCC unroll 4
          for (int64_t k = 0; k < kAheadSteps; k++) at.template step<kPrefetches>(sum, 0);
        } else {
          for (int64_t k = 0; k < kAheadSteps; k++) at.template step<kPrefetches>(sum, 0);
        }
      } else {
        for (int64_t k = 0; k < left; k++) at.template step<kPrefetches>(sum, 0);
      }
    }
  });
}

// Steps of k take turns with several sets of accumulators, which are summed.
template <class Step, int Rows, int Vectors, bool Ragged, int Turns, class Sums>
DVM_INLINE void multiply_in_turns(const Product<Step>& x, int64_t ragged, Sums& sum) {
  for_each_run(x, [&](const auto* a, const auto* b) DVM_LAMBDA_INLINE {
    Cursor<Step, Rows, Vectors, Ragged> at(x, ragged, a, b);
    int64_t k = 0;
    for (; k + Turns <= x.k; k += Turns) {
#pragma GCC unroll 8
      for (int turn = 0; turn < Turns; turn++) at.template step<false>(sum, turn * Rows);
    }
    for (; k < x.k; k++) at.template step<false>(sum, 0);
  });
#pragma GCC unroll 64
  for (int i = Rows; i < Turns * Rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; j++) sum[i % Rows][j] += sum[i][j];
}

// Gates and stores a block by way of memory: this code in every block would cost more. `last`:
// lanes of the last vector of a row.
template <class Step, int Vectors>
[[gnu::noinline]] void store_gated(const Product<Step>& x, const typename Step::Sum* sum, int rows,
                                   int64_t last, bool stream) {
  using V = typename Step::Sum;
  constexpr int64_t L = kLanesOf<V>;
  auto store_rows = [&, c = x.c, from = x.from, ending = x.ending,
                     adds = x.accumulate](auto store_at) mutable DVM_LAMBDA_INLINE {
    for (int i = 0; i < rows; i++, c += x.c_row, from += x.from_row) {
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; j++) {
        V result = *sum++;
        if (j + 1 < Vectors || last == L) {
          if (adds) result += load<V>(from + j * L);
          store_at(c + j * L, ending.gated(result));
        } else {
          if (adds) result += load_partial<V>(from + j * L, last);
          store_partial(c + j * L, ending.gated(result), last);
        }
      }
    }
  };
  if (stream)
    store_rows([](auto* at, V v) DVM_LAMBDA_INLINE { store_stream(at, v); });
  else
    store_rows([](auto* at, V v) DVM_LAMBDA_INLINE { store(at, v); });
}

// Adds what C begins with, ends as is said, and stores.
template <class Step, int Rows, int Vectors, bool Ragged, class Sums>
DVM_INLINE void store_block(const Product<Step>& x, int64_t ragged, const Sums& sum, bool stream) {
  using V = typename Step::Sum;
  constexpr int64_t L = kLanesOf<V>;
  if constexpr (Step::kEnds) {
    if (x.ending.gates()) [[unlikely]] {
      V kept[Rows * Vectors];
#pragma GCC unroll 64
      for (int i = 0; i < Rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < Vectors; j++) kept[i * Vectors + j] = sum[i][j];
      return store_gated<Step, Vectors>(x, kept, Rows, Ragged ? ragged : L, stream);
    }
  }
  auto* c = x.c;
  const bool accumulate = x.accumulate;
  const auto* from = Step::kEnds ? x.from : x.c;
  const int64_t c_row = x.c_row, from_row = Step::kEnds ? x.from_row : x.c_row;
  const auto finished = [ending = x.ending](V v) DVM_LAMBDA_INLINE {
    if constexpr (Step::kEnds)
      return ending.bounded(v);
    else
      return v;
  };
#pragma GCC unroll 64
  for (int i = 0; i < Rows; i++, c += c_row, from += from_row) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; j++) {
      auto* at = c + j * L;
      V result = sum[i][j];
      if (Ragged && j == Vectors - 1) {
        if (accumulate) result += load_partial<V>(from + j * L, ragged);
        store_partial(at, finished(result), ragged);
      } else {
        if (accumulate) result += load<V>(from + j * L);
        if (stream)
          store_stream(at, finished(result));
        else
          store(at, finished(result));
      }
    }
  }
}

// Whole lines only: halves would go to memory one by one.
template <class Step, int Vectors>
DVM_INLINE bool streams_to_c(const Product<Step>& x) {
  return Step::kEnds && x.stream && Vectors * sizeof(typename Step::Sum) % kLineBytes == 0 &&
         reinterpret_cast<uintptr_t>(x.c) % kLineBytes == 0 &&
         x.c_row * static_cast<int64_t>(sizeof(*x.c)) % kLineBytes == 0;
}

// C block: Rows rows, one panel or those of a wide block. `ragged` (0: none) is the number of valid
// elements in the last vector. All loops over accumulators are unrolled, so that these are
// registers.
template <class Step, int Rows, int Vectors, bool Ragged>
[[gnu::noinline]] void multiply_block(const Product<Step>& x, int64_t ragged) {
  using V = typename Step::Sum;
  constexpr int64_t L = kLanesOf<V>;
  constexpr int kSums = Rows * Vectors >= kLatencySums ? 1 : kLatencySums / (Rows * Vectors);
  V start[Vectors] = {}, sum[kSums * Rows][Vectors];
  if constexpr (kStores<Step>) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; j++)
      start[j] = Step::template start<Vectors, Ragged>(x, ragged, j);
  }
#pragma GCC unroll 64
  for (int i = 0; i < kSums * Rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; j++) sum[i][j] = i < Rows ? start[j] : V{};
  const bool stream = streams_to_c<Step, Vectors>(x);
  if (!stream) {
    constexpr int64_t kApart = kStores<Step> ? kLineBytes / int64_t{sizeof(*x.c)} : L;
#pragma GCC unroll 64
    for (int i = 0; i < Rows; i++)
      for (int64_t n = 0; n < Vectors * L; n += kApart)
        __builtin_prefetch(x.c + i * x.c_row + n, 1);
  }
  AddendRows<Step, Vectors> addend{x.from, x.from_row, Step::kEnds && x.accumulate ? Rows : 0};
  while (addend.left > (kSums > 1 ? 0 : x.k / kAheadSteps)) addend.fetch();
  if constexpr (kSums > 1)
    multiply_in_turns<Step, Rows, Vectors, Ragged, kSums>(x, ragged, sum);
  else
    multiply_steps<Step, Rows, Vectors, Ragged>(x, ragged, sum, addend);
  if constexpr (kStores<Step>)
    Step::template store_block<Rows, Vectors, Ragged>(x, ragged, sum);
  else
    store_block<Step, Rows, Vectors, Ragged>(x, ragged, sum, stream);
}

template <class Step>
using Block = void (*)(const Product<Step>&, int64_t);

// By rows - 1.
template <class Step, int Vectors, bool Ragged, int... Rows>
constexpr Block<Step> block_of(int rows, std::integer_sequence<int, Rows...>) {
  constexpr Block<Step> kBlocks[] = {&multiply_block<Step, Rows + 1, Vectors, Ragged>...};
  return kBlocks[rows - 1];
}
template <class Step, int Vectors, bool Ragged>
DVM_INLINE Block<Step> block_of(int64_t rows) {
  constexpr int kMost = Vectors < kPanelVectors    ? kHalfPanelRows
                        : Vectors == kPanelVectors ? kMaxRows
                        : Ragged                   ? kLastPanelRows
                                                   : kWideRows;
  return block_of<Step, Vectors, Ragged>(static_cast<int>(rows),
                                         std::make_integer_sequence<int, kMost>{});
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
