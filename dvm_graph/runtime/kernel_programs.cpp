#include "runtime/kernel_programs.h"

#include <algorithm>

#include "runtime/errors.h"
#include "runtime/plan_dims.h"
#include "vm/verify.h"

namespace dvm {
namespace {

// From where an argument begins to behind the last byte of it that programs may touch.
int64_t bytes_reached(const CompiledKernel& compiled, int64_t argument) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < compiled.program_count; i++) {
    for (const PointerRegister& pointer : compiled.programs[i].pointers()) {
      if (pointer.buffer == argument) bytes = std::max(bytes, pointer.high);
    }
  }
  return bytes;
}

}  // namespace

KernelPrograms::KernelPrograms(const Model& model, const Target& target)
    : model_(model),
      target_(target),
      table_(make_kernel_table(model)),
      entries_(table_.kernels.size()) {
  for (size_t i = 0; i < entries_.size(); i++) {
    entries_[i].dims.resize(table_.kernels[i].slots.size());
    entries_[i].strides.resize(table_.kernels[i].strides.size());
  }
}

bool KernelPrograms::is_current(uint32_t call, const Dims& dims, const ValueInfo* values) const {
  const Entry& known = entry(call);
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  if (!known.valid) return false;
  for (size_t i = 0; i < distinct.slots.size(); i++) {
    if (known.dims[i] != dims.values()[distinct.slots[i]]) return false;
  }
  for (size_t i = 0; i < distinct.strides.size(); i++) {
    const auto [stride, extent] = distinct.strides[i];
    if (dims.values()[extent] == 1 && dims.ok(stride)) continue;
    if (known.strides[i] != dims.values()[stride]) return false;
  }
  size_t at = 0;
  for (const Argument& argument : bound(call).arguments) {
    if (argument.offset == kNoSlot) continue;
    if (!dims.ok(argument.offset) ||
        argument.info(dims.values(), values).bytes < known.reached[at++]) {
      return false;
    }
  }
  return true;
}

void KernelPrograms::compile(uint32_t call, const Dims& dims, const ValueInfo* values,
                             CompilerScratch& scratch) {
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  Entry& made = entries_[bound(call).kernel];
  made.valid = false;
  for (size_t i = 0; i < distinct.slots.size(); i++) {
    made.dims[i] = dims.at(distinct.slots[i], name_of(call));
  }
  for (size_t i = 0; i < distinct.strides.size(); i++) {
    made.strides[i] = dims.at(distinct.strides[i].stride, name_of(call));
  }
  arguments_.clear();
  for (const Argument& argument : bound(call).arguments) {
    arguments_.push_back(argument.info(dims.values(), values));
    if (argument.offset != kNoSlot) (void)dims.at(argument.offset, name_of(call));
  }
  made.status = compile_plan(distinct.plan, name_of(call), dims, arguments_.data(), target_,
                             scratch, made.compiled, distinct.apart);
  verify_programs(call);
  made.reached.clear();
  for (size_t i = 0; i < arguments_.size(); i++) {
    if (bound(call).arguments[i].offset == kNoSlot) continue;
    made.reached.push_back(bytes_reached(made.compiled, static_cast<int64_t>(i)));
  }
  made.valid = true;
}

void KernelPrograms::forget() {
  for (Entry& entry : entries_) entry.valid = false;
}

void KernelPrograms::verify_programs(uint32_t call) const {
  const std::string complaint =
      verify_kernel(compiled(call), arguments_.data(), arguments_.size(), target_);
  if (complaint.empty()) return;
  throw CompileError("kernel " + name_of(call) + " was compiled to a bad program: " + complaint);
}

}  // namespace dvm
