// Python's way into the runtime: errors, what this machine has, and what the other files bind.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "npu/host/ceilings.h"
#include "npu/host/device.h"
#include "npu/host/levels.h"
#include "runtime/bindings_calls.h"
#include "runtime/bindings_plan.h"
#include "runtime/bindings_program.h"
#include "runtime/bindings_tensors.h"
#include "runtime/checksum.h"
#include "runtime/errors.h"
#include "runtime/memory.h"

namespace nb = nanobind;

namespace dvm {
namespace {

template <size_t N>
nb::tuple names_of(const char* const (&names)[N]) {
  nb::list list;
  for (const char* name : names) list.append(name);
  return nb::tuple(list);
}

nb::bytes checksums_of(nb::handle contents, size_t block, int threads) {
  ArrayView view;
  if (block == 0 || !view.open(contents)) throw InputError("checksums are of contiguous arrays");
  std::vector<uint32_t> sums;
  {
    const nb::gil_scoped_release unlock;
    sums = checksums(view.raw(), block, threads);
  }
  return nb::bytes(sums.data(), sums.size() * sizeof sums[0]);
}

// Raises the Python namesake of a runtime error.
void translate_error(const std::exception_ptr& exception, void*) {
  const auto raise = [](const char* name, const std::exception& error) {
    const nb::object type = nb::module_::import_("dvm_graph.errors").attr(name);
    PyErr_SetString(type.ptr(), error.what());
  };
  try {
    std::rethrow_exception(exception);
  } catch (const InputError& error) {
    raise("InputError", error);
  } catch (const ContradictionError& error) {
    raise("ContradictionError", error);
  } catch (const ShapeError& error) {
    raise("ShapeError", error);
  } catch (const OutOfMemoryError& error) {
    raise("OutOfMemoryError", error);
  } catch (const std::bad_alloc&) {
    raise("OutOfMemoryError", OutOfMemoryError("memory ran out"));
  } catch (const CancelledError& error) {
    raise("CancelledError", error);
  } catch (const ExecutionError& error) {
    raise("ExecutionError", error);
  } catch (const UnsupportedError& error) {
    raise("UnsupportedError", error);
  } catch (const CompileError& error) {
    raise("CompileError", error);
  }
}

}  // namespace

void bind_runtime(nb::module_& module) {
  nb::register_exception_translator(translate_error);
  bind_program(module);
  bind_builder(module);
  nb::class_<StopFlag>(module, "StopFlag")
      .def(nb::init<>())
      .def_prop_rw(
          "set", [](const StopFlag& flag) { return flag.set.load(); },
          [](StopFlag& flag, bool set) { flag.set.store(set); });
  module.def("end_calls", &end_calls, nb::arg("seconds"),
             "Ends the calls of other threads, before the interpreter shuts down.");
  module.attr("NODE_FIELDS") = names_of(kNodeFields);
  module.attr("ACCESS_FIELDS") = names_of(kAccessFields);
  module.attr("WINDOW_SIZES") = names_of(kWindowFields);
  module.def("available_cores", &available_cores);
  module.def("available_memory", &available_memory);
  module.def("checksums", &checksums_of, nb::arg("contents"), nb::arg("block"), nb::arg("threads"),
             "CRC-32C of each block of an array's bytes, one behind the other.");
  module.def(
      "simd_levels",
      [] {
        std::vector<std::string> names;
        for (const Level& level : available_levels()) names.emplace_back(level.table->name);
        return names;
      },
      "Instruction-set levels of the host device on this machine, best first.");
  module.def(
      "built_levels",
      [] { return std::vector<std::string>(built_levels().begin(), built_levels().end()); },
      "Those that this build has code for, whether this machine runs them or not.");
  module.def(
      "bf16_levels",
      [] {
        std::vector<std::string> names;
        for (const Level& level : available_levels()) {
          if (level.table->multiplies_bf16) names.emplace_back(level.table->name);
        }
        return names;
      },
      "Those of them with which this machine multiplies bf16 faster than f32.");
  nb::class_<CeilingMeter>(module, "CeilingMeter", "See npu/host/ceilings.h.")
      .def(
          "__init__",
          [](CeilingMeter* meter, int cores, const std::string& simd) {
            const InstructionTable* const table = table_by_name(simd);
            if (table == nullptr || cores <= 0) {
              throw nb::value_error("cores must be positive, and the level one of simd_levels()");
            }
            new (meter) CeilingMeter(cores, *table);
          },
          nb::arg("cores"), nb::arg("simd"))
      .def(
          "measure",
          [](CeilingMeter& meter) {
            const nb::gil_scoped_release unlock;
            const Ceilings found = meter.measure();
            return std::tuple{found.flops, found.copy_bytes, found.read_bytes};
          },
          "FLOP/s, copied bytes/s and read bytes/s.");
}

}  // namespace dvm
