// Structs whose fields are rows of a table, filled in from Python by name.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "vm/isa.h"

namespace dvm {

using Numbers = std::map<std::string, double>;
// Kind, name, unit, least, most, meaning.
using Field = std::tuple<std::string, std::string, std::string, double, double, std::string>;

// Raises ValueError for what is missing or unknown. What is out of bounds, npu/machine.py says.
class FieldSetter {
 public:
  explicit FieldSetter(const Numbers& numbers) : numbers_(numbers) {}

  template <class T>
  void set(const char* name, T& field) {
    if (!numbers_.contains(name)) {
      throw nanobind::value_error((std::string("there is no number for ") + name).c_str());
    }
    set_any(name, field);
  }

  // Where the number is missing, the field stays as it is.
  template <class T>
  void set_any(const char* name, T& field) {
    const auto found = numbers_.find(name);
    known_.insert(name);
    if (found != numbers_.end()) field = static_cast<T>(found->second);
  }

  void finish() const {
    for (const auto& [name, number] : numbers_) {
      if (!known_.contains(name)) throw nanobind::value_error(("unknown field " + name).c_str());
    }
  }

 private:
  const Numbers& numbers_;
  std::set<std::string> known_;
};

// Section cycles of a part: of instructions by name, 1 where nobody says.
inline std::array<double, kFamilies> cycles_of(const Numbers& numbers) {
  std::array<double, kFamilies> cycles;
  FieldSetter setter(numbers);
  for (int family = 0; family < kFamilies; ++family) {
    double& cost = cycles[static_cast<size_t>(family)];
    cost = 1;
    setter.set_any(name_of(static_cast<Family>(family)), cost);
  }
  setter.finish();
  return cycles;
}

}  // namespace dvm
