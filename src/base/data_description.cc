#include <cmath>

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

Index DataDescription::input_size() const { return vocabulary > 0 ? 1 : static_cast<Index>(inputs.size()); }

}  // namespace penstock
