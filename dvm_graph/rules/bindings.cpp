// Python's way to the rules: meetings that answer in Python, by proof.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "rules/rules.h"

namespace nb = nanobind;

namespace dvm {
namespace {

nb::object checked(PyObject* reference) {
  if (reference == nullptr) throw nb::python_error();
  return nb::steal(reference);
}

// The names that are looked up at every meeting, interned.
struct Names {
#define DVM_NAME(name) PyObject* const name = PyUnicode_InternFromString(#name);
  DVM_NAME(producer)
  DVM_NAME(consumer)
  DVM_NAME(kind)
  DVM_NAME(operators)
  DVM_NAME(reduces)
  DVM_NAME(gathers)
  DVM_NAME(limits)
  DVM_NAME(reason)
  DVM_NAME(symbols)
  DVM_NAME(needs_memory)
  DVM_NAME(feeds_matrix)
  DVM_NAME(needs_buffer)
  DVM_NAME(detour)
  DVM_NAME(depends)
  DVM_NAME(accesses)
  DVM_NAME(sole_consumer)
  DVM_NAME(is_private)
  DVM_NAME(products)
  DVM_NAME(arithmetics)
  DVM_NAME(shares_rows)
  DVM_NAME(operand_width)
  DVM_NAME(merge)
  DVM_NAME(part)
  DVM_NAME(one_domain)
  DVM_NAME(same_domain)
  DVM_NAME(recomputes)
  DVM_NAME(rank)
  DVM_NAME(most_axes)
  DVM_NAME(feeds_reductions_only)
  DVM_NAME(reduces_rows)
  DVM_NAME(computes_rows)
  DVM_NAME(within_matrix)
  DVM_NAME(one_matrix)
#undef DVM_NAME
};

const Names& names() {
  static const Names* const all = new Names();
  return *all;
}

// The members of an enumeration of rules/space.py, in the order of their C++ namesakes.
template <size_t N>
struct Members {
  PyObject* objects[N];

  Members(const char* type, const char* const (&names)[N]) {
    const nb::object made = nb::module_::import_("dvm_graph.rules.space").attr(type);
    for (size_t i = 0; i < N; i++) objects[i] = nb::object(made.attr(names[i])).release().ptr();
  }
  size_t find(nb::handle object) const {
    for (size_t i = 0; i < N; i++) {
      if (objects[i] == object.ptr()) return i;
    }
    throw nb::type_error("an answer is no member of its enumeration");
  }
};

nb::object field(nb::handle object, PyObject* name) {
  return checked(PyObject_GetAttr(object.ptr(), name));
}

bool truth(nb::handle object) {
  const int answer = PyObject_IsTrue(object.ptr());
  if (answer < 0) throw nb::python_error();
  return answer == 1;
}

int64_t integer(nb::handle object) {
  const int64_t answer = PyLong_AsLongLong(object.ptr());
  if (answer == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return answer;
}

Part part_of(nb::handle object) {
  static const Members<4> kinds("PartKind", {"VIEW", "VECTOR", "CUBE", "HOST"});
  Part part;
  part.kind = static_cast<PartKind>(kinds.find(field(object, names().kind)));
  part.operators = integer(field(object, names().operators));
  part.reduces = truth(field(object, names().reduces));
  part.gathers = truth(field(object, names().gathers));
  return part;
}

class PythonMeeting final : public Meeting {
 public:
  explicit PythonMeeting(nb::handle meeting)
      : meeting_(meeting),
        producer_(part_of(field(meeting, names().producer))),
        consumer_(part_of(field(meeting, names().consumer))) {}

  const Part& producer() override { return producer_; }
  const Part& consumer() override { return consumer_; }
  const FusionLimits& limits() override {
    if (!knows_limits_) read_limits();
    return limits_;
  }

#define DVM_ASKED(type, name, convert) \
  type name() override { return convert(ask(names().name)); }
  DVM_ASKED(bool, needs_memory, truth)
  DVM_ASKED(bool, feeds_matrix, truth)
  DVM_ASKED(bool, needs_buffer, truth)
  DVM_ASKED(bool, depends, truth)
  DVM_ASKED(int64_t, accesses, integer)
  DVM_ASKED(bool, sole_consumer, truth)
  DVM_ASKED(bool, is_private, truth)
  DVM_ASKED(int64_t, products, integer)
  DVM_ASKED(int64_t, arithmetics, integer)
  DVM_ASKED(bool, shares_rows, truth)
  DVM_ASKED(int64_t, operand_width, integer)
  DVM_ASKED(bool, one_domain, truth)
  DVM_ASKED(bool, same_domain, truth)
  DVM_ASKED(bool, recomputes, truth)
  DVM_ASKED(int64_t, rank, integer)
  DVM_ASKED(int64_t, most_axes, integer)
  DVM_ASKED(bool, feeds_reductions_only, truth)
  DVM_ASKED(bool, reduces_rows, truth)
  DVM_ASKED(bool, computes_rows, truth)
  DVM_ASKED(bool, within_matrix, truth)
  DVM_ASKED(bool, one_matrix, truth)
#undef DVM_ASKED

  bool has_detour() override { return truth(ask(names().detour)); }
  std::string detour() override { return nb::cast<std::string>(ask(names().detour)); }

  Merge merge() override {
    static const Members<3> merges("Merge", {"YES", "NO", "UNKNOWN"});
    proof_ = ask(names().merge);
    return static_cast<Merge>(merges.find(field(proof_, names().merge)));
  }
  void part() override { ask(names().part); }
  std::string merge_reason() override {
    return nb::cast<std::string>(field(proof_, names().reason));
  }

  // Names of the symbols that the proof hung on, if there was one.
  nb::object symbols() const {
    return proof_.is_valid() ? field(proof_, names().symbols) : nb::object(nb::tuple());
  }

 private:
  nb::object ask(PyObject* question) const {
    PyObject* const self = meeting_.ptr();
    return checked(PyObject_VectorcallMethod(question, &self, 1, nullptr));
  }

  void read_limits() {
    const nb::object given = field(meeting_, names().limits);
    const auto read = [&](const char* name, auto& value) {
      const nb::object number = given.attr(name);
      if constexpr (std::is_same_v<decltype(value), bool&>) {
        value = truth(number);
      } else {
        value = integer(number);
      }
    };
#define DVM_LIMIT(type, name) read(#name, limits_.name);
#include "rules/limits.def"
    knows_limits_ = true;
  }

  const nb::handle meeting_;
  const Part producer_, consumer_;
  FusionLimits limits_;
  bool knows_limits_ = false;
  nb::object proof_;
};

nb::tuple judge_python(nb::handle object, const std::string& pattern) {
  const PatternName name = pattern_from_name(pattern);
  if (name == PatternName::none && !pattern.empty()) {
    throw nb::value_error(("no pattern named " + pattern).c_str());
  }
  PythonMeeting meeting(object);
  const Ruling ruling = judge(meeting, name);
  constexpr const char* verdicts[] = {"pattern", "speculate", "sequence"};
  return nb::make_tuple(verdicts[static_cast<int>(ruling.verdict)], reason_of(ruling, meeting),
                        meeting.symbols());
}

}  // namespace

void bind_rules(nb::module_& module) {
  module.def("judge", &judge_python, nb::arg("meeting"), nb::arg("pattern"),
             "Verdict, reason and symbols; by the pattern of the kinds where none is named.");
}

}  // namespace dvm
