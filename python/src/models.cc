#include "bindings.h"

namespace penstock::python {
void bind_models(nanobind::module_&) {}
}  // namespace penstock::python
