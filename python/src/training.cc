#include "bindings.h"

namespace penstock::python {
void bind_training(nanobind::module_&) {}
}  // namespace penstock::python
