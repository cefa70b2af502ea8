#include "vm/workspace.h"

#include "kernels/numbers.h"
#include "vm/program.h"
#include "vm/target.h"

namespace dvm {

NormalAccess take_workspace(const NormalPlan& plan, uint32_t axes, DType dtype, int64_t& used,
                            int64_t pieces) {
  NormalAccess place;
  place.value = kWorkspace;
  place.storage = dtype;
  place.element_bytes = static_cast<int64_t>(size_of(dtype));
  place.offset = used / place.element_bytes;
  int64_t volume = 1;
  for (int axis = plan.rank - 1; axis >= 0; --axis) {
    if (!(axes & bit(axis))) continue;
    place.strides[axis] = volume;
    volume *= plan.extents[axis];
  }
  used += aligned(volume * pieces * place.element_bytes);
  return place;
}

}  // namespace dvm
