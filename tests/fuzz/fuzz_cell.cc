#include <cstdint>
#include <string_view>

#include "custom/cell.h"
#include "fuzz/refusal.h"

using namespace penstock;

/// The JSON text of a cell comes out of a file: whatever is accepted can be differentiated, run and written again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  custom::CustomCell cell;
  if (!test::accepted([&] { cell = custom::cell_from_json(text, "cell"); })) return 0;
  const std::string written = custom::to_json(cell);
  test::check(custom::to_json(custom::cell_from_json(written, "cell")) == written, "a cell that changes");
  custom::DerivedCell derived;
  if (!test::accepted([&] { derived = custom::derive(cell, "cell", ErrorCode::bad_input); })) return 0;
  const auto half = [](custom::Operation, int) { return 0.5; };
  const auto outputs = custom::run(derived.training, half), gradients = custom::run(derived.backward, half);
  test::check(outputs.size() == cell.outputs.size() + derived.kept.size(), "a missing output");
  test::check(gradients.size() >= static_cast<std::size_t>(cell.gates), "a missing gradient");
  return 0;
}
