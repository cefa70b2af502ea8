// A model as the executor sees it: kernel plans, values and the order of steps. Mirrors ModelPlan
// of kernels/plan.py. Shape-generic and immutable once `check_model` has passed it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/plan.h"
#include "runtime/dims.h"
#include "runtime/host_ops/host_operator.h"
#include "runtime/tensor.h"
#include "vm/compile.h"

namespace dvm {

enum class Storage : uint8_t { input, output, constant, panels, arena, vendor };

struct ModelValue {
  std::string name;
  DType dtype = DType::f32;
  bool opaque = false;  // strings, sequences, of unknown rank: kernels do not touch it
  Storage storage = Storage::arena;
  std::vector<DimSlot> shape;
  std::vector<DimSlot> room;  // extents of its memory; none: the shape
  Tensor contents;            // constants and panels

  const std::vector<DimSlot>& held() const { return room.empty() ? shape : room; }
};

struct ModelKernel {
  KernelPlan plan;
  std::vector<std::string> origin;  // names of ONNX nodes
  Apart apart = Apart::if_needed;   // never: its call has a fallback
};

// A kernel to launch. Where the guard's value is 0 or the kernel does not fit the device, the
// `fallback` calls run instead, one after the other.
struct KernelCall {
  uint32_t kernel = 0;
  DimSlot guard = kNoSlot;
  std::vector<uint32_t> fallback;  // indices into Model::calls
};

// Calls that run side by side.
struct LaunchStage {
  std::vector<uint32_t> calls;
  bool follows = false;  // in one launch with the stage before
};

// A step of its own, between launches. What it gives may bind symbols.
struct OuterCall {
  std::vector<uint32_t> inputs, outputs;
  std::string name;  // its operators and ONNX nodes
};

struct VendorCall : OuterCall {
  uint32_t partition = 0;  // what VendorLibrary::run is given
};

class Executor;

// A body of a control-flow operator: a program of its own, whose dims may rest on those around it.
struct Body {
  std::shared_ptr<const Executor> program;
  std::vector<std::pair<uint32_t, DimSlot>> dims;  // its symbols, and the slots that they equal
};

// An If, whose first input is the condition and whose bodies are the branches, or a Loop or Scan,
// whose one body runs turn by turn (runtime/control.h).
struct ControlCall : OuterCall {
  // Of all turns, maybe of the first one, and maybe a prelude; or branches.
  std::vector<Body> bodies = {};
  bool branches = false;
  // Of what runs in turns:
  bool counted = false;  // the body reads turn and condition, and says whether to go on
  int32_t most_turns = -1, goes_on = -1;  // inputs; -1: as many as it takes, and true
  uint32_t states = 0;                    // carried from turn to turn
  // An entry for each; whether it is from the last row on.
  std::vector<char> scanned = {}, collected = {};
  uint32_t kept = 0;  // results of the prelude, which other bodies read behind all else; 0: none
  // Of the body: the extent of axes, behind others of 1, whose elements have nothing to do with
  // each other.
  DimSlot strands = kNoSlot;

  // Inputs that are no body's: how many turns there may be, and whether to go on.
  size_t own_inputs() const { return (most_turns >= 0) + (goes_on >= 0); }
  // Inputs of a body that a turn tells it: its number, and whether to go on.
  size_t told() const { return counted ? 2 : 0; }
  // The input of a body from which on it reads what lies around the loop.
  size_t captures() const { return told() + states + scanned.size(); }
  // Bodies of turns: the prelude is none.
  size_t turn_bodies() const { return bodies.size() - (kept > 0); }
  // Results of a body that tell the loop something: whether to go on.
  size_t said() const { return counted ? 1 : 0; }

  // What stands before names of kernels in a body: "If (r) body 0/".
  std::string inside(size_t body) const { return name + " body " + std::to_string(body) + "/"; }
};

// An operator that the host carries out (runtime/host_ops).
struct HostCall : OuterCall {
  HostFunction function = nullptr;
  std::vector<int64_t> arguments = {};
  Tensor words = {};  // an opaque value, or absent
  // Of each operand and result that the operator has, whether it is among the call's.
  std::vector<char> given = {}, wanted = {};
};

struct DimsWrite {
  uint32_t value = 0;
  std::vector<DimSlot> slots;
};

using Step = std::variant<LaunchStage, VendorCall, ControlCall, HostCall, DimsWrite>;

// The call that a step is, or null.
inline const OuterCall* outer_call(const Step& step) {
  if (const auto* vendor = std::get_if<VendorCall>(&step)) return vendor;
  if (const auto* host = std::get_if<HostCall>(&step)) return host;
  return std::get_if<ControlCall>(&step);
}

// `symbol * scale + shift` is the extent of an axis of a value: a model input or a vendor's result.
struct SymbolBinding {
  uint32_t symbol = 0, value = 0, axis = 0;
  int64_t scale = 1, shift = 0;
};

// An assumption of the compiler: the slot's value must not be 0.
struct DimCheck {
  DimSlot condition = kNoSlot;
  std::string message;
};

// Values of a body whose rows may lie further apart than they are long (runtime/spaced_rows.h).
struct SpacedRows {
  // Who decides how far: what a state that turns append to has room for, where a turn before has
  // put a state, or how long the rows are.
  enum class By : uint8_t { room, place, length };
  struct Value {
    uint32_t value = 0;
    size_t axis = 0;        // what lies behind one index of the axes before it is a row
    DimSlot row = kNoSlot;  // elements of one
  };
  // How a kernel accesses one where they do not.
  struct Touch {
    Access access;  // of a gather: with one more axis, that which it gathers along
    std::vector<DimSlot> extents;
    DimSlot row;  // elements of a row of what is accessed
  };

  By by = By::length;
  uint32_t symbol = 0;        // elements from row to row; 0 or fewer than a row has: those
  std::vector<Value> values;  // by room: the state, and what a turn makes of it
  std::vector<Touch> touches;
};

struct Model {
  DimTable dims;
  std::vector<ModelValue> values;
  std::vector<ModelKernel> kernels;
  std::vector<KernelCall> calls;
  std::vector<Step> steps;  // launches with several stages are several steps
  std::vector<SymbolBinding> bindings;
  std::vector<DimCheck> checks;
  std::vector<uint32_t> inputs, outputs;
  std::vector<SpacedRows> spaced;
  // By slot: whether its value is another from turn to turn of a loop that runs this; empty: none's
  // is.
  std::vector<char> growing;
};

// Throws CompileError where an index of the model points nowhere or a step breaks its contract.
void check_model(const Model& model);

}  // namespace dvm
