// The Python module `dvm_graph._core`: what each room offers to Python.
#include <nanobind/nanobind.h>

namespace dvm {
void bind_runtime(nanobind::module_& module);
}

NB_MODULE(_core, module) {
  module.doc() = "The C++ core of dvm_graph";
  dvm::bind_runtime(module);
}
