// Records of kernel plans as Python hands them over: sequences of the fields of a table in
// kernels/plan.def, in its order. A name stands for an operator or a dtype; none, for a dtype that
// is left as it is.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/plan.h"
#include "runtime/bindings_values.h"
#include "runtime/errors.h"

namespace dvm {

template <typename Enum, size_t N>
Enum from_name(const char* const (&names)[N], const std::string& name, const char* what) {
  for (size_t i = 0; i < N; i++) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  throw CompileError(std::string("unknown ") + what + " " + name);
}

inline DType dtype_from_name(const std::string& name) {
  for (int i = 0; i < kDTypes; i++) {
    if (name == name_of(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  throw CompileError("unknown dtype " + name);
}

// The next field of a record.
class RecordReader {
 public:
  explicit RecordReader(nanobind::handle record, Py_ssize_t fields) : record_(record) {
    if (PySequence_Size(record.ptr()) != fields) {
      throw nanobind::value_error("a record of a plan has another number of fields");
    }
  }

  void read(PlanOp& op) { op = plan_op_from_name(next<std::string>()); }
  void read(DType& dtype) {
    const auto name = next<std::string>();
    if (!name.empty()) dtype = dtype_from_name(name);
  }
  template <size_t N>
  void read(int32_t (&inputs)[N]) {
    const auto given = next<std::vector<int32_t>>();
    if (given.size() > N) throw CompileError("a plan node has too many operands");
    std::copy(given.begin(), given.end(), inputs);
  }
  template <typename T>
  void read(T& field) {
    field = next<T>();
  }

 private:
  template <typename T>
  T next() {
    return From<T>::python(checked(PySequence_GetItem(record_.ptr(), at_++)));
  }

  nanobind::handle record_;
  Py_ssize_t at_ = 0;
};

inline constexpr const char* kNodeFields[] = {
#define DVM_NODE_FIELD(type, name) #name,
#include "kernels/plan.def"
};
inline constexpr const char* kAccessFields[] = {
#define DVM_ACCESS_FIELD(type, name) #name,
#include "kernels/plan.def"
};
inline constexpr const char* kWindowFields[] = {
#define DVM_WINDOW_SIZE(name) #name,
#include "kernels/plan.def"
};

static_assert(std::size(kWindowFields) == kWindowSizes);

template <>
struct From<PlanNode> {
  static PlanNode python(nanobind::handle object) {
    RecordReader fields(object, std::ssize(kNodeFields));
    PlanNode node;
#define DVM_NODE_FIELD(type, name)                          \
  static_assert(std::is_same_v<decltype(node.name), type>); \
  fields.read(node.name);
#include "kernels/plan.def"
    return node;
  }
};

template <>
struct From<Access> {
  static Access python(nanobind::handle object) {
    RecordReader fields(object, std::ssize(kAccessFields));
    Access access;
#define DVM_ACCESS_FIELD(type, name)                          \
  static_assert(std::is_same_v<decltype(access.name), type>); \
  fields.read(access.name);
#include "kernels/plan.def"
    return access;
  }
};

}  // namespace dvm
