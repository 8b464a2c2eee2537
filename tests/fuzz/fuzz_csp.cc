#include <cstdint>

#include "fuzz/refusal.h"
#include "penstock/csp.h"

using namespace penstock;

namespace {

/// Enough for the small problems that make up most inputs; nobody waits for the others.
csp::Model parsed(const std::string& text) {
  csp::Model model = csp::parse(text);
  model.stop_when([] { return true; });
  return model;
}

/// The solver's answer, or nothing where it was stopped.
void solve(const csp::Model& model) {
  try {
    const auto best = model.solve();
    const auto names = model.variables();
    if (best) {
      test::check(best->values().size() == names.size(), "a variable without a value");
      for (std::size_t x = 0; x < names.size(); ++x) {
        test::check((*best)[names[x]] == best->values()[x], "a value under another name");
      }
      if (const auto cost = model.cost()) {
        test::check(static_cast<double>((*best)[*cost]) == best->cost(), "a cost that is another");
      }
    } else {
      test::check(!model.conflict().empty(), "a conflict of nothing");
      for (const std::string& name : model.conflict()) {
        test::check(!model.constraint_text(name).empty(), "a constraint without a text");
      }
    }
  } catch (const Error& error) {
    test::check(error.code() == ErrorCode::interrupted, "a wrong error of the solver");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  test::accepted([&] { solve(parsed(text)); });
  return 0;
}
