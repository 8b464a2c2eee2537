#include <array>
#include <cmath>

#include "base/check.h"
#include "penstock/data.h"

// In the lowest layer because models, streams and datasets all ask for these sizes.
namespace penstock {

double Column::normal(double value) const { return ((logarithm ? std::log(value) : value) - mean) / scale; }

double Column::raw(double normalised) const {
  const double value = normalised * scale + mean;
  return logarithm ? std::exp(value) : value;
}

Index DataDescription::output_size() const {
  switch (task) {
    case Task::language:
      return vocabulary;
    case Task::forecast:
      return horizon * static_cast<Index>(targets.size());
    case Task::classify:
      break;
  }
  return static_cast<Index>(classes.size());
}

namespace {

constexpr std::array<std::string_view, 4> missing_names = {"refuse", "carry", "interpolate", "mask"};

}  // namespace

std::string_view to_string(Missing missing) { return missing_names[static_cast<std::size_t>(missing)]; }

Missing parse_missing(std::string_view text) {
  for (std::size_t i = 0; i < missing_names.size(); ++i) {
    if (text == missing_names[i]) return static_cast<Missing>(i);
  }
  fail(ErrorCode::invalid_argument, "missing must be refuse, carry, interpolate or mask, not '{}'", text);
}

Index DataDescription::input_size() const { return vocabulary > 0 ? 1 : static_cast<Index>(inputs.size()); }

}  // namespace penstock
