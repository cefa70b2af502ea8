// Products of the cube unit: their operands, and the chunks of rows and of k in which they pass by
// way of blocks in registers (blocks.h) or in tiles (tiles.h).
#pragma once

#include "npu/host/tiles.h"

namespace dvm::DVM_LEVEL {
namespace {

// Of A: stays in L2, of which local memory is a part, beside two panels of B.
DVM_INLINE int64_t chunk_bytes(const Core& core) {
  return static_cast<int64_t>(core.local_bytes) * 17 / 24;
}

// Bursts of prefetches that the blocks of a product make.
DVM_INLINE int64_t bursts_of(int64_t rows, int64_t columns, int64_t k, int64_t panel_columns) {
  return ceil_div(rows, kMaxRows) * (columns / panel_columns) * ceil_div(k, kAheadSteps);
}

// Those of A that pass at a time.
template <class Step>
DVM_INLINE void widen_rows(const Product<Step>& x, int64_t rows) {
  const int64_t row_bytes = wide_row_bytes<Step>(x.k);
  for (int64_t m = 0; m < rows; m++) {
    auto* const to = reinterpret_cast<typename Step::Wide::A*>(x.rows + m * row_bytes);
    Step::widen_row(to, x.a + m * x.a_row, x.k);
  }
}

// Whether a product passes by way of tiles.
template <class Step>
DVM_INLINE bool by_tiles(const Product<Step>& x, int64_t rows, int64_t columns) {
  if constexpr (kTiled<Step>)
    return x.scratch != nullptr && tiles_pay(x, rows, columns);
  else
    return false;
}

// C[rows, columns] (+)= A * B. No more than `depth` steps of k pass at a time. Uses x up.
template <class Step>
void multiply_blocks(Product<Step>& x, int64_t rows, int64_t columns, int64_t depth) {
  constexpr auto kElement = static_cast<int64_t>(sizeof(*x.a));
  // Rows that are one chunk, and one block: what decides about others would take as long as a
  // short product.
  constexpr int kFew = kSetRows < kNarrowRows ? kSetRows : kNarrowRows;
  if (rows <= kFew && depth > x.k && x.room == nullptr && !by_tiles(x, rows, columns))
    return multiply_panels(x, rows, columns, false, kFew);
  const int64_t row_bytes = x.a_row * kElement;
  const bool crowded = row_bytes != 0 && row_bytes % (kWayBytes / 2) == 0 && rows > kSetRows;
  const int64_t panel_bytes = lesser(x.k, depth) * x.kStepBytes;
  const bool wide =
      kWideRows > 0 && crowded && x.room == nullptr && 4 * panel_bytes < x.chunk_bytes;
  const int64_t most = row_bytes % kWayBytes == 0 ? kNarrowRows : kMaxRows;
  // Wide blocks need room for more panels, and leave half for rows of A.
  const int64_t wider = wide ? 2 * (kWidePanels - 1) * panel_bytes : 0;
  int64_t resident_row = (x.k + 1) * kElement;
  if constexpr (kWidensRows<Step>) {
    if (x.room != nullptr) resident_row = wide_row_bytes<Step>(x.k);
  }
  const int64_t resident = (x.chunk_bytes - wider) / resident_row;
  const int64_t chunk = resident > most ? resident : most;
  if constexpr (kTiled<Step>) {
    if (by_tiles(x, rows, columns)) return multiply_by_tiles(x, rows, columns, chunk, depth);
  }
  multiply_chunks(x, rows, chunk, depth, [&](int64_t count) DVM_LAMBDA_INLINE {
    if constexpr (kWidensRows<Step>) {
      if (x.room != nullptr) widen_rows(x, count);
    }
    multiply_panels(x, count, columns, wide, most);
  });
}

// Where an instruction has C, and its right operand, which is number `b`.
template <class Step>
DVM_INLINE void read_operands(Product<Step>& x, const Core& core, const uint64_t* words, int b) {
  const auto c = tile_at<typename Product<Step>::C>(core, operand_words(words, 0));
  const auto right = tile_at<const typename Step::B>(core, operand_words(words, b));
  x.b = right.at;
  x.b_step = right.middle;
  x.b_panel = right.outer;
  x.b_column = right.inner;
  x.c = c.at;
  x.c_row = c.middle;
  x.from = c.at;
  x.from_row = c.middle;
}

// The addend, behind the operands that come before it, and what results end as.
template <class Step>
DVM_INLINE void read_ending(Product<Step>& x, const Core& core, const uint64_t* words, Form form,
                            int addend) {
  x.accumulate = !is_immediate(operand_words(words, addend));
  if (x.accumulate) {
    const auto from = tile_at<const typename Product<Step>::C>(core, operand_words(words, addend));
    x.from = from.at;
    x.from_row = from.middle;
  }
  x.ending = Ending<typename Product<Step>::C>(ending_words(form, words));
  x.stream = streams(words);
}

constexpr int64_t kWidenRows = 4 * kMaxRows + 1;       // for which a panel is widened once
constexpr int64_t kWidenedBytes = int64_t{128} << 10;  // of a panel
static_assert(kWidenedBytes <= kScratchBytes);

// Finds room for what is widened once because it is read again, and returns how many steps of k may
// pass at a time.
template <class Step>
DVM_INLINE int64_t find_room(Product<Step>& x, int64_t rows, int64_t columns) {
  constexpr int64_t kStepBytes =
      Step::kWideSteps * x.kColumns * int64_t{sizeof(typename Step::Wide::B)};
  const int64_t all = x.k + 1;
  if (x.scratch == nullptr) return all;
  if constexpr (kWidensRows<Step>) {
    const int64_t panel = x.k * kStepBytes;
    const int64_t chunk = lesser(x.chunk_bytes, kScratchBytes - panel);
    const bool fits = chunk >= kMaxRows * wide_row_bytes<Step>(x.k);
    if (!fits || rows <= kMaxRows || columns < 2 * x.kColumns) return all;
    x.chunk_bytes = chunk;
    x.rows = x.scratch + panel;
  } else if (rows < kWidenRows) {
    return all;
  }
  x.room = x.scratch;
  return kWidensRows<Step> ? all : kWidenedBytes / kStepBytes;
}

// A product whose A and panels of B hold elements of their own (half_unit.cpp, integer_unit.cpp).
template <class Step>
DVM_INLINE Product<Step> panels_product(const Core& core, const Extents& e, const uint64_t* words) {
  const auto a = tile_at<const typename Step::A>(core, operand_words(words, 1));
  Product<Step> x{};
  read_operands(x, core, words, 2);
  x.a = a.at;
  x.a_row = a.middle;
  x.k = e.middle;
  x.chunk_bytes = chunk_bytes(core);
  x.scratch = core.scratch;
  x.splitting = &core.splitting;
  return x;
}

template <class Step>
void panels_handler(Core& core, const uint64_t* words) {
  const Extents e = extents_of(core, words);
  if (e.outer <= 0 || e.inner <= 0) return;
  const uint8_t flags = flags_of(words);
  Product<Step> x = panels_product<Step>(core, e, words);
  x.accumulate =
      (flags & kAccumulateAlways) != 0 || ((flags & kAccumulate) != 0 && !core.first_chunk);
  if constexpr (kStores<Step>) x.of_columns = Step::columns(core, words);
  FetchLater later(core, bursts_of(e.outer, e.inner, e.middle, x.kColumns));
  if (later.any()) x.later = &later;
  int64_t depth = x.k + 1;
  if constexpr (kWidens<Step>) depth = find_room(x, e.outer, e.inner);
  multiply_blocks(x, e.outer, e.inner, depth);
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
