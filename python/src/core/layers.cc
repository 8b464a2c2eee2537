#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "network.h"

namespace penstock::python {
namespace {

template <class Real>
void bind_network(nb::module_& module, const char* name, const char* tape_name) {
  using Bound = Network<Real>;
  nb::class_<Tape<Real>>(module, tape_name).def(nb::init<>());
  nb::class_<Bound>(module, name)
      .def(
          "__init__",
          [](Bound* self, const std::string& cell, Index input_size, Index hidden_size, Index heads, Index layers,
             const std::string& direction, const std::string& bias, double dropout, double gradient_clip,
             std::uint64_t seed, bool stacked) {
            const RecurrentSpec spec{.cell = cell,
                                     .input_size = input_size,
                                     .hidden_size = hidden_size,
                                     .heads = heads,
                                     .layers = layers,
                                     .direction = parse_direction(direction),
                                     .bias = parse_bias(bias),
                                     .dropout = dropout,
                                     .gradient_clip = gradient_clip};
            new (self) Bound(spec, seed, stacked);
          },
          nb::kw_only(), nb::arg("cell"), nb::arg("input_size"), nb::arg("hidden_size"), nb::arg("heads") = 1,
          nb::arg("layers") = 1, nb::arg("direction") = "forward", nb::arg("bias") = "both", nb::arg("dropout") = 0.0,
          nb::arg("gradient_clip") = 0.0, nb::arg("seed") = 0, nb::arg("stacked") = false)
      .def(
          "forward",
          [](Bound& self, nb::handle x, nb::handle h0, nb::handle out, nb::handle tape, nb::handle which,
             bool time_first, const CallExecution& execution, bool copied, nb::handle reset_to) {
            Tape<Real>* kept = tape.is_none() ? nullptr : nb::cast<Tape<Real>*>(tape);
            return self.forward(
                {x, h0, out, which, reset_to, kept, time_first, copied, execution.on, execution.automatic});
          },
          nb::arg("x").none(), nb::arg("h0").none(), nb::arg("out").none(), nb::arg("tape").none(),
          nb::arg("which").none(), nb::arg("time_first"), nb::arg("execution"), nb::arg("copied") = false,
          nb::arg("reset_to") = nb::none())
      .def("choose_device",
           [](const Bound& self, Index rows, Index steps, const CallExecution& execution) {
             DeviceChoice choice;
             {
               const nb::gil_scoped_release unlocked;
               choice = self.choose(rows, steps, execution.on);
             }
             return nb::make_tuple(to_string(choice.device), choice.why);
           })
      .def("explain", &Bound::explain)
      .def("save_onnx", &Bound::save_onnx)
      .def("backward", &Bound::backward, nb::arg("dy").none(), nb::arg("dstate").none(), nb::arg("tape"),
           nb::arg("input_gradient"))
      .def(
          "step",
          [](Bound& self, nb::handle x, nb::handle h, nb::handle out, bool copied) {
            return self.step(x, h, out, copied, Execution{.threads = 1});
          },
          nb::arg("x").none(), nb::arg("h").none(), nb::arg("out").none(), nb::arg("copied") = false)
      .def("parameters", [](nb::handle self, bool gradients,
                            bool writable) { return nb::cast<Bound&>(self).parameters(self, gradients, writable); })
      .def("set_parameters", &Bound::set_parameters)
      .def("initialise", &Bound::initialise)
      .def("weights_changed", &Bound::weights_changed)
      .def("zero_gradients", &Bound::zero_gradients)
      .def("state_shape", &Bound::zero_state_shape, nb::arg("rows").none());
}

}  // namespace

void bind_layers(nb::module_& module) {
  bind_network<float>(module, "NetworkF32", "TapeF32");
  bind_network<double>(module, "NetworkF64", "TapeF64");
}

}  // namespace penstock::python
