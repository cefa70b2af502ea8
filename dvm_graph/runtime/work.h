// What a kernel has to do at given dims, however it is tiled: for a profile to hold time against.
#pragma once

#include <cstdint>

#include "kernels/plan.h"

namespace dvm {

struct KernelWork {
  int64_t matmul_flops = 0;  // 2 m n k for each entry of the batch
  // One for each result of an element-wise operator and each element that a reduction folds, of
  // whatever dtype and however costly.
  int64_t vector_flops = 0;
  // Of distinct elements in global memory: what moves if nothing is read or written twice.
  int64_t read_bytes = 0, written_bytes = 0;

  void add(const KernelWork& other, int64_t count = 1);  // overflowing sums saturate
};

// Overflowing counts saturate.
KernelWork work_of(const KernelPlan& plan, const int64_t* dims, const ValueInfo* values);

}  // namespace dvm
