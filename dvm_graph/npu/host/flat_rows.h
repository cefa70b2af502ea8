// Groups of joined instructions over short rows: all rows are run as one long row, block by block,
// so that strips are whole and streams write whole lines whatever the extent of a row. Operands
// whose rows do not lie one behind the other in memory become such rows in a block's buffer: what
// is the same in every row is repeated, what is one value per row is written out, rows with gaps
// are gathered, and results scattered to them.
// Compiled per level: see simd.h.
#pragma once

#include "npu/host/known_rows.h"

namespace dvm::DVM_LEVEL {
namespace {

class FlatRows {
 public:
  explicit FlatRows(const Group& group) : group_(group), row_(group.extents.inner) {}

  static bool are_short(const Group& group) {
    const Extents& e = group.extents;
    return group.fold == Family::count_ && e.middle > 1 && e.inner < kMostRow;
  }

  bool suits() {
    for (int s = 0; s < group_.count; s++) {
      if (!reads(s) || !keeps(s)) return false;
    }
    return true;
  }

  void run(FetchAhead& ahead) {
    make_rows();
    const Extents& e = group_.extents;
    const RunRows run = choose_run(group_);
    const int64_t elements = e.middle * row_;
    for (int64_t o = 0; o < e.outer; o++) {
      for (int s = 0; s < group_.count; s++) {
        if (in_[s].how == How::repeated && (o == 0 || places_[s].in.outer != 0)) {
          repeat(s, places_[s].in.at + o * places_[s].in.outer, elements);
        }
      }
      int64_t block = before_streams(o);
      for (int64_t at = 0; at < elements; at += block, block = kBlock) {
        block = lesser(block, elements - at);
        for (int s = 0; s < group_.count; s++) go_to(s, o, at, block);
        run(group_, {0, 1, block}, ahead);
        for (int s = 0; s < group_.count; s++) {
          if (out_[s].how == How::apart) scatter(s, o, at, block);
        }
      }
    }
  }

 private:
  static constexpr int64_t kBlock = 1024, kMostRow = kStrip * kF;
  static constexpr int kMostBuffers = 4;
  static constexpr int64_t kFloat = sizeof(float);

  enum class How : uint8_t { in_place, repeated, filled, apart };
  struct Operand {
    How how = How::in_place;
    int buffer = -1;
  };

  From source(int s) const { return group_.places[s].from; }

  bool in_buffer(Operand& operand, How how) {
    operand = {how, buffers_in_use_};
    return buffers_in_use_++ < kMostBuffers;
  }

  bool reads(int s) {
    const Tile<const std::byte>& in = group_.places[s].in;
    const From from = source(s);
    if (from == From::self) return true;
    if (from == From::value) return in.middle == 0 || in_buffer(in_[s], How::filled);
    const int64_t element = element_bytes(from);
    if (in.inner != element) return false;
    if (in.middle == row_ * element) return true;
    if (in.middle == 0) return in_buffer(in_[s], How::repeated);
    if (from != From::row || is_result(s)) return false;
    return in_buffer(in_[s], How::apart);
  }

  // Of a step before: it would be read before it is scattered.
  bool is_result(int s) const {
    for (int before = 0; before < s; before++) {
      const Place& place = group_.places[before];
      if (place.keep != Keep::nothing && place.out.at == group_.places[s].in.at) return true;
    }
    return false;
  }

  bool keeps(int s) {
    const Place& place = group_.places[s];
    if (place.keep == Keep::nothing) return true;
    if (place.out.inner == 0) return false;
    if (place.out.middle == row_ * place.out.inner) return true;
    return place.out.inner == kFloat && in_buffer(out_[s], How::apart);
  }

  void make_rows() {
    group_.streams = false;
    for (int s = 0; s < group_.count; s++) {
      Place& place = group_.places[s];
      places_[s] = place;
      Step& step = group_.steps[s];
      if (in_[s].how == How::filled) {
        const int row = static_cast<int>(step.what) - static_cast<int>(From::value);
        step.what = static_cast<Do>(row);
      }
      if (out_[s].how == How::apart) place.keep = step.keep = Keep::store;
      group_.streams |= place.keep == Keep::stream;
    }
  }

  float* buffer(Operand operand) { return buffers_[operand.buffer]; }

  // body(row, column, i, n): elements i to i + n of the block lie in this row from the column on.
  template <class Body>
  DVM_INLINE void each_piece(int64_t at, int64_t block, Body body) const {
    int64_t row = at / row_, column = at % row_;
    for (int64_t i = 0, n = 0; i < block; i += n, row++, column = 0) {
      n = lesser(row_ - column, block - i);
      body(row, column, i, n);
    }
  }

