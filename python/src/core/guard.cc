#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <type_traits>
#include <utility>

#include "bindings.h"
#include "dicts.h"
#include "penstock/train/fields.h"

namespace penstock::python {
namespace {

template <class T>
void read(const nb::dict& dict, const char* name, T& value) {
  if (!dict.contains(name)) refuse(std::string("the state of a guard lacks ") + name);
  std::conditional_t<HasFields<T>, nb::dict, T> found{};
  if (!nb::try_cast(dict[name], found)) refuse(std::string(name) + " in the state of a guard has the wrong type");
  if constexpr (HasFields<T>) {
    visit_fields(value, [&](const char* inner, auto& field) { read(found, inner, field); });
  } else {
    value = std::move(found);
  }
}

void check(const GuardMemory& memory) {
  if (memory.losses.size() != memory.norms.size()) refuse("losses must be as many as norms in the state of a guard");
  if (memory.accepted < 0) refuse("accepted must be at least 0, not " + std::to_string(memory.accepted));
}

/// The guard of these options with the memory of another.
Guard restored(GuardOptions options, const nb::dict& dict) {
  read(dict, "untrained_loss", options.untrained_loss);
  GuardState state;
  visit_fields(state, [&](const char* name, auto& field) { read(dict, name, field); });
  for (const GuardMemory* memory : {&state.memory, &state.good.memory, &state.pending.memory}) check(*memory);
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
      .def("note",
           [](Guard& self, Index step, double loss, double gradient_norm) {
             return self.note({.step = step, .loss = loss, .gradient_norm = gradient_norm});
           })
      .def("note_skip",
           [](Guard& self, Index step, Index skipped_in_a_row) {
             return self.note({.step = step, .finite = false, .skipped_in_a_row = skipped_in_a_row});
           })
      .def("warning",
           [](Guard& self, Index step, double gradient_norm, double saturated) {
             return self.warning({.step = step, .gradient_norm = gradient_norm}, saturated).text(argument_words);
           })
      .def("state",
           [](const Guard& self) {
             nb::dict state = fields_of(self.state());
             state["untrained_loss"] = self.options().untrained_loss;
             return state;
           })
      .def("restore", [](Guard& self, const nb::dict& state) { self = restored(self.options(), state); })
      .def("expect", &Guard::expect)
      .def("state_due", &Guard::state_due)
      .def("keep", &Guard::keep)
      .def("confirm", &Guard::confirm)
      .def("rolled_back", &Guard::rolled_back)
      .def("raise_rate", &Guard::raise_rate)
      .def("describe", &Guard::describe)
      .def("describe_end",
           [](const Guard& self, const Trouble& trouble) { return self.describe_end(trouble).text(argument_words); })
      .def("remedy", [](const Guard& self, bool vanishing) { return self.remedy(vanishing).text(argument_words); })
      .def_prop_ro("exhausted", &Guard::exhausted)
      .def_prop_ro("rollbacks", [](const Guard& self) { return self.state().rollbacks; })
      .def_prop_ro("rate_factor", [](const Guard& self) { return self.state().rate_factor; });
}

}  // namespace penstock::python
