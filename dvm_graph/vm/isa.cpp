#include "vm/isa.h"

namespace dvm {
namespace {

constexpr const char* kNames[] = {
#define DVM_INSN(name, queue, form, dtypes, meaning) #name,
#include "vm/isa.def"
#undef DVM_INSN
};

}  // namespace

const char* name_of(Family family) { return kNames[static_cast<int>(family)]; }

}  // namespace dvm
