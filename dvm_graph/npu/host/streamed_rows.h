// Rows that go around the caches, lie one behind the other, and are no whole vectors of memory.
//
// Stored in two parts through the caches, the line in which two rows meet would be read first, and
// what is stored behind it would wait for that. So some rows are put together in a buffer, from
// which whole vectors go on. Compiled per level: see simd.h.
#pragma once

#include "npu/host/loops.h"

namespace dvm::DVM_LEVEL {
namespace {

class StreamedRows {
 public:
  static constexpr int64_t kBytes = 8192;

  // Whether rows of so many bytes, a `stride` apart, are such, and so many of them fit.
  DVM_INLINE static bool suit(const void* first, int64_t row, int64_t stride, int64_t rows = 1) {
    const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first));
    return stride == row && row * rows <= kBytes && (at | row) % kVectorBytes != 0;
  }

  DVM_INLINE void start(void* first) {
    held_ = begin_ = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % kVectorBytes);
    memory_ = static_cast<std::byte*>(first) - held_;
  }
  // Where the next rows go, of so many bytes.
  DVM_INLINE std::byte* next(int64_t bytes) {
    if (held_ + bytes > kBytes + kVectorBytes) pass_on();
    std::byte* const at = rows_ + held_;
    held_ += bytes;
    return at;
  }
  DVM_INLINE void finish() {
    pass_on();
    if (held_ > begin_) store_part(held_);
  }

 private:
  using V = Full<float>;

  void pass_on() {
    if (held_ < kVectorBytes) return;
    int64_t at = 0;
    if (begin_ > 0) {
      store_part(kVectorBytes);
      at = kVectorBytes;
    }
    for (; at + kVectorBytes <= held_; at += kVectorBytes)
      store_stream(reinterpret_cast<float*>(memory_ + at), load<V>(floats(at)));
    store(floats(0), load<V>(floats(at)));
    memory_ += at;
    held_ -= at;
    begin_ = 0;
  }
  DVM_INLINE float* floats(int64_t at) { return reinterpret_cast<float*>(rows_ + at); }
  DVM_INLINE void store_part(int64_t end) {
    __builtin_memcpy(memory_ + begin_, rows_ + begin_, static_cast<size_t>(end - begin_));
  }

  alignas(kVectorBytes) std::byte rows_[kBytes + 2 * kVectorBytes];
  std::byte* memory_;         // of the first vector of them
  int64_t begin_ = 0, held_;  // of them, those from `begin_` to `held_` are there
};

// for_rows of rows that may be such; row(output, stream, inputs...).
template <class Row, class Out, class... In>
DVM_INLINE void for_streamed_rows(const Extents& e, bool stream, Row row, const Tile<Out>& out,
                                  const Tile<In>&... in) {
  constexpr auto kElement = static_cast<int64_t>(sizeof(Out));
  const int64_t bytes = e.inner * kElement;
  const bool together =
      stream && e.middle > 1 && StreamedRows::suit(out.at, bytes, out.middle * kElement);
  StreamedRows rows;
  for (int64_t o = 0; o < e.outer; o++) {
    Out* const first = out.at + o * out.outer;
    if (together) rows.start(first);
    for (int64_t m = 0; m < e.middle; m++) {
      Out* const to = together ? reinterpret_cast<Out*>(rows.next(bytes)) : first + m * out.middle;
      row(to, stream && !together, (in.at + o * in.outer + m * in.middle)...);
    }
    if (together) rows.finish();
  }
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
