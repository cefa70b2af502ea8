// The loops around blocks of C in registers (blocks.h).
//
// Rows are cut into blocks of nearly equal size; for each panel of B all row blocks are done before
// the next panel, so that B is read once from memory, and the next panel is fetched into L2
// meanwhile. So many rows of A pass at a time that they stay in L2. Where rows of A fall into one
// or two sets of L1, blocks are wide instead: as many rows as one set has room for, and two panels.
#pragma once

#include "npu/host/blocks.h"

namespace dvm::DVM_LEVEL {
namespace {

// Rows as blocks of nearly equal size.
struct EvenRows {
  int64_t rows, count, step, last;

  DVM_INLINE EvenRows(int64_t all, int64_t most)
      : rows(all),
        count(all <= most ? 1 : ceil_div(all, most)),
        step(count == 1 ? all : ceil_div(all, count)),
        last(count == 1 ? all : all - (all - 1) / step * step) {}
};

// One panel of B, those of a wide block, or the `Vectors` vectors of a ragged one. Leaves x as it
// was: a copy would read as vectors what has just been written field by field, and wait for it.
template <class Step, int Vectors, bool Ragged>
DVM_INLINE void multiply_panel(Product<Step>& x, const EvenRows& rows, int64_t ragged) {
  const Block<Step> block = block_of<Step, Vectors, Ragged>(rows.step);
  const Block<Step> last = block_of<Step, Vectors, Ragged>(rows.last);
  const int64_t ahead_rows = ceil_div(x.k, kAheadSteps) * x.ahead.rows;
  const auto* const a = x.a;
  auto* const c = x.c;
  const auto* const from = x.from;
  const char* const ahead = x.ahead.at;
  for (int64_t m = 0; m < rows.rows; m += rows.step) {
    (m + rows.step <= rows.rows ? block : last)(x, ragged);
    x.a += rows.step * x.a_row;
    x.c += rows.step * x.c_row;
    if (Step::kEnds) x.from += rows.step * x.from_row;
    x.ahead.at += ahead_rows * x.ahead.stride;
  }
  x.a = a;
  x.c = c;
  x.from = from;
  x.ahead.at = ahead;
}

// Of a widened row, whose length is an odd number of lines: rows side by side fall into all sets.
template <class Step>
DVM_INLINE int64_t wide_row_bytes(int64_t k) {
  const int64_t bytes = k * Step::kWideSteps * static_cast<int64_t>(sizeof(typename Step::Wide::A));
  return (ceil_div(bytes, kLineBytes) | 1) * kLineBytes;
}

// A panel that many blocks of rows read is widened once.
template <class Step>
DVM_INLINE void multiply_widened(const Product<Step>& panel, const EvenRows& rows) {
  using Wide = typename Step::Wide;
  constexpr int64_t L = Product<Step>::kLanes, kNR = Product<Step>::kColumns;
  constexpr int64_t kSteps = Step::kWideSteps;
  auto* const room = reinterpret_cast<typename Wide::B*>(panel.room);
  for (int64_t k = 0; k < panel.k; k++)
    for (int64_t n = 0; n < kNR; n += L)
      Step::widen(room + k * kSteps * kNR + n, kNR, Step::column(panel.b + k * panel.b_step + n));
  Product<Wide> wide{};
  if constexpr (kWidensRows<Step>) {
    wide.a = reinterpret_cast<const typename Wide::A*>(panel.rows);
    wide.a_row = wide_row_bytes<Step>(panel.k) / int64_t{sizeof(*wide.a)};
  } else {
    wide.a = panel.a;
    wide.a_row = panel.a_row;
  }
  wide.b = room;
  wide.b_step = kNR;
  wide.c = panel.c;
  wide.c_row = panel.c_row;
  wide.k = panel.k * kSteps;
  wide.accumulate = panel.accumulate;
  wide.ahead = panel.ahead;
  if constexpr (kSteps > 1) {  // as many bursts for each of panel's steps, whose rows have no gaps
    wide.ahead.row_bytes = ceil_div(wide.ahead.row_bytes, kSteps * kLineBytes) * kLineBytes;
    wide.ahead.stride = wide.ahead.row_bytes;
  }
  if constexpr (kWidensRows<Step>) wide.ahead.with_a = false;
  wide.later = panel.later;
  if constexpr (kStores<Step>) wide.of_columns = panel.of_columns;
  multiply_panel<Wide, kPanelVectors, false>(wide, rows, 0);
}

// As multiply_full_panels, of a single block of rows, and without fetching anything ahead.
template <class Step>
DVM_INLINE void multiply_few_rows(Product<Step>& x, int64_t rows, int64_t& columns) {
  constexpr int64_t kNR = Product<Step>::kColumns;
  const Block<Step> block = block_of<Step, kPanelVectors, false>(rows);
  for (; columns >= kNR; columns -= kNR) {
    block(x, 0);
    x.b += x.b_panel;
    x.next_columns(kNR);
    x.ahead.with_a = false;
  }
}

// All full panels, so many at a time as a block spans: leaves x at what is left of `columns`.
template <class Step, int Panels>
DVM_INLINE void multiply_full_panels(Product<Step>& x, const EvenRows& rows, int64_t& columns) {
  constexpr int64_t kNR = Product<Step>::kColumns;
  constexpr auto kElement = static_cast<int64_t>(sizeof(*x.b));
  // Behind the last panel come the next steps of k, of the first one.
  const auto* next_depth = x.b + x.k * x.b_step;
  // Blocks of a run take turns: each fetches a share of the next run's rows.
  const int64_t run = x.direct() ? kDirectRun : Panels, turns = run / Panels;
  x.ahead.stride = x.b_step * kElement;
  x.ahead.panels = x.direct() ? 1 : Panels;
  x.ahead.panel_bytes = x.b_panel * kElement;
  x.ahead.row_bytes = run / x.ahead.panels * x.kStepBytes;
  x.ahead.rows = ceil_div(kAheadSteps, rows.count * turns);
  if (x.b_step == kNR) {  // rows without gaps are one
    const int64_t lines = ceil_div(kAheadSteps * x.kStepBytes, rows.count * kLineBytes);
    x.ahead.stride = x.ahead.row_bytes = lines * kLineBytes;
    x.ahead.rows = 1;
  }
  const int64_t share = ceil_div(x.k, kAheadSteps) * rows.count * x.ahead.rows;
  for (int64_t turn = 0; columns >= Panels * kNR; columns -= Panels * kNR) {
    const int64_t panels = run - turn * Panels;  // to the next run
    const auto* next = columns > panels * kNR ? x.b + panels * x.b_panel : next_depth;
    x.ahead.at = reinterpret_cast<const char*>(next) + turn * share * x.ahead.stride;
    turn = turn + 1 < turns ? turn + 1 : 0;
    if constexpr (kWidens<Step> && Panels == 1) {
      if (x.room != nullptr)
        multiply_widened(x, rows);
      else
        multiply_panel<Step, kPanelVectors, false>(x, rows, 0);
    } else {
      multiply_panel<Step, Panels * kPanelVectors, false>(x, rows, 0);
    }
    x.b += Panels * x.b_panel;
    x.next_columns(Panels * kNR);
    x.ahead.with_a = false;
  }
  x.ahead.rows = 0;
}

// Full panels in wide blocks, those that are left in narrow ones of at most `most` rows. Leaves x
// as it was, but for what it fetches ahead.
template <class Step>
DVM_INLINE void multiply_panels(Product<Step>& x, int64_t rows, int64_t columns, bool wide,
                                int64_t most) {
  constexpr int64_t L = Product<Step>::kLanes;
  const auto* const b = x.b;
  auto* const c = x.c;
  const auto* const from = x.from;
  const auto of_columns = x.of_columns;
  x.ahead.with_a = true;
  const bool few = x.room == nullptr && !fetches_ahead<Step>(rows, kPanelVectors);
  if constexpr (kWideRows > 0) {
    if (wide) multiply_full_panels<Step, kWidePanels>(x, EvenRows(rows, kWideRows), columns);
  }
  constexpr int64_t kNR = Product<Step>::kColumns;
  const EvenRows blocks(rows, most);
  const int64_t ragged = columns % kNR;
  const bool together = kLastPanelRows > 0 && columns > kNR && ragged > 0 && ragged <= L;
  if (together) columns -= kNR + ragged;
  if (few)
    multiply_few_rows(x, rows, columns);
  else
    multiply_full_panels<Step, 1>(x, blocks, columns);
  if constexpr (kLastPanelRows > 0) {
    if (together) multiply_panel<Step, 3, true>(x, EvenRows(rows, kLastPanelRows), ragged);
  }
  if (columns > L) {
    multiply_panel<Step, 2, true>(x, blocks, columns - L);
  } else if (columns > 0) {
    const int64_t rows_of_block = kHalfPanelRows > kMaxRows ? kHalfPanelRows : most;
    multiply_panel<Step, 1, true>(x, EvenRows(rows, rows_of_block), columns);
  }
  x.b = b;
  x.c = c;
  x.from = from;
  x.of_columns = of_columns;
}

// C in chunks of at most so many rows and steps of k, one after the other: multiply(rows) does the
// one that x is at.
template <class Step, class Multiply>
DVM_INLINE void multiply_chunks(Product<Step>& x, int64_t rows, int64_t most_rows, int64_t depth,
                                Multiply multiply) {
  using C = typename Product<Step>::C;
  const EvenRows chunks(rows, most_rows);
  const auto* const b = x.b;
  const C* from = x.from;
  const int64_t whole = x.k, from_row = x.from_row;
  const bool accumulate = x.accumulate, stream = x.stream;
  const auto ending = x.ending;
  for (int64_t m = 0; m < rows; m += chunks.step) {
    const auto* const a = x.a;
    for (int64_t k = 0; k == 0 || k < whole; k += depth) {
      x.k = lesser(whole - k, depth);
      if constexpr (Step::kEnds) {
        const bool last = k + depth >= whole;
        x.ending = last ? ending : Ending<C>{};
        x.stream = last && stream;
      }
      multiply(lesser(rows - m, chunks.step));
      x.accumulate = true;
      if (Step::kEnds) {
        x.from = x.c;
        x.from_row = x.c_row;
      }
      x.a += depth;
      x.b += depth * x.b_step;
    }
    x.a = a + chunks.step * x.a_row;
    x.b = b;
    x.c += chunks.step * x.c_row;
    x.accumulate = accumulate;
    if (Step::kEnds) from += chunks.step * from_row;
    x.from = from;
    x.from_row = from_row;
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
