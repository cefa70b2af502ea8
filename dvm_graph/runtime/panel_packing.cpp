#include "runtime/panel_packing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "runtime/errors.h"
#include "runtime/memory.h"
#include "vm/panels.h"

namespace dvm {
namespace {

constexpr int64_t kChunkBytes = int64_t{256} << 10;  // of packed panels, per unit of work

// Runs work(0..count-1) on up to `cores` threads.
template <typename Work>
void share_out(int64_t count, int cores, const Work& work) {
  std::atomic<int64_t> next{0};
  const auto worker = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < std::min<int64_t>(cores, count); i++) threads.emplace_back(worker);
  worker();
  for (std::thread& thread : threads) thread.join();
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

// The file keeps the contents; the pages only would take memory a second time.
void drop_pages(const PanelSource& source) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(source.data);
  const uintptr_t first = (start + page - 1) / page * page;
  const uintptr_t end = (start + static_cast<uintptr_t>(source.bytes)) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace

Tensor pack_constant(const PanelSource& source, const Target& target) {
  require_inside(source);
  const DType dtype = register_dtype(source.dtype);
  const int64_t columns = panel_columns(dtype, target);
  const int64_t batch_bytes = packed_bytes(source.k, source.n, 1, dtype, target);
  const int64_t bytes = packed_bytes(source.k, source.n, source.batch, dtype, target);
  Tensor packed{dtype, {bytes / static_cast<int64_t>(size_of(dtype))}, nullptr, nullptr};
  packed.owner = allocate(bytes, "packed weights");
  packed.data = static_cast<std::byte*>(packed.owner.get());

  const auto element = static_cast<int64_t>(size_of(source.dtype));
  const int64_t panel_bytes = source.k * columns * static_cast<int64_t>(size_of(dtype));
  const int64_t panels = (source.n + columns - 1) / columns;
  const int64_t chunk = std::max<int64_t>(kChunkBytes / std::max<int64_t>(panel_bytes, 1), 1);
  const int64_t chunks = (panels + chunk - 1) / chunk;
  share_out(source.batch * chunks, target.cores, [&](int64_t unit) {
    const int64_t batch = unit / chunks, panel = unit % chunks * chunk;
    const int64_t column = panel * columns;
    const int64_t width = std::min(chunk * columns, source.n - column);
    const int64_t start = source.offset + batch * source.batch_stride + column * source.n_stride;
    pack_panels(packed.data + batch * batch_bytes + panel * panel_bytes,
                source.data + start * element, source.dtype, source.k, width, 1, 0, source.k_stride,
                source.n_stride, target);
  });
  if (source.mapped) drop_pages(source);
  return packed;
}

}  // namespace dvm
