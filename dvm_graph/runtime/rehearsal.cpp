#include "runtime/rehearsal.h"

#include <exception>
#include <limits>
#include <new>

#include "runtime/clock.h"
#include "vm/verify.h"

namespace dvm {

Rehearsal::~Rehearsal() {
  if (Standby* standby = device_.standby(); standby != nullptr) standby->recall(*this);
}

void Rehearsal::ask(std::span<const uint32_t> kernels, std::span<const int64_t> dims,
                    std::span<const ValueInfo> values) noexcept {
  Standby* const standby = device_.standby();
  if (standby == nullptr) return;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    try {
      dims_.assign(dims.begin(), dims.end());
      values_.assign(values.begin(), values.end());
      kernels_.assign(kernels.begin(), kernels.end());
    } catch (const std::bad_alloc&) {
      kernels_.clear();  // the run does not need it
      return;
    }
  }
  standby->post(*this);
}

void Rehearsal::run() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  try {
    for (int64_t before = std::numeric_limits<int64_t>::max();;) {
      const int64_t start = now_ns();
      if (!compile_all()) return;
      const int64_t elapsed = now_ns() - start;
      if (elapsed >= before - before / 4) return;
      before = elapsed;
    }
  } catch (const std::exception&) {  // the run that needs the kernel says what is wrong
  }
}

bool Rehearsal::compile_all() {
  for (const uint32_t kernel : kernels_) {
    if (device_.has_unclaimed_tiles() || device_.standby()->has_errand() || device_.resting())
      return false;
    compile(table_.bound[kernel]);
  }
  return true;
}

void Rehearsal::compile(const BoundKernel& kernel) {
  arguments_.clear();
  for (const Argument& argument : kernel.arguments) {
    arguments_.push_back(argument.info(dims_.data(), values_.data()));
  }
  const Target& target = device_.target();
  const DistinctKernel& distinct = table_.kernels[kernel.kernel];
  compile_kernel(distinct.plan, dims_.data(), arguments_.data(), target, compiler_, compiled_,
                 distinct.apart);
  (void)verify_kernel(compiled_, arguments_.data(), arguments_.size(), target);
}

}  // namespace dvm
