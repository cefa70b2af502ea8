// Python's way to parts and to what was simulated on them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "npu/simulator/part.h"
#include "npu/simulator/stage_timing.h"
#include "vm/bindings.h"

namespace nb = nanobind;

namespace dvm {
namespace {

NpuPart part_of(const std::string& label, const Numbers& numbers, const Numbers& cycles) {
  NpuPart part;
  part.label = label;
  FieldSetter setter(numbers);
#define DVM_PART(section, name, unit, least, most, meaning) \
  setter.set(#section "." #name, part.section##_##name);
#include "npu/simulator/part.def"
  setter.finish();
  part.cycles = cycles_of(cycles);
  return part;
}

// Section, name, unit, least, most and meaning.
std::vector<Field> part_fields() {
  std::vector<Field> fields;
#define DVM_PART(section, name, unit, least, most, meaning) \
  fields.emplace_back(#section, #name, unit, least, most, meaning);
#define DVM_PUBLISHED(section, name, unit, least, most, meaning) \
  fields.emplace_back(#section, #name, unit, least, most, meaning);
#include "npu/simulator/part.def"
#undef DVM_PUBLISHED
  return fields;
}

// Those that the model reads: "section.name".
std::vector<std::string> model_numbers() {
  return {
#define DVM_PART(section, name, unit, least, most, meaning) #section "." #name,
#include "npu/simulator/part.def"
  };
}

std::vector<std::string> vector_instructions() {
  std::vector<std::string> names;
  for (int family = 0; family < kFamilies; ++family) {
    const auto known = static_cast<Family>(family);
    if (info_of(known).queue == Queue::vector) names.emplace_back(name_of(known));
  }
  return names;
}

std::vector<std::string> queue_names() {
  std::vector<std::string> names;
  for (int q = 0; q < kUnitQueues; ++q) names.emplace_back(name_of(static_cast<Queue>(q + 1)));
  return names;
}

const char* instruction_of(const TracedSpan& span) {
  return span.family == Family::count_ ? "" : name_of(span.family);
}

}  // namespace

void bind_part(nb::module_& module) {
  nb::class_<NpuPart>(module, "NpuPart", "See npu/simulator/part.h.")
      .def(
          "__init__",
          [](NpuPart* part, const std::string& name, const Numbers& numbers,
             const Numbers& cycles) { new (part) NpuPart(part_of(name, numbers, cycles)); },
          nb::arg("name"), nb::arg("numbers"), nb::arg("cycles"));
  module.def("part_fields", &part_fields,
             "Section, name, unit, least, most and meaning of every number of a part.");
  module.def("model_numbers", &model_numbers, "Of them, those that timing rests on: section.name.");
  module.def("vector_instructions", &vector_instructions,
             "Instructions whose cycles a part may give.");
  module.def("pipe_names", &queue_names, "Queues of a core, in the order of StageTiming.units.");
  nb::class_<UnitTiming>(module, "UnitTiming", "See npu/simulator/stage_timing.h.")
      .def_ro("busy", &UnitTiming::busy)
      .def_ro("for_decode", &UnitTiming::for_decode)
      .def_ro("for_flag", &UnitTiming::for_flag)
      .def_ro("for_others", &UnitTiming::for_others)
      .def_ro("instructions", &UnitTiming::instructions);
  nb::class_<StageTiming>(module, "StageTiming", "See npu/simulator/stage_timing.h.")
      .def_ro("cycles", &StageTiming::cycles)
      .def_ro("cores", &StageTiming::cores)
      .def_ro("lanes", &StageTiming::lanes)
      .def_ro("units", &StageTiming::units)
      .def_ro("lane_units", &StageTiming::lane_units)
      .def_ro("decoding", &StageTiming::decoding)
      .def_ro("read", &StageTiming::read)
      .def_ro("written", &StageTiming::written)
      .def_ro("memory_read", &StageTiming::memory_read)
      .def_ro("memory_written", &StageTiming::memory_written)
      .def_ro("flops", &StageTiming::flops)
      .def_ro("instructions", &StageTiming::instructions)
      .def_ro("simulated", &StageTiming::simulated)
      .def_prop_ro("traced_cores",
                   [](const StageTiming& timing) {
                     std::vector<std::tuple<uint32_t, int64_t>> cores;
                     for (const TracedCore& core : timing.traced_cores) {
                       cores.emplace_back(core.core, core.stands_for);
                     }
                     return cores;
                   })
      .def_prop_ro(
          "spans",
          [](const StageTiming& timing) {
            std::vector<std::tuple<uint32_t, int, std::string, double, double, int64_t>> spans;
            for (const TracedSpan& span : timing.spans) {
              spans.emplace_back(span.core, span.queue, instruction_of(span), span.start, span.end,
                                 span.tile);
            }
            return spans;
          })
      .def_prop_ro("flags", [](const StageTiming& timing) {
        std::vector<std::tuple<uint32_t, uint32_t, int, int, double, double>> flags;
        for (const TracedFlag& flag : timing.flags) {
          flags.emplace_back(flag.core, flag.from_core, flag.from, flag.to, flag.set, flag.taken);
        }
        return flags;
      });
}

}  // namespace dvm