  void repeat(int s, const std::byte* row, int64_t elements) {
    const int64_t element = places_[s].in.inner;
    const int64_t all = lesser(elements, row_ + kBlock) * element;
    auto* const to = reinterpret_cast<std::byte*>(buffer(in_[s]));
    int64_t done = row_ * element;
    __builtin_memcpy(to, row, static_cast<size_t>(done));
    while (done < all) {
      const int64_t more = lesser(done, all - done);
      __builtin_memcpy(to + done, to, static_cast<size_t>(more));
      done += more;
    }
  }

  // Vectors may reach beyond the piece: what follows is written later.
  void fill(float* to, const Tile<const std::byte>& values, int64_t at, int64_t block) const {
    each_piece(at, block, [&](int64_t row, int64_t, int64_t i, int64_t n) DVM_LAMBDA_INLINE {
      const F lanes = value_lanes(values.at + row * values.middle);
      store(to + i, lanes);
      for (int64_t k = (i | (kF - 1)) + 1; k < i + n; k += kF) store(to + k, lanes);
    });
  }

  void gather(float* to, const Tile<const std::byte>& rows, int64_t at, int64_t block) const {
    each_piece(at, block, [&](int64_t row, int64_t column, int64_t i, int64_t n) DVM_LAMBDA_INLINE {
      const auto* from = reinterpret_cast<const float*>(rows.at + row * rows.middle) + column;
      int64_t k = 0;
      for (; k + kF <= n; k += kF) store(to + i + k, load<F>(from + k));
      if (k < n) store(to + i + k, load_partial<F>(from + k, n - k));
    });
  }

  void scatter(int s, int64_t o, int64_t at, int64_t block) {
    const Place& place = places_[s];
    const float* const from = buffer(out_[s]);
    std::byte* const rows = place.out.at + o * place.out.outer;
    each_piece(at, block, [&](int64_t row, int64_t column, int64_t i, int64_t n) DVM_LAMBDA_INLINE {
      auto* to = reinterpret_cast<float*>(rows + row * place.out.middle) + column;
      const bool stream = place.keep == Keep::stream && n % kF == 0 && to_alignment(to, kF) == 0;
      int64_t k = 0;
      for (; k + kF <= n; k += kF) {
        const F lanes = load<F>(from + i + k);
        stream ? store_stream(to + k, lanes) : store(to + k, lanes);
      }
      if (k < n) store_partial(to + k, load<F>(from + i + k), n - k);
    });
  }

  // Elements before the first whole vector of what is streamed.
  int64_t before_streams(int64_t o) const {
    for (int s = 0; s < group_.count; s++) {
      if (group_.places[s].keep != Keep::stream) continue;
      const Tile<std::byte>& out = places_[s].out;
      const int64_t before = to_alignment(out.at + o * out.outer, kVectorBytes) / out.inner;
      if (before > 0) return before;
    }
    return kBlock;
  }

  void go_to(int s, int64_t o, int64_t at, int64_t block) {
    Place& now = group_.places[s];
    const Place& place = places_[s];
    Tile<const std::byte> in = place.in;
    in.at += o * in.outer;
    float* const buffer = in_[s].buffer < 0 ? nullptr : this->buffer(in_[s]);
    now.in.at = reinterpret_cast<const std::byte*>(buffer);
    switch (in_[s].how) {
      case How::in_place: now.in.at = in.at + at * in.inner; break;
      case How::repeated: now.in.at += at % row_ * in.inner; break;
      case How::filled: fill(buffer, in, at, block); break;
      case How::apart: gather(buffer, in, at, block); break;
    }
    if (out_[s].how == How::apart)
      now.out.at = reinterpret_cast<std::byte*>(this->buffer(out_[s]));
    else
      now.out.at = place.out.at + o * place.out.outer + at * place.out.inner;
    now.out.middle = 0;  // there is one row
  }

  static constexpr int kMostSteps = 2 * kMostJoined;
  Group group_;  // which changes from block to block
  const int64_t row_;
  Place places_[kMostSteps];  // as they were
  Operand in_[kMostSteps], out_[kMostSteps];
  int buffers_in_use_ = 0;
  alignas(kVectorBytes) float buffers_[kMostBuffers][kBlock + kMostRow + kF];
};

// False: nothing was done.
[[gnu::noinline]] bool run_flat(const Group& group, FetchAhead& ahead) {
  if (!FlatRows::are_short(group)) return false;
  FlatRows flat(group);
  if (!flat.suits()) return false;
  flat.run(ahead);
  return true;
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
