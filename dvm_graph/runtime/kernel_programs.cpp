#include "runtime/kernel_programs.h"

#include <algorithm>

#include "runtime/errors.h"
#include "runtime/plan_dims.h"
#include "vm/resize.h"
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
    const DistinctKernel& kernel = table_.kernels[i];
    entries_[i].dims.resize(kernel.fixed.size());
    entries_[i].strides.resize(kernel.fixed_strides.size());
    entries_[i].extents.resize(kernel.open.size());
    entries_[i].room.resize(kernel.open.size());
  }
}

bool KernelPrograms::is_current(uint32_t call, const Dims& dims, const ValueInfo* values) const {
  const Entry& known = entry(call);
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  if (!known.valid || !has_same_dims(call, dims)) return false;
  for (size_t axis = 0; axis < distinct.open.size(); axis++) {
    if (distinct.open[axis] == 0) continue;
    if (known.extents[axis] != dims.values()[distinct.plan.extents[axis]]) return false;
  }
  const std::vector<Argument>& arguments = bound(call).arguments;
  for (size_t i = 0; i < arguments.size(); i++) {
    const Argument& argument = arguments[i];
    const int64_t bytes = argument.info(dims.values(), values).bytes;
    if (argument.offset == kNoSlot ? bytes != known.bytes[i]
                                   : !dims.ok(argument.offset) || bytes < known.bytes[i]) {
      return false;
    }
  }
  return true;
}

// But for extents along open axes and for sizes of arguments.
bool KernelPrograms::has_same_dims(uint32_t call, const Dims& dims) const {
  const Entry& known = entry(call);
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  for (size_t i = 0; i < distinct.fixed.size(); i++) {
    if (known.dims[i] != dims.values()[distinct.fixed[i]]) return false;
  }
  for (size_t i = 0; i < distinct.fixed_strides.size(); i++) {
    const auto [stride, extent] = distinct.fixed_strides[i];
    if (dims.values()[extent] == 1 && !is_open(distinct, extent) && dims.ok(stride)) continue;
    if (known.strides[i] != dims.values()[stride]) return false;
  }
  return true;
}

bool KernelPrograms::is_open(const DistinctKernel& kernel, DimSlot extent) {
  for (size_t axis = 0; axis < kernel.open.size(); axis++) {
    if (kernel.open[axis] != 0 && kernel.plan.extents[axis] == extent) return true;
  }
  return false;
}

bool KernelPrograms::has_room(uint32_t call, const Dims& dims) const {
  const Entry& known = entry(call);
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  if (!known.valid || !known.resizes || !has_same_dims(call, dims)) return false;
  for (size_t axis = 0; axis < distinct.open.size(); axis++) {
    if (distinct.open[axis] == 0) continue;
    const int64_t extent = dims.values()[distinct.plan.extents[axis]];
    if (extent <= 0 || room_for(extent) != known.room[axis]) return false;
  }
  return std::ranges::all_of(bound(call).arguments, [&](const Argument& argument) {
    return argument.offset == kNoSlot || dims.ok(argument.offset);
  });
}

bool KernelPrograms::compile(uint32_t call, const Dims& dims, const ValueInfo* values,
                             CompilerScratch& scratch) {
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  Entry& made = entries_[bound(call).kernel];
  const bool resizes = has_room(call, dims);
  made.valid = false;
  arguments_.clear();
  for (const Argument& argument : bound(call).arguments) {
    arguments_.push_back(argument.info(dims.values(), values));
    if (argument.offset != kNoSlot) (void)dims.at(argument.offset, name_of(call));
  }
  const bool done = resizes && resize(call, dims);
  if (!done) {
    if (!has_same_dims(call, dims)) made.wants_extents = false;
    remember_dims(call, dims);
    if (!compile_with_room(call, dims, scratch)) {
      made.status = compile_plan(distinct.plan, name_of(call), dims, arguments_.data(), target_,
                                 scratch, made.compiled, distinct.apart);
      require_sound(call);
    }
  }
  for (size_t axis = 0; axis < distinct.open.size(); axis++) {
    made.extents[axis] = dims.values()[distinct.plan.extents[axis]];
  }
  made.bytes.clear();
  for (size_t i = 0; i < arguments_.size(); i++) {
    made.bytes.push_back(bound(call).arguments[i].offset == kNoSlot
                             ? arguments_[i].bytes
                             : bytes_reached(made.compiled, static_cast<int64_t>(i)));
  }
  made.valid = true;
  return !done;
}

void KernelPrograms::remember_dims(uint32_t call, const Dims& dims) {
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  Entry& made = entries_[bound(call).kernel];
  for (size_t i = 0; i < distinct.fixed.size(); i++) {
    made.dims[i] = dims.at(distinct.fixed[i], name_of(call));
  }
  for (size_t i = 0; i < distinct.fixed_strides.size(); i++) {
    made.strides[i] = dims.at(distinct.fixed_strides[i].stride, name_of(call));
  }
  for (size_t axis = 0; axis < distinct.open.size(); axis++) {
    (void)dims.at(distinct.plan.extents[axis], name_of(call));
  }
}

// False: the kernel has no open axis, or programs rather for the extents there are.
bool KernelPrograms::compile_with_room(uint32_t call, const Dims& dims, CompilerScratch& scratch) {
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  Entry& made = entries_[bound(call).kernel];
  made.resizes = false;
  bool same = made.wants_extents, any = false;
  for (size_t axis = 0; axis < distinct.open.size(); axis++) {
    if (distinct.open[axis] == 0) continue;
    const int64_t extent = dims.values()[distinct.plan.extents[axis]];
    if (extent <= 0) return false;
    const int64_t room = room_for(extent);
    same &= made.room[axis] == room;
    made.room[axis] = room;
    any = true;
  }
  if (!any || same) return false;
  made.status = compile_plan(distinct.plan, name_of(call), dims, arguments_.data(), target_,
                             scratch, made.compiled, distinct.apart, made.room.data());
  made.wants_extents = made.status == CompileStatus::wants_extents;
  return !made.wants_extents && resize(call, dims);
}

// False: the programs are not sound at these extents.
bool KernelPrograms::resize(uint32_t call, const Dims& dims) {
  const DistinctKernel& distinct = table_.kernels[bound(call).kernel];
  Entry& made = entries_[bound(call).kernel];
  dvm::resize(made.compiled, distinct.plan, dims.values(), target_);
  return made.resizes = complaint_of(call).empty();
}

void KernelPrograms::forget() {
  for (Entry& entry : entries_) entry.valid = entry.wants_extents = false;
}

std::string KernelPrograms::complaint_of(uint32_t call) const {
  return verify_kernel(compiled(call), arguments_.data(), arguments_.size(), target_);
}

void KernelPrograms::require_sound(uint32_t call) const {
  const std::string complaint = complaint_of(call);
  if (complaint.empty()) return;
  throw CompileError("kernel " + name_of(call) + " was compiled to a bad program: " + complaint);
}

}  // namespace dvm
