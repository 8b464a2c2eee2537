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

/// `visit_all` calls its argument with the name and the value of each cost.
template <class VisitAll>
void read_numbers(std::string_view text, const VisitAll& visit_all) {
  const CostsJson json = parsed_costs(text);
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const CostsJson& value = item.value();
    bool known = false;
    visit_all([&](const char* field, double& number) {
      if (name != field) return;
      known = true;
      if (!value.is_number() || !(value.get<double>() > 0)) {
        fail(ErrorCode::bad_input, "costs: '{}' must be a positive number, not {}", field, value.dump());
      }
      number = value.get<double>();
    });
    if (!known) fail(ErrorCode::bad_input, "costs: there is no '{}'", name);
  }
}

}  // namespace

std::vector<NamedCost> named_costs(const GpuCosts& costs) {
  std::vector<NamedCost> all;
  visit_gpu_costs(costs, [&](const char* name, double value) { all.emplace_back(name, value); });
  return all;
}

std::vector<NamedCost> named_costs(const CpuCosts& costs) {
  std::vector<NamedCost> all;
  visit_cpu_costs(costs, [&](const char* name, double value) { all.emplace_back(name, value); });
  return all;
}

void set_costs(GpuCosts& costs, std::span<const double> values) {
  auto next = values.begin();
  visit_gpu_costs(costs, [&](const char*, double& value) { value = *next++; });
}

void set_costs(CpuCosts& costs, std::span<const double> values) {
  auto next = values.begin();
  visit_cpu_costs(costs, [&](const char*, double& value) { value = *next++; });
}

std::string costs_json(const GpuCosts& costs) {
  CostsJson json = CostsJson::object();
  visit_gpu_costs(costs, [&](const char* name, double value) { json[name] = value; });
  return json.dump(2);
}

std::string costs_json(const CpuCosts& costs) {
  CostsJson json = CostsJson::object();
  visit_cpu_costs(costs, [&](const char* name, double value) { json[name] = value; });
  return json.dump(2);
}

void read_costs(std::string_view json, GpuCosts& costs) {
  GpuCosts read = costs;
  read_numbers(json, [&](const auto& visit) { visit_gpu_costs(read, visit); });
  costs = read;
}

void read_costs(std::string_view json, CpuCosts& costs) {
  CpuCosts read = costs;
  read_numbers(json, [&](const auto& visit) { visit_cpu_costs(read, visit); });
  costs = read;
}

}  // namespace penstock::plan
