#include "stream/execution.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>

#include "npu/host/process.h"
#include "runtime/clock.h"
#include "runtime/errors.h"
#include "runtime/trap_message.h"
#include "vm/verify.h"

namespace dvm::stream {

SharedDevice& Execution::device() {
  if (device_ == nullptr || process_ != process_generation()) {
    device_ = shared_device(request_);
    process_ = process_generation();
  }
  return *device_;
}

Draft& Execution::add_kernel(int32_t level) {
  if (drafts_.size() == count_) {
    drafts_.emplace_back();
    compiled_.emplace_back();
    levels_.push_back(0);
    ready_.push_back(0);
    drafts_.back().plan.name = "stream";
  }
  levels_[count_] = level;
  ready_[count_] = 0;
  return drafts_[count_++];
}

void Execution::run(const Graph& graph, std::span<std::byte* const> buffers,
                    Statistics& statistics) {
  if (count_ == 0) return;
  const int32_t last =
      *std::max_element(levels_.begin(), levels_.begin() + static_cast<ptrdiff_t>(count_));
  SharedDevice& shared = device();
  const std::lock_guard lock(shared.mutex);
  Device& device = *shared.device;
  device.wake();
  largest_workspace_ = 0;
  compile(0, graph, statistics);
  for (int32_t level = 0; level <= last; level++) {
    bind(level, buffers);
    bool prepared = level == last;
    for (size_t stage = 0; collect(level, stage) > 0; stage++) {
      const OpenStage open(device, tasks_);
      if (!prepared) compile(level + 1, graph, statistics);
      prepared = true;
      finish();
    }
    if (!prepared) compile(level + 1, graph, statistics);
  }
  statistics.kernels += static_cast<int64_t>(count_);
  if (workspace_.capacity() > 0) workspace_.reserve(largest_workspace_);
}

void Execution::compile(int32_t level, const Graph& graph, Statistics& statistics) {
  const int64_t start = now_ns();
  for (size_t kernel = 0; kernel < count_; kernel++) {
    if (levels_[kernel] != level || ready_[kernel] != 0) continue;
    compile(kernel, graph, Apart::if_needed);
  }
  statistics.compile_ns += now_ns() - start;
}

int Execution::compile_weighed(const Graph& graph, Statistics& statistics) {
  const int64_t start = now_ns();
  int refused = -1;
  for (size_t kernel = 0; kernel < count_ && refused < 0; kernel++) {
    if (!drafts_[kernel].plan.weighed) continue;
    if (needs_fallback(compile(kernel, graph, Apart::never))) refused = static_cast<int>(kernel);
    ready_[kernel] = 1;
  }
  statistics.compile_ns += now_ns() - start;
  return refused;
}

CompileStatus Execution::compile(size_t kernel, const Graph& graph, Apart apart) {
  const Draft& draft = drafts_[kernel];
  CompiledKernel& out = compiled_[kernel];
  infos_.clear();
  for (const int32_t value : draft.arguments) {
    const GraphValue& info = graph.values[static_cast<size_t>(value)];
    infos_.push_back(
        {info.dtype, info.shape.elements() * static_cast<int64_t>(size_of(info.dtype))});
  }
  const Target& target = device().device->target();
  CompileStatus status = CompileStatus::empty;
  try {
    status =
        compile_kernel(draft.plan, draft.dims.data(), infos_.data(), target, compiler_, out, apart);
  } catch (const std::logic_error& error) {  // an invariant of the compiler is broken
    throw CompileError(std::string("a kernel of a stream: ") + error.what());
  }
  const std::string complaint = verify_kernel(out, infos_.data(), infos_.size(), target);
  if (!complaint.empty()) {
    throw CompileError("a kernel of a stream was compiled to a bad program: " + complaint);
  }
  return status;
}

// The tables of buffers of a level, and its workspaces.
void Execution::bind(int32_t level, std::span<std::byte* const> buffers) {
  int64_t bytes = 0;
  const auto rounded = [](int64_t size) {
    return (size + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  };
  for (size_t kernel = 0; kernel < count_; kernel++) {
    if (levels_[kernel] != level) continue;
    if (__builtin_add_overflow(bytes, rounded(compiled_[kernel].workspace_bytes), &bytes)) {
      throw OutOfMemoryError("the workspaces of kernels need more than 2^63 bytes");
    }
  }
  if (bytes > 0) workspace_.grow(bytes);
  largest_workspace_ = std::max(largest_workspace_, bytes);
  first_buffer_.resize(count_);
  buffers_.clear();
  std::byte* workspace = workspace_.data();
  for (size_t kernel = 0; kernel < count_; kernel++) {
    if (levels_[kernel] != level) continue;
    const int64_t size = compiled_[kernel].workspace_bytes;
    for (int i = 0; i < kReservedBuffers; i++) buffers_.push_back(nullptr);
    first_buffer_[kernel] = buffers_.size();
    buffers_[buffers_.size() + kWorkspace] = size > 0 ? workspace : nullptr;
    if (size > 0) workspace += rounded(size);
    for (const int32_t value : drafts_[kernel].arguments) {
      buffers_.push_back(buffers[static_cast<size_t>(value)]);
    }
  }
}

// The tasks of a stage of a level's kernels; returns how many.
size_t Execution::collect(int32_t level, size_t stage) {
  tasks_.clear();
  const int cores = device().device->cores();
  for (size_t kernel = 0; kernel < count_; kernel++) {
    const CompiledKernel& compiled = compiled_[kernel];
    if (levels_[kernel] != level || stage >= compiled.stages.size()) continue;
    const CompiledKernel::Stage& part = compiled.stages[stage];
    for (uint32_t i = 0; i < part.program_count; i++) {
      const Program& program = compiled.programs[part.first_program + i];
      tasks_.push_back(task_of(program, buffers_.data() + first_buffer_[kernel], cores,
                               static_cast<uint32_t>(kernel)));
    }
  }
  return tasks_.size();
}

void Execution::finish() {
  const Trap trap = device().device->finish();
  if (trap.kind == TrapKind::none) return;
  ModelKernel kernel;
  kernel.plan.name = "stream";
  throw ExecutionError(trap_message(trap, kernel, *tasks_[trap.task].program));
}

}  // namespace dvm::stream
