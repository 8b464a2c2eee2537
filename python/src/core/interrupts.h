#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "penstock/error.h"
#include "penstock/stop.h"

namespace penstock::python {

/// Runs `work` on this thread without the GIL and returns its result. Signals are checked where the library checks
/// whether to stop: Ctrl-C ends the work and raises KeyboardInterrupt.
template <class Work>
auto unless_interrupted(const Work& work) -> decltype(work()) {
  std::optional<nanobind::python_error> failure;
  try {
    const nanobind::gil_scoped_release unlocked;
    const Stoppable on_a_signal([&] {
      const nanobind::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() == 0) return false;
      failure.emplace();
      return true;
    });
    return work();
  } catch (const Error&) {
    if (!failure) throw;
  }
  throw std::move(*failure);
}

}  // namespace penstock::python
