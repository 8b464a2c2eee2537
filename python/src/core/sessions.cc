#include <nanobind/stl/string.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "bindings.h"
#include "models.h"
#include "penstock/stream.h"

namespace penstock::python {

namespace {

/// A stream for one call at a time. Calls hold the GIL while they use the session, and run no Python code meanwhile:
/// arrays are read and created before.
class Stream {
 public:
  Stream(SharedModel& shared, const std::string& device, const Execution& execution)
      : Stream(*std::make_unique<Opened>(shared, device, execution)) {}

  nb::object push(nb::handle input, nb::handle out) {
    const bool is_token = PyLong_Check(input.ptr());
    const std::int32_t token = is_token ? token_from(input) : 0;
    const Array features = is_token ? Array() : Array(input, "features", Scalar::f32).contiguous();
    if (!is_token && features.rank() != 1) {
      refuse("features must have the shape (I,), not " + text_of(features.shape()));
    }
    const Shape shape = {outputs_};
    const Array answer =
        out.is_none() ? Array::empty(shape, Scalar::f32) : Array::output(out, "out", Scalar::f32).contiguous();
    answer.require_shape(shape, "(O,)");
    std::ranges::copy(is_token ? session_.push(token) : session_.push(features.values<float>()), answer.as<float>());
    return out.is_none() ? answer.object() : nb::borrow(out);
  }

  void reset() { session_.reset(); }

 private:
  struct Opened {
    Opened(SharedModel& shared, const std::string& device, const Execution& execution) {
      const nb::gil_scoped_release unlocked;
      const SharedModel::Reading model(shared);
      outputs = model->data().output_size();
      // The length of a stream is unknown: the device is chosen for a single step.
      session.emplace(*model, settled(*model, device, {.execution = execution}));
    }
    std::optional<Session> session;
    Index outputs = 0;
  };
  explicit Stream(Opened& opened) : session_(std::move(*opened.session)), outputs_(opened.outputs) {}

  static std::int32_t token_from(nb::handle input) {
    const auto token = PyLong_AsLongLong(input.ptr());
    if (token == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (token < 0 || token > std::numeric_limits<std::int32_t>::max()) {
      refuse("token must be below the vocabulary, not " + std::to_string(token));
    }
    return static_cast<std::int32_t>(token);
  }

  Session session_;
  Index outputs_;
};

}  // namespace

void bind_sessions(nb::module_& module) {
  nb::class_<Stream>(module, "Session")
      .def(
          "__init__",
          [](Stream* self, SharedModel& model, const std::string& device, const std::string& precision) {
            new (self) Stream(model, device, execution_from(1, "auto", false, precision, device));
          },
          nb::arg("model"), nb::arg("device"), nb::arg("precision"))
      .def("push", &Stream::push, nb::arg("input"), nb::arg("out").none())
      .def("reset", &Stream::reset);
}

}  // namespace penstock::python
