// The message of a trap: what failed, where, and the disassembly around it.
#pragma once

#include <string>

#include "runtime/model.h"
#include "vm/core.h"
#include "vm/program.h"

namespace dvm {

std::string trap_message(const Trap& trap, const ModelKernel& kernel, const Program& program);

}  // namespace dvm
