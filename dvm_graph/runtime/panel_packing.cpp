#include "runtime/panel_packing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/errors.h"
#include "runtime/memory.h"
#include "vm/isa.h"
#include "vm/panels.h"

namespace dvm {
namespace {

constexpr int64_t kPieceBytes = int64_t{128} << 10;  // of the source, per unit of work
constexpr int64_t kLeastOfThread = 4;  // pieces: to start a thread takes as long as one or two

// Runs work(0..count-1) on up to `cores` threads.
template <typename Work>
void share_out(int64_t count, int cores, const Work& work) {
  std::atomic<int64_t> next{0};
  const auto worker = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> threads;  // joined at the end, also where one cannot be started
  const int64_t workers = std::min<int64_t>(cores, count / kLeastOfThread);
  for (int64_t i = 1; i < workers; i++) threads.emplace_back(worker);
  worker();
}

void require_inside(const PanelSource& source) {
  if (source.batch <= 0 || source.k <= 0 || source.n <= 0) return;
  int64_t low = source.offset, high = source.offset;
  const int64_t reach[3] = {(source.batch - 1) * source.batch_stride,
                            (source.k - 1) * source.k_stride, (source.n - 1) * source.n_stride};
  for (const int64_t extent : reach) (extent < 0 ? low : high) += extent;
  const auto elements = source.bytes / static_cast<int64_t>(size_of(source.dtype));
  if (low < 0 || high >= elements) throw CompileError("panels reach outside of their constant");
}

void require_taps(const PanelSource& source) {
  const bool floats = source.dtype == DType::f32 && source.panels == DType::f32;
  const bool slices = source.transformed > 0 && source.transformed <= source.k;
  if (!floats || source.bundles || !slices ||
      source.k % (source.transformed * kTransformTaps * kTransformTaps) != 0)
    throw CompileError("transforms are of f32 weights of 3 x 3 taps");
}

// The whole pages of a constant.
void advise(const PanelSource& source, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(source.data);
  const uintptr_t first = (start + page - 1) / page * page;
  const uintptr_t end = (start + static_cast<uintptr_t>(source.bytes)) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, advice);
}

Family packing(const PanelSource& source, const Target& target) {
  if (!source.bundles && packs_rows(source.panels, target)) {
    return source.panels == source.dtype ? Family::d_load_l1 : Family::d_load_view;
  }
  if (source.bundles) return Family::d_pack_b_bundles;
  if (source.transformed > 0) return Family::d_pack_b_transformed;
  return source.panels == register_dtype(source.dtype) ? Family::d_pack_b : Family::d_pack_b_stored;
}

// What the panels are made of.
DType unit_of(const PanelSource& source) { return source.bundles ? kBundle : source.panels; }
int64_t steps_of(const PanelSource& source, int64_t k) {
  const int64_t bundle = source.bundles ? bundle_steps(source.panels) : 1;
  return (k + bundle - 1) / bundle;
}

// A piece of one batch entry, packed by the device's own instruction.
class Packer {
 public:
  Packer(const PanelSource& source, const Target& target, const InstructionTable& table)
      : handler_(table.handlers[opcode_of(packing(source, target), source.dtype)]),
        slices_(static_cast<int32_t>(std::max<int64_t>(source.transformed, 1))),
        columns_(panel_columns(unit_of(source), target)) {
    if (handler_ == nullptr) throw CompileError("a constant has no panels of that dtype");
    const auto stride = [](int64_t wide) {
      const auto narrow = static_cast<int32_t>(wide);
      if (narrow != wide) throw CompileError("strides of a constant are too large to pack it");
      return narrow;
    };
    Head head{};
    head.opcode = opcode_of(packing(source, target), source.dtype);
    head.words = sizeof words_ / sizeof words_[0];
    head.e1 = 1;
    head.e2 = 2;
    const auto pointer = [](uint32_t index) {
      return (static_cast<uint32_t>(Space::pointer) << kSpaceShift) | index;
    };
    const bool rows = !source.bundles && packs_rows(source.panels, target);
    const int64_t row = (source.n + columns_ - 1) / columns_ * columns_;
    const Operand operands[] = {
        {pointer(0), 1, rows ? 0 : stride(steps_of(source, source.rows()) * columns_),
         stride(rows ? row : columns_)},
        {pointer(1), stride(source.n_stride), 0, stride(source.k_stride)}};
    std::memcpy(words_, &head, sizeof head);
    std::memcpy(words_ + 1, operands, sizeof operands);
  }

