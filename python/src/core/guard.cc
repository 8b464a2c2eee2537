#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "penstock/train/guard.h"

namespace nb = nanobind;

namespace penstock::python {

// The guard of penstock.torch.StableTrainer, which keeps the tensors.
void bind_guard(nb::module_& module) {
  nb::class_<Trouble>(module, "Trouble").def_ro("step", &Trouble::step);
  nb::class_<Guard>(module, "Guard")
      .def(
          "__init__",
          [](Guard* self, Index rollbacks, double learning_rate, double clip, bool bounded,
             const std::string& network_remedy) {
            new (self) Guard(GuardOptions{.rollbacks = rollbacks,
                                          .learning_rate = learning_rate,
                                          .clip = clip,
                                          .untrained_loss = 0.0,
                                          .bounded = bounded,
                                          .network_remedy = network_remedy});
          },
          nb::kw_only(), nb::arg("rollbacks"), nb::arg("learning_rate"), nb::arg("clip"), nb::arg("bounded"),
          nb::arg("network_remedy"))
      .def(
          "note",
          [](Guard& self, Index step, double loss, double gradient_norm) {
            return self.note({.step = step, .loss = loss, .gradient_norm = gradient_norm});
          },
          nb::arg("step"), nb::arg("loss"), nb::arg("gradient_norm"))
      .def(
          "note_skip",
          [](Guard& self, Index step, Index skipped_in_a_row) {
            return self.note({.step = step, .finite = false, .skipped_in_a_row = skipped_in_a_row});
          },
          nb::arg("step"), nb::arg("skipped_in_a_row"))
      .def(
          "warning",
          [](Guard& self, Index step, double gradient_norm, double saturated) {
            return self.warning({.step = step, .gradient_norm = gradient_norm}, saturated);
          },
          nb::arg("step"), nb::arg("gradient_norm"), nb::arg("saturated"))
      .def("expect", &Guard::expect, nb::arg("untrained_loss"))
      .def("state_due", &Guard::state_due, nb::arg("submitted"))
      .def("keep", &Guard::keep, nb::arg("submitted"))
      .def("confirm", &Guard::confirm, nb::arg("submitted"))
      .def("rolled_back", &Guard::rolled_back, nb::arg("trouble"), nb::arg("submitted"))
      .def("raise_rate", &Guard::raise_rate, nb::arg("submitted"))
      .def("describe", &Guard::describe, nb::arg("trouble"))
      .def("describe_end", &Guard::describe_end, nb::arg("trouble"))
      .def("remedy", &Guard::remedy, nb::arg("vanishing"))
      .def_prop_ro("active", &Guard::active)
      .def_prop_ro("exhausted", &Guard::exhausted)
      .def_prop_ro("rollbacks", [](const Guard& self) { return self.state().rollbacks; })
      .def_prop_ro("rate_factor", [](const Guard& self) { return self.state().rate_factor; });
}

}  // namespace penstock::python
