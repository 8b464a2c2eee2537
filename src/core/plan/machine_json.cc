// Costs by name, and as JSON.

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "plan/machine.h"

namespace penstock::plan {
namespace {

using CostsJson = nlohmann::ordered_json;

CostsJson parsed_costs(std::string_view text) {
  CostsJson json = CostsJson::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail(ErrorCode::bad_input, "costs must be one JSON object");
  return json;
}

}  // namespace

template <class Costs>
std::string costs_json(const Costs& costs) {
  CostsJson json = CostsJson::object();
  visit_costs(costs, [&](const char* name, double value) { json[name] = value; });
  return json.dump(2);
}

template <class Costs>
void read_costs(std::string_view text, Costs& costs) {
  const CostsJson json = parsed_costs(text);
  Costs read = costs;
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const CostsJson& value = item.value();
    bool known = false;
    visit_costs(read, [&](const char* field, double& number) {
      if (name != field) return;
      known = true;
      if (!value.is_number() || !(value.get<double>() > 0)) {
        fail(ErrorCode::bad_input, "costs: '{}' must be a positive number, not {}", field, value.dump());
      }
      number = value.get<double>();
    });
    if (!known) fail(ErrorCode::bad_input, "costs: there is no '{}'", name);
  }
  costs = read;
}

template std::string costs_json(const GpuCosts&);
template std::string costs_json(const CpuCosts&);
template void read_costs(std::string_view, GpuCosts&);
template void read_costs(std::string_view, CpuCosts&);

}  // namespace penstock::plan