  void operator()(std::byte* panels, const std::byte* from, int64_t k, int64_t n) const {
    Core core;
    core.extents[0] = slices_;
    core.extents[1] = static_cast<int32_t>(k);
    core.extents[2] = static_cast<int32_t>(n);
    core.pointers[0] = panels;
    core.pointers[1] = const_cast<std::byte*>(from);
    handler_(core, words_);
  }

 private:
  uint64_t words_[5];
  Handler handler_;
  int32_t slices_;
  int64_t columns_;
};

// Where panels of one batch entry lie.
class Panels {
 public:
  Panels(const PanelSource& source, const Target& target)
      : source_(source),
        columns_(panel_columns(unit_of(source), target)),
        rows_(!source.bundles && packs_rows(source.panels, target)),
        unit_bytes_(static_cast<int64_t>(size_of(unit_of(source)))),
        batch_bytes_(
            packed_bytes(steps_of(source, source.rows()), source.n, 1, unit_of(source), target)) {}

  int64_t columns() const { return columns_; }
  int64_t bytes() const { return batch_bytes_ * source_.batch; }

  // Of an element: n is a multiple of the panel's columns, k one of a bundle's steps.
  int64_t place(int64_t batch, int64_t k, int64_t n) const {
    const int64_t row = (source_.n + columns_ - 1) / columns_ * columns_;
    const int64_t at =
        rows_ ? k * row + n
              : n * steps_of(source_, source_.rows()) + steps_of(source_, k) * columns_;
    return batch * batch_bytes_ + at * unit_bytes_;
  }

 private:
  const PanelSource& source_;
  int64_t columns_;
  bool rows_;
  int64_t unit_bytes_, batch_bytes_;
};

void pack(const PanelSource& source, const Panels& panels, const Packer& packer, int cores,
          std::byte* packed) {
  const auto element = static_cast<int64_t>(size_of(source.dtype));
  // Pieces are long where the source is contiguous: whole columns of k, as transforms want them, or
  // whole rows of n.
  const bool columns_first =
      source.transformed > 0 || std::abs(source.k_stride) < std::abs(source.n_stride);
  const int64_t line = (columns_first ? source.k : source.n) * element;
  const int64_t columns = panels.columns();
  const int64_t lines = std::max<int64_t>(kPieceBytes / line / columns, 1) * columns;
  const int64_t pieces = ((columns_first ? source.n : source.k) + lines - 1) / lines;
  share_out(source.batch * pieces, cores, [&](int64_t unit) {
    const int64_t batch = unit / pieces, first = unit % pieces * lines;
    const int64_t k = columns_first ? 0 : first, n = columns_first ? first : 0;
    const int64_t from =
        source.offset + batch * source.batch_stride + k * source.k_stride + n * source.n_stride;
    packer(packed + panels.place(batch, k, n), source.data + from * element,
           columns_first ? source.k : std::min(lines, source.k - k),
           columns_first ? std::min(lines, source.n - n) : source.n);
  });
}

}  // namespace

Tensor pack_constant(const PanelSource& source, const Target& target, const InstructionTable& table,
                     Store& store) {
  require_inside(source);
  if (source.transformed != 0) require_taps(source);
  const Panels panels(source, target);
  const auto elements = panels.bytes() / static_cast<int64_t>(size_of(source.panels));
  Tensor packed{source.panels, {elements}, nullptr, nullptr};
  packed.owner = store.take(panels.bytes(), "packed weights");
  packed.data = static_cast<std::byte*>(packed.owner.get());
  if (panels.bytes() == 0) return packed;
  if (source.mapped) advise(source, MADV_WILLNEED);
  pack(source, panels, Packer(source, target, table), target.cores, packed.data);
  // The file keeps the contents; the pages only would take memory a second time.
  if (source.mapped) advise(source, MADV_DONTNEED);
  return packed;
}

}  // namespace dvm
