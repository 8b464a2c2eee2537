#include "penstock/data/row_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace penstock {

std::string describe_step(double seconds) {
  struct Unit {
    const char* name;
    double seconds;
  };
  constexpr double hour = 3600.0, day = 24.0 * hour;
  constexpr Unit units[] = {{"year", 365.25 * day}, {"month", 30.44 * day}, {"week", 7.0 * day}, {"day", day},
                            {"hour", hour},         {"minute", 60.0},       {"second", 1.0}};
  for (const Unit& unit : units) {
    const double count = seconds / unit.seconds, whole = std::round(count);
    const double tolerance = unit.seconds > 8.0 * day ? 0.1 : 1e-6;
    if (whole < 1.0 || std::abs(count - whole) > tolerance) continue;
    if (whole > 1.0) return fmt::format("{} {}s", whole, unit.name);
    return fmt::format("{} {}", unit.name == std::string_view("hour") ? "an" : "a", unit.name);
  }
  return fmt::format("{:.3g} seconds", seconds);
}

bool alike_steps(double step, double other) {
  constexpr double alike = 1.25;  // months differ by less, and clocks are not exact
  return step <= alike * other && alike * step >= other;
}

std::string RowSteps::see(double before, double after) {
  constexpr Index enough = 100;  // steps: a stream that goes on is not judged anew
  // Rows at irregular dates are learnt with their distances as an input.
  if (!(usual_.step > 0.0) || usual_.irregular == Irregular::elapsed || seen_ >= enough) return {};
  const double step = usual_.seconds_between(before, after);
  if (!(step > 0.0)) return {};  // the same date, or one before
  ++seen_;
  if (alike_steps(step, usual_.step)) {
    ++usual_seen_;
    return {};
  }
  constexpr double kind = 1.1;
  Other& other = others_[std::lround(std::log(step) / std::log(kind))];
  if (other.count++ == 0) other.step = step;
  return mistake();
}

std::string RowSteps::mistake() const {
  // Rows that are missing leave the usual step the commonest one; rows at irregular dates have no commonest one.
  constexpr Index fewest = 5;
  if (seen_ < fewest || 10 * usual_seen_ > seen_) return {};
  const auto commonest =
      std::ranges::max_element(others_, {}, [](const auto& other) { return other.second.count; })->second;
  if (5 * commonest.count < 4 * seen_) return {};
  const std::string usual = usual_.working_days ? "a working day" : describe_step(usual_.step);
  const std::string other = describe_step(commonest.step);
  const std::string means = fmt::format("give it rows {} apart, such as means or sums of these, or ", usual);
  return fmt::format("rows are {} apart, and the model learnt rows {} apart: {}train a model on rows {} apart", other,
                     usual, commonest.step < usual_.step ? means : "", other);
}

}  // namespace penstock
