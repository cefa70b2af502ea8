#include "runtime/ahead_compiler.h"

#include <exception>

#include "npu/host/relax.h"
#include "runtime/clock.h"
#include "runtime/plan_dims.h"

namespace dvm {
namespace {

// How long to wait for a worker to begin. It may be at a kernel of a rehearsal: that is worth
// waiting for, the more kernels there are to compile.
constexpr int64_t kPatienceNs = 3000, kPatiencePerKernelNs = 100;

}  // namespace

AheadCompiler::AheadCompiler(const Model& model, KernelPrograms& programs, Standby* standby,
                             CompilerScratch& compiler, std::span<const char> left_out)
    : model_(model),
      programs_(programs),
      standby_(standby),
      compiler_(compiler),
      left_out_(left_out) {
  done_.reserve(programs.table().kernels.size());
}

bool AheadCompiler::begin(uint32_t first_step, uint32_t end_step, const Dims& dims,
                          const ValueInfo* values) {
  done_.clear();
  if (standby_ == nullptr || !standby_->waits()) return false;
  dims_ = &dims;
  values_ = values;
  first_step_ = first_step;
  end_step_ = end_step;
  asked_ns_ = now_ns();
  there_.store(first_step, std::memory_order_relaxed);
  for (std::atomic<bool>* flag : {&begun_, &stop_, &finished_}) {
    flag->store(false, std::memory_order_relaxed);
  }
  standby_->post(*this);
  const auto kernels = static_cast<int64_t>(programs_.table().kernels.size());
  const int64_t patient_until = asked_ns_ + kPatienceNs + kPatiencePerKernelNs * kernels;
  spin_until([&] { return begun_.load(std::memory_order_relaxed) || now_ns() > patient_until; });
  if (!standby_->withdraw(*this)) return true;
  finished_.store(true, std::memory_order_relaxed);
  return false;
}

bool AheadCompiler::has(uint32_t step) const {
  return there_.load(std::memory_order_acquire) > step || finished_.load(std::memory_order_acquire);
}

void AheadCompiler::await(uint32_t step) const {
  spin_until([&] { return has(step); });
}

std::span<const AheadCompiler::Done> AheadCompiler::end() {
  stop_.store(true, std::memory_order_relaxed);
  spin_until([&] { return finished_.load(std::memory_order_acquire); });
  return done_;
}

void AheadCompiler::run() noexcept {
  begun_.store(true, std::memory_order_relaxed);
  try {
    for (uint32_t step = first_step_; step < end_step_; step++) {
      if (const auto* stage = std::get_if<LaunchStage>(&model_.steps[step])) {
        for (const uint32_t call : stage->calls) compile(call);
      }
      if (stop_.load(std::memory_order_relaxed)) break;
      there_.store(step + 1, std::memory_order_release);
    }
  } catch (const std::exception&) {  // the caller finds the kernel not current
  }
  finished_.store(true, std::memory_order_release);
}

// What the launcher will want for a call: its kernel, or the kernels of its fallback.
void AheadCompiler::compile(uint32_t index) {
  if (stop_.load(std::memory_order_relaxed)) return;
  if (!left_out_.empty() && left_out_[index] != 0) return;
  const KernelCall& call = model_.calls[index];
  if (guard_holds(call, *dims_)) {
    if (!programs_.is_current(index, *dims_, values_)) {
      const int64_t start = done_.empty() ? asked_ns_ : now_ns();
      if (programs_.compile(index, *dims_, values_, compiler_)) {
        done_.push_back({index, start, now_ns() - start});
      }
    }
    if (!needs_fallback(programs_.status(index))) return;
  }
  for (const uint32_t fallback : call.fallback) compile(fallback);
}

}  // namespace dvm
