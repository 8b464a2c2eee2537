#include <nanobind/nanobind.h>

#include "bindings.h"

// The extension module penstock._core: the public interface of the library for the package's Python code, which checks
// little itself, since everything here is checked anyway.
NB_MODULE(_core, module) {
  using namespace penstock::python;
  bind_errors(module);
  bind_machine(module);
  bind_layers(module);
  bind_scans(module);
  bind_models(module);
  bind_training(module);
}
