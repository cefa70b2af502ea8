// Python's way to the model of this machine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "npu/host/levels.h"
#include "npu/host/machine.h"
#include "npu/host/rates.h"
#include "vm/bindings.h"

namespace nb = nanobind;

namespace dvm {
namespace {

Machine machine_of(const std::string& name, const Numbers& numbers) {
  Machine machine;
  machine.name = name;
  FieldSetter setter(numbers);
#define DVM_CACHE(name, unit, least, most, meaning) setter.set(#name, machine.caches.name);
#include "npu/host/machine.def"
#define DVM_COST(name, unit, least, most, meaning) setter.set(#name, machine.costs.name);
#include "vm/target.def"
  setter.finish();
  return machine;
}

std::map<std::string, double> rates(int cores, const std::string& simd, const Machine& machine) {
  const InstructionTable* const table = table_by_name(simd);
  if (table == nullptr || cores <= 0) {
    throw nb::value_error("cores must be positive, and the level one of simd_levels()");
  }
  Costs costs;
  {
    const nb::gil_scoped_release unlock;
    costs = measure_rates(cores, *table, machine.caches);
  }
  std::map<std::string, double> measured;
#define DVM_COST(name, unit, least, most, meaning) \
  if (costs.name > 0) measured[#name] = costs.name;
#include "vm/target.def"
  return measured;
}

}  // namespace

void bind_machine(nb::module_& module) {
  nb::class_<Machine>(module, "Machine", "See npu/host/machine.h.")
      .def("__init__", [](Machine* machine, const std::string& name, const Numbers& numbers) {
        new (machine) Machine(machine_of(name, numbers));
      });
  module.def(
      "cache_fields",
      [] {
        std::vector<Field> fields;
#define DVM_CACHE(name, unit, least, most, meaning) \
  fields.emplace_back("cache", #name, unit, least, most, meaning);
#include "npu/host/machine.def"
        return fields;
      },
      "As target_fields(), of the caches of a machine.");
  module.def("measure_rates", &rates, nb::arg("cores"), nb::arg("simd"), nb::arg("machine"),
             "Costs by name, those that can be measured: a second or two. See npu/host/rates.h.");
  module.def(
      "host_target",
      [](int cores, const std::tuple<int, int, int, int>& registers, const Machine& machine) {
        const auto& [vector_bytes, panel_columns, rows, split_rows] = registers;
        return host_target(cores, LevelInfo{vector_bytes, panel_columns, rows, split_rows},
                           machine);
      },
      nb::arg("cores"), nb::arg("registers"), nb::arg("machine"),
      "A machine as a target; registers: bytes of a vector, columns and rows of the cube unit's, "
      "and rows of its tiles, or 0.");
}

}  // namespace dvm
