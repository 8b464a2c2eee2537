#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "penstock/types.h"

/// Each function binds one part of the module `_core`.
namespace penstock::python {

void bind_errors(nanobind::module_& module);
void bind_machine(nanobind::module_& module);
void bind_device_arrays(nanobind::module_& module);
void bind_layers(nanobind::module_& module);
void bind_scans(nanobind::module_& module);
void bind_models(nanobind::module_& module);
void bind_sessions(nanobind::module_& module);
void bind_datasets(nanobind::module_& module);
void bind_training(nanobind::module_& module);
void bind_answers(nanobind::module_& module);
void bind_guard(nanobind::module_& module);
void bind_search(nanobind::module_& module);
void bind_constraints(nanobind::module_& module);

/// Returns the execution options for the arguments that all calls share: threads, mode ("auto", "sequential", "scan"),
/// exact, precision and device. Throws Error(invalid_argument), which names the argument.
Execution execution_from(int threads, const std::string& mode, bool exact, const std::string& precision,
                         const std::string& device);

}  // namespace penstock::python
