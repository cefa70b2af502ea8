#include "runtime/kernel_programs.h"

#include "runtime/errors.h"
#include "runtime/plan_dims.h"
#include "vm/verify.h"

namespace dvm {

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
        known.left[at++] != argument.info(dims.values(), values).bytes) {
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
  made.left.clear();
  for (const Argument& argument : bound(call).arguments) {
    arguments_.push_back(argument.info(dims.values(), values));
    if (argument.offset == kNoSlot) continue;
    (void)dims.at(argument.offset, name_of(call));
    made.left.push_back(arguments_.back().bytes);
  }
  made.status = compile_plan(distinct.plan, name_of(call), dims, arguments_.data(), target_,
                             scratch, made.compiled, distinct.apart);
  verify_programs(call);
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
