#include "penstock/csp.h"

#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dicts.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;
using csp::Constraint;
using csp::Domain;
using csp::Expression;
using csp::Integer;
using csp::Solution;

/// A problem, and what its searches need of Python. The GIL is held throughout: the functions of a cost are Python's.
class Problem {
 public:
  explicit Problem(csp::Model model) : model_(std::move(model)) {
    model_.stop_when([this] {
      if (!failure_ && PyErr_CheckSignals() != 0) failure_.emplace();
      return failure_.has_value();
    });
  }
  Problem() : Problem(csp::Model()) {}
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  csp::Model& model() { return model_; }

  /// Runs a search, and raises what interrupted it.
  template <class Search>
  auto run(const Search& search) {
    failure_.reset();
    try {
      return search();
    } catch (const Error&) {
      if (!failure_) throw;
      const std::optional<nb::python_error> raised = std::exchange(failure_, std::nullopt);
      throw nb::python_error(*raised);
    }
  }

 private:
  csp::Model model_;
  std::optional<nb::python_error> failure_;
};

/// Returns a number as Python's function for a cost or a call gave it.
template <class Number>
Number number_from(nb::handle value, const char* what) {
  Number number = 0;
  if (!nb::try_cast<Number>(value, number)) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) + " returned " + nb::repr(value).c_str() +
                    (std::is_same_v<Number, Integer> ? ", which is not a whole number within 64 bits"
                                                     : ", which is not a number"));
  }
  return number;
}

Expression call(Problem& problem, const std::string& name, const std::vector<Expression>& arguments,
                const nb::callable& function, Integer low, Integer high) {
  const nb::handle borrowed = function;  // Python's model owns it: an owner here could not be collected
  const auto computed = [borrowed, name](std::span<const Integer> values) {
    nb::list given;
    for (const Integer value : values) given.append(value);
    const nb::object result = borrowed(*nb::tuple(given));
    return number_from<Integer>(result, name.c_str());
  };
  return problem.model().call(name, arguments, computed, {low, high});
}

void minimise_function(Problem& problem, const nb::callable& cost) {
  const nb::handle borrowed = cost;  // as above
  const auto computed = [borrowed](const Solution& solution) {
    return number_from<double>(borrowed(nb::cast(solution)), "the cost");
  };
  problem.model().minimise(std::function<double(const Solution&)>(computed));
}

nb::dict described(const csp::Explanation& explanation) {
  nb::list alternatives;
  for (const csp::Alternative& other : explanation.alternatives) {
    alternatives.append(nb::make_tuple(other.variable, other.value, other.excluded_by, other.cost));
  }
  return dict_of({{"best", explanation.best},
                  {"conflict", explanation.conflict},
                  {"alternatives", alternatives},
                  {"left_out", explanation.left_out},
                  {"text", explanation.text()}});
}

void bind_expressions(nb::module_& module) {
  nb::class_<Domain>(module, "CspDomain")
      .def(nb::init<std::vector<Integer>>())
      .def_static("range", &csp::range)
      .def_static("divisors", &csp::divisors)
      .def_static("powers_of_two", &csp::powers_of_two)
      .def_static("multiples", &csp::multiples)
      .def("size", &Domain::size)
      .def("at", &Domain::operator[])
      .def("contains", &Domain::contains)
      .def("text", &Domain::text);
  nb::class_<Expression>(module, "CspExpression")
      .def(nb::init<Integer>())
      .def("low", [](const Expression& a) { return a.bounds().low; })
      .def("text", &Expression::text)
      // NOLINTBEGIN(misc-redundant-expression): nanobind names operators like this
      .def(nb::self + nb::self)
      .def(nb::self - nb::self)
      .def(nb::self * nb::self)
      .def(nb::self / nb::self)
      .def(nb::self % nb::self)
      // For checkers of types, == of any object takes an object and returns a bool.
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> typing.Any"))
      .def(nb::self != nb::self, nb::sig("def __ne__(self, arg: object, /) -> typing.Any"))
      .def(nb::self <= nb::self)
      .def(nb::self < nb::self)
      .def(nb::self >= nb::self)
      .def(nb::self > nb::self);
  // NOLINTEND(misc-redundant-expression)
  nb::class_<Constraint>(module, "CspConstraint")
      .def("text", &Constraint::text)
      .def("__and__", [](const Constraint& a, const Constraint& b) { return a && b; })
      .def("__or__", [](const Constraint& a, const Constraint& b) { return a || b; })
      .def("__invert__", [](const Constraint& a) { return !a; });
  module.def("csp_ceil_div", &csp::ceil_div);
  module.def("csp_min", [](const Expression& a, const Expression& b) { return csp::min(a, b); });
  module.def("csp_max", [](const Expression& a, const Expression& b) { return csp::max(a, b); });
  module.def("csp_select", &csp::select);
  module.def("csp_one_of", &csp::one_of);
  module.def("csp_all_different", &csp::all_different);
}

void bind_problem(nb::module_& module) {
  nb::class_<Solution>(module, "CspSolution")
      .def("values", &Solution::values)
      .def("value_of", [](const Solution& solution, const Expression& a) { return solution[a]; })
      .def("cost", &Solution::cost)
      .def("text", &Solution::text);
  nb::class_<Problem>(module, "CspModel")
      .def(nb::init<>())
      .def_static("parse", [](const std::string& text) { return new Problem(csp::parse(text)); })
      .def("var", [](Problem& p, const std::string& name, const Domain& domain) { return p.model().var(name, domain); })
      .def("call", &call)
      .def(
          "require",
          [](Problem& p, const std::optional<std::string>& name, const Constraint& constraint) {
            name ? p.model().require(*name, constraint) : p.model().require(constraint);
          },
          nb::arg("name").none(), nb::arg("constraint"))
      .def("minimise", [](Problem& p, const Expression& cost) { p.model().minimise(cost); })
      .def("minimise_function", &minimise_function)
      .def("maximise", [](Problem& p, const Expression& value) { p.model().maximise(value); })
      .def("limit",
           [](Problem& p, double seconds, Integer bytes, Integer solutions) {
             p.model().limit({.seconds = seconds, .bytes = bytes, .solutions = solutions});
           })
      .def("solve", [](Problem& p) { return p.run([&] { return p.model().solve(); }); })
      .def("first", [](Problem& p) { return p.run([&] { return p.model().first(); }); })
      .def("all", [](Problem& p, Integer most) { return p.run([&] { return p.model().all(most); }); })
      .def("conflict", [](Problem& p) { return p.run([&] { return p.model().conflict(); }); })
      .def("explain",
           [](Problem& p, Integer most) { return described(p.run([&] { return p.model().explain(most); })); })
      .def("variable", [](Problem& p, const std::string& name) { return p.model().variable(name); })
      .def("variables", [](Problem& p) { return p.model().variables(); })
      .def("constraint_text", [](Problem& p, const std::string& name) { return p.model().constraint_text(name); })
      .def("has_cost", [](Problem& p) { return p.model().has_cost(); });
}

}  // namespace

void bind_constraints(nb::module_& module) {
  bind_expressions(module);
  bind_problem(module);
}

}  // namespace penstock::python
