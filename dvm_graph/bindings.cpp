// The Python module `dvm_graph._core`: what each room offers to Python.
#include <nanobind/nanobind.h>

namespace dvm {
void bind_rules(nanobind::module_& module);
void bind_target(nanobind::module_& module);
void bind_machine(nanobind::module_& module);
void bind_part(nanobind::module_& module);
void bind_simulation(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
void bind_stream(nanobind::module_& module);
}  // namespace dvm

NB_MODULE(_core, module) {
  module.doc() = "The C++ core of dvm_graph";
  // What holds programs until the process ends, as torch does compiled graphs, is no leak.
  nanobind::set_leak_warnings(false);
  dvm::bind_rules(module);
  dvm::bind_target(module);
  dvm::bind_machine(module);
  dvm::bind_part(module);
  dvm::bind_simulation(module);
  dvm::bind_runtime(module);
  dvm::bind_stream(module);
}
