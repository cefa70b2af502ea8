// Operators that the host carries out between kernels, because their sizes are known only once
// their data is (NonZero, TopK and their kin), because only their data tells where elements go
// (MaxUnpool, ScatterElements), because each number takes the one before (CumSum), or because they
// are about sequences and optional values (sequence.h) or strings (texts.h). Each is a function in
// a file of its own, listed in host_operator.cpp under the name of its ONNX operator.
//
// Operands and results are those of the ONNX operator, attributes integers in the order that the
// function's file says. Results are contiguous, and their sizes bind symbols behind the call.
//
// A function runs on the calling thread, and hands out to the device's cores what it can do in
// pieces (`HostFrame::spread`). It throws ShapeError on operands that contradict each other,
// InputError on contents that the operator does not take, CompileError where it is called with
// other arguments and operands than it has, which only a damaged file has it do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/memory.h"
#include "runtime/output_pool.h"
#include "runtime/sequence.h"
#include "runtime/tensor.h"
#include "runtime/texts.h"

namespace dvm {

struct SharedDevice;

// Does the units [first, end) of something, as one of so many that do so at the same time.
using Piece = std::function<void(int64_t first, int64_t end, int64_t slot)>;

// What a function is called with.
class HostFrame {
 public:
  // `operands` and `results` have an entry for each that the operator has; absent are operands that
  // are omitted. `spent` says which operands nobody reads again, `wanted` which results anybody
  // reads.
  HostFrame(const std::string& name, std::span<const int64_t> arguments, const Tensor& words,
            std::span<const Tensor> operands, std::span<const char> spent,
            std::span<const char> wanted, std::span<Tensor> results, OutputPool& pool,
            Arena& scratch, SharedDevice& device)
      : name(name),
        arguments_(arguments),
        words_(words),
        operands_(operands),
        spent_(spent),
        wanted_(wanted),
        results_(results),
        pool_(pool),
        scratch_(scratch),
        device_(device) {}

  const std::string& name;  // for messages

  size_t arguments() const { return arguments_.size(); }
  size_t operands() const { return operands_.size(); }
  bool has(size_t operand) const {
    return operand < operands_.size() && !operands_[operand].absent();
  }
  // Throws CompileError where there is none.
  const Tensor& operand(size_t index) const;
  // Throws CompileError where its elements have another size.
  template <class T>
  const T* data(size_t index) const {
    return reinterpret_cast<const T*>(operand_of(index, sizeof(T)).data);
  }
  // The one element of an operand. Throws ShapeError where it has others.
  template <class T>
  T scalar(size_t operand) const {
    require_one(operand);
    return *data<T>(operand);
  }

  // The one element of an operand of int32 or int64, and all of one. Throw as `scalar` and `data`.
  int64_t integer(size_t operand) const;
  std::vector<int64_t> integers(size_t operand) const;
  // Throws InputError where the operand is none.
  const Sequence& sequence(size_t operand) const;
  // Throws CompileError where the operand is none.
  const Texts& texts(size_t operand) const;
  // An operand, whatever it is, for longer than the call: tensors own their memory, if by a copy.
  Tensor keep(size_t operand);

  // Throw CompileError where there is no such argument, or no such axis of an operand.
  int64_t argument(size_t index) const;
  // What is known of words, if anything is; as what was made of them.
  const Tensor& words() const { return words_; }
  template <class T>
  const T& known() const {
    return *static_cast<const T*>(knowledge());
  }
  size_t axis(size_t argument, size_t rank) const;

  bool wants(size_t result) const { return result < wanted_.size() && wanted_[result] != 0; }
  // Memory for a result, and for `beyond` bytes behind it that may be written. Throws ShapeError,
  // OutOfMemoryError. Null where nobody reads it.
  std::byte* give(size_t result, DType dtype, std::vector<int64_t> shape, int64_t beyond = 0);
  template <class T>
  T* give(size_t result, DType dtype, std::vector<int64_t> shape) {
    return reinterpret_cast<T*>(give(result, dtype, std::move(shape)));
  }

  // A result that begins as what an operand is: in its place, if nobody reads that again. Throws as
  // `give`.
  template <class T>
  T* give_over(size_t result, size_t operand) {
    return reinterpret_cast<T*>(give_over_bytes(result, operand));
  }

  // A result that is there already.
  void give_value(size_t result, Tensor value);
  // A tensor with memory of its own.
  Tensor fresh(DType dtype, std::vector<int64_t> shape, int64_t beyond = 0);

  // Memory until the function returns; asked for once. Throws OutOfMemoryError.
  std::byte* scratch(int64_t bytes);

  // Does units that know nothing of each other, piece by piece, on the cores of the device; on the
  // caller alone where they are few. `unit` is how many elements one goes over. Pieces must not
  // throw.
  void spread(int64_t units, int64_t unit, const Piece& piece);
  // As many slots as pieces may have.
  int64_t slots() const;

 private:
  std::byte* give_over_bytes(size_t result, size_t operand);
  void require_one(size_t operand) const;
  const void* knowledge() const;
  const Tensor& operand_of(size_t index, size_t element_bytes) const;

  const std::span<const int64_t> arguments_;
  const Tensor& words_;
  const std::span<const Tensor> operands_;
  const std::span<const char> spent_;
  const std::span<const char> wanted_;
  const std::span<Tensor> results_;
  OutputPool& pool_;
  Arena& scratch_;
  SharedDevice& device_;
};

using HostFunction = void (*)(HostFrame&);

// By the name of the ONNX operator; null: there is none.
HostFunction find_host_function(std::string_view op);

// What such an operator is to know besides its operands, made once of words and arguments; absent
// where that is nothing. Throws CompileError where they do not fit.
Tensor known_by(std::string_view op, std::vector<std::string> words,
                std::span<const int64_t> arguments);

// In the order of their names.
std::vector<std::string> host_operators();

int64_t elements_of(std::span<const int64_t> shape);

// A tensor seen as [before, extent, behind] around an axis.
struct AroundAxis {
  int64_t before, extent, behind;
  AroundAxis(std::span<const int64_t> shape, size_t axis);
};

}  // namespace dvm
