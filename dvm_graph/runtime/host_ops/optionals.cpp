// Optional values, which are what they hold, or nothing.
//
//   Optional              no arguments. Its operand, or nothing.
//   OptionalGetElement    no arguments. What it holds.
//   OptionalHasElement    no arguments
#include "runtime/errors.h"
#include "runtime/host_ops/functions.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/sequence.h"

namespace dvm {

void optional(HostFrame& frame) { frame.give_value(0, frame.has(0) ? frame.keep(0) : no_value()); }

void optional_get_element(HostFrame& frame) {
  if (frame.operand(0).kind == ValueKind::none) {
    throw InputError(frame.name + ": the optional value holds nothing");
  }
  frame.give_value(0, frame.keep(0));
}

void optional_has_element(HostFrame& frame) {
  const bool has = frame.operand(0).kind != ValueKind::none;
  if (auto* const out = frame.give<bool>(0, DType::b8, {})) *out = has;
}

}  // namespace dvm
