// Python's way to simulated models.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "runtime/simulation.h"

namespace nb = nanobind;

namespace dvm {

void bind_simulation(nb::module_& module) {
  nb::class_<SimulatedCore::Part>(module, "SimulatedPart", "See runtime/simulation.h.")
      .def_ro("program", &SimulatedCore::Part::program)
      .def_ro("begin", &SimulatedCore::Part::begin)
      .def_ro("end", &SimulatedCore::Part::end);
  nb::class_<SimulatedCore>(module, "SimulatedCore", "See runtime/simulation.h.")
      .def_ro("cube", &SimulatedCore::cube)
      .def_ro("number", &SimulatedCore::number)
      .def_ro("parts", &SimulatedCore::parts);
  nb::class_<SimulatedStage>(module, "SimulatedStage", "See runtime/simulation.h.")
      .def_ro("kernels", &SimulatedStage::kernels)
      .def_ro("kinds", &SimulatedStage::kinds)
      .def_ro("origins", &SimulatedStage::origins)
      .def_ro("tiles", &SimulatedStage::tiles)
      .def_ro("lacking", &SimulatedStage::lacking)
      .def_ro("fallback", &SimulatedStage::fallback)
      .def_ro("compiled", &SimulatedStage::compiled)
      .def_ro("compile_seconds", &SimulatedStage::compile_seconds)
      .def_ro("flops", &SimulatedStage::flops)
      .def_ro("vector_flops", &SimulatedStage::vector_flops)
      .def_ro("bytes", &SimulatedStage::bytes)
      .def_ro("cores", &SimulatedStage::cores)
      .def_ro("timing", &SimulatedStage::timing);
  nb::class_<SimulatedLaunch>(module, "SimulatedLaunch", "See runtime/simulation.h.")
      .def_ro("stages", &SimulatedLaunch::stages)
      .def_ro("words", &SimulatedLaunch::words)
      .def_ro("programs", &SimulatedLaunch::programs)
      .def_ro("stack_seconds", &SimulatedLaunch::stack_seconds);
  nb::class_<SimulatedModel>(module, "SimulatedModel", "See runtime/simulation.h.")
      .def_ro("launches", &SimulatedModel::launches)
      .def_ro("vendor_calls", &SimulatedModel::vendor_calls);
}

}  // namespace dvm
