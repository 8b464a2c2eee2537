#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "penstock/error.h"
#include "penstock/stop.h"

namespace penstock::python {

/// What `work` returns. It runs on this thread without the interpreter's lock, and wherever the library asks whether to
/// stop, signals are looked at: Ctrl-C ends it and raises KeyboardInterrupt.
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
