#include "vm/isa.h"

namespace dvm {
namespace {

namespace lists = dtype_list;

constexpr FamilyInfo kFamilyTable[] = {
#define DVM_INSN(name, unit, form, dtypes, meaning) \
  {#name, Unit::unit, Form::form, lists::dtypes, meaning},
#include "vm/isa.def"
#undef DVM_INSN
};

}  // namespace

const FamilyInfo& info_of(Family family) { return kFamilyTable[static_cast<int>(family)]; }

}  // namespace dvm
