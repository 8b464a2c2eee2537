#include <nanobind/nanobind.h>

#include "bindings.h"

// The extension module penstock._core: the public interface of the library for the package's Python code, which checks
// little itself, since everything here is checked anyway.
NB_MODULE(_core, module) {
  namespace bindings = penstock::python;
  bindings::bind_errors(module);
  bindings::bind_machine(module);
  bindings::bind_layers(module);
  bindings::bind_scans(module);
  bindings::bind_models(module);
  bindings::bind_tables(module);
  bindings::bind_answers(module);
  bindings::bind_training(module);
  bindings::bind_search(module);
}
