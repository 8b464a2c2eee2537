#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "penstock/train/guard.h"

namespace nb = nanobind;

namespace penstock::python {
namespace {

nb::dict to_dict(const GuardMemory& memory) {
  nb::dict dict;
  dict["losses"] = memory.losses;
  dict["norms"] = memory.norms;
  dict["first_loss"] = memory.first_loss;
  dict["first_norm"] = memory.first_norm;
  dict["accepted"] = memory.accepted;
  return dict;
}

nb::dict to_dict(const GuardPoint& point) {
  nb::dict dict;
  dict["step"] = point.step;
  dict["memory"] = to_dict(point.memory);
  return dict;
}

/// What a guard remembers, as plain numbers.
nb::dict to_dict(const Guard& guard) {
  const GuardState& state = guard.state();
  nb::dict dict;
  dict["untrained_loss"] = guard.options().untrained_loss;
  dict["memory"] = to_dict(state.memory);
  dict["rollbacks"] = state.rollbacks;
  dict["last_rollback"] = state.last_rollback;
  dict["rate_changed"] = state.rate_changed;
  dict["rate_factor"] = state.rate_factor;
  dict["good"] = to_dict(state.good);
  dict["pending"] = to_dict(state.pending);
  return dict;
}

template <class Value>
Value field(const nb::dict& dict, const char* name) {
  if (!dict.contains(name)) refuse(std::string("the state of a guard lacks ") + name);
  Value value{};
  if (!nb::try_cast(dict[name], value)) refuse(std::string(name) + " in the state of a guard has the wrong type");
  return value;
}

GuardMemory memory_of(const nb::dict& dict) {
  GuardMemory memory;
  memory.losses = field<std::vector<double>>(dict, "losses");
  memory.norms = field<std::vector<double>>(dict, "norms");
  memory.first_loss = field<double>(dict, "first_loss");
  memory.first_norm = field<double>(dict, "first_norm");
  memory.accepted = field<Index>(dict, "accepted");
  if (memory.losses.size() != memory.norms.size()) refuse("losses must be as many as norms in the state of a guard");
  if (memory.accepted < 0) refuse("accepted must be at least 0, not " + std::to_string(memory.accepted));
  return memory;
}

GuardPoint point_of(const nb::dict& dict) {
  return {.step = field<Index>(dict, "step"), .memory = memory_of(field<nb::dict>(dict, "memory"))};
}

/// The guard of these options with the memory of another.
Guard restored(GuardOptions options, const nb::dict& dict) {
  options.untrained_loss = field<double>(dict, "untrained_loss");
  GuardState state;
  state.memory = memory_of(field<nb::dict>(dict, "memory"));
  state.rollbacks = field<Index>(dict, "rollbacks");
  state.last_rollback = field<Index>(dict, "last_rollback");
  state.rate_changed = field<Index>(dict, "rate_changed");
  state.rate_factor = field<double>(dict, "rate_factor");
  state.good = point_of(field<nb::dict>(dict, "good"));
  state.pending = point_of(field<nb::dict>(dict, "pending"));
  if (!(state.rate_factor > 0.0 && state.rate_factor <= 1.0)) {
    refuse("rate_factor must be in (0, 1], not " + std::to_string(state.rate_factor));
  }
  return Guard(std::move(options), std::move(state));
}

}  // namespace

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
      .def("state", [](const Guard& self) { return to_dict(self); })
      .def(
          "restore", [](Guard& self, const nb::dict& state) { self = restored(self.options(), state); },
          nb::arg("state"))
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
