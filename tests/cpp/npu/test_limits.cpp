// What ceilings are measured with, at every level: copies copy all of a buffer and nothing beyond,
// reads stay within it (under the address sanitizer), operations are counted.
#include <cmath>
#include <cstdlib>
#include <memory>

#include "check.h"
#include "npu/host/ceilings.h"
#include "npu/host/levels.h"

namespace dvm::test {
namespace {

struct Free {
  void operator()(float* buffer) const { std::free(buffer); }
};
using Buffer = std::unique_ptr<float, Free>;

Buffer aligned(int64_t count) {
  return Buffer(
      static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(count) * sizeof(float))));
}

void test_copy(const Limits& limits, int64_t count) {
  constexpr int64_t kGuard = 64;
  const Buffer from = aligned(count), to = aligned(count + kGuard);
  for (int64_t i = 0; i < count; i++) from.get()[i] = static_cast<float>(i) - 0.5f;
  for (int64_t i = 0; i < count + kGuard; i++) to.get()[i] = -7;
  limits.copy(to.get(), from.get(), count);
  limits.read(from.get(), count);
  for (int64_t i = 0; i < count; i++) CHECK(to.get()[i] == static_cast<float>(i) - 0.5f);
  for (int64_t i = count; i < count + kGuard; i++) CHECK(to.get()[i] == -7);
}

void test_operations(const Level& level) {
  const int64_t one = level.limits->multiply_add(1);
  CHECK(one > 0 && one % (2 * level.info->vector_bytes / static_cast<int>(sizeof(float))) == 0);
  CHECK(level.limits->multiply_add(0) == 0);
  CHECK(level.limits->multiply_add(7) == 7 * one);
}

void test_meter(const InstructionTable& table, int cores) {
  CeilingMeter meter(cores, table);
  for (int i = 0; i < 2; i++) {
    const Ceilings found = meter.measure();
    for (const double rate : {found.flops, found.copy_bytes, found.read_bytes})
      CHECK(std::isfinite(rate) && rate > 0);
  }
}

}  // namespace
}  // namespace dvm::test

int main() {
  using namespace dvm::test;
  for (const dvm::Level& level : dvm::available_levels()) {
    context = level.table->name;
    for (const int64_t count : {0, 128, 384, 8192}) test_copy(*level.limits, count);
    test_operations(level);
  }
  for (const int cores : {1, 3}) test_meter(dvm::best_table(), cores);
  return report("limits");
}
