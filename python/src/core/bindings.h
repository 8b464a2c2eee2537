#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "penstock/error.h"
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
void bind_networks(nanobind::module_& module);
void bind_answers(nanobind::module_& module);
void bind_guard(nanobind::module_& module);
void bind_constraints(nanobind::module_& module);

/// Returns an exception of Python with the words and the fields of an error.
nanobind::object exception_of(const Error& error);

/// Returns the words of Python for a setting of the library: "clip=1" for ("clip", "1"). See SettingWords.
std::string argument_words(const std::string& setting, const std::string& value);

/// How a call computes: what the arguments that all calls share say.
struct CallExecution {
  Execution on;
  bool automatic = false;  ///< The device is to be chosen for the work.

  CallExecution() = default;
  /// Takes a mode ("auto", "sequential", "scan") and a device, perhaps "auto". Throws Error(invalid_argument), which
  /// names the argument.
  CallExecution(const std::string& mode, const std::string& device, int threads, bool exact,
                const std::string& precision);
};

}  // namespace penstock::python
