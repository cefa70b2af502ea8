// What can go wrong at a run. Each class has its Python namesake in dvm_graph/errors.py.
#pragma once

#include <stdexcept>

namespace dvm {

// An input (or a given output array) is missing, unknown, or of a wrong dtype, rank or layout.
class InputError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Dims contradict each other.
class ShapeError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Inputs of a run do, in dims that the model gives one name, or a result has another rank than is
// declared.
class ContradictionError : public ShapeError {
  using ShapeError::ShapeError;
};

// The run needs more memory than there is.
class OutOfMemoryError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A kernel trapped, or a vendor operator failed.
class ExecutionError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The run was ended by who may end it.
class CancelledError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A model holds what this machine does not run.
class UnsupportedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The compiler broke one of its own invariants.
class CompileError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace dvm
