#include "runtime/compile_times.h"

#include <algorithm>

#include "runtime/clock.h"
#include "runtime/kernel_table.h"
#include "runtime/plan_dims.h"
#include "runtime/value_sizes.h"
#include "vm/verify.h"

namespace dvm {

std::vector<CompileTime> compile_times(const Model& model, const Dims& dims, const Target& target,
                                       int repeats) {
  const KernelTable table = make_kernel_table(model);
  std::vector<ValueInfo> infos, arguments;
  measure_values(model, dims, infos);
  CompilerScratch scratch;
  CompiledKernel compiled;
  std::vector<char> seen(table.kernels.size());
  std::vector<int64_t> times;
  std::vector<CompileTime> result;
  for (size_t i = 0; i < model.kernels.size(); i++) {
    const BoundKernel& bound = table.bound[i];
    const DistinctKernel& kernel = table.kernels[bound.kernel];
    if (seen[bound.kernel]++ != 0) continue;
    if (!std::all_of(kernel.slots.begin(), kernel.slots.end(),
                     [&](DimSlot slot) { return dims.ok(slot); }) ||
        !std::ranges::all_of(kernel.strides,
                             [&](const StrideSlot& slot) { return dims.ok(slot.stride); })) {
      continue;
    }
    arguments.clear();
    for (const Argument& argument : bound.arguments) {
      arguments.push_back(argument.info(dims.values(), infos.data()));
    }
    const std::string& name = model.kernels[i].plan.name;
    times.clear();
    for (int round = 0; round < std::max(repeats, 1); round++) {
      const int64_t start = now_ns();
      compile_plan(kernel.plan, name, dims, arguments.data(), target, scratch, compiled,
                   kernel.apart);
      verify_kernel(compiled, arguments.data(), arguments.size(), target);
      times.push_back(now_ns() - start);
    }
    CompileTime& time = result.emplace_back(CompileTime{name, times[0], 0, 0});
    std::sort(times.begin(), times.end());
    time.median_ns = times[times.size() / 2];
    time.least_ns = times[0];
  }
  return result;
}

}  // namespace dvm
