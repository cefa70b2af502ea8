// The reference device: every instruction as plain loops over elements. The oracle for fast
// devices, and what programs run on when only the compiler is under test.
#pragma once

#include "vm/core.h"

namespace dvm::reference {

inline constexpr int kColumnsPerPanel = 8;  // f32; f64 half of it

const InstructionTable& device();

}  // namespace dvm::reference
