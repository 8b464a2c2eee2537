#include "terminal/describe_network.h"

#include <fmt/ranges.h>

#include <vector>

#include "options/options.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

/// "f32 [1, time, ?]": free extents have their names.
std::string type_text(const NetworkTensor& tensor) {
  std::vector<std::string> extents;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const bool named = i < tensor.axes.size() && !tensor.axes[i].empty();
    extents.push_back(tensor.shape[i] >= 0 ? std::to_string(tensor.shape[i]) : named ? printable(tensor.axes[i]) : "?");
  }
  return fmt::format("{} [{}]", tensor.type, fmt::join(extents, ", "));
}

void add_field(std::string& out, const char* heading, const std::string& value) {
  out += fmt::format("{:<13}{}\n", heading, value);
}

}  // namespace

std::string network_text(const penstock::Network& network) {
  std::string text;
  for (const NetworkTensor& each : network.inputs()) {
    add_field(text, "input", fmt::format("{}  {}", printable(each.name), type_text(each)));
  }
  for (const NetworkTensor& each : network.outputs()) {
    const std::string delay = each.delay == 0 ? "" : fmt::format("  {} frames late", each.delay);
    add_field(text, "output", printable(each.name) + delay);
  }
  for (const NetworkState& each : network.states()) {
    add_field(
        text, "state",
        fmt::format("{}  {}, next {}", printable(each.input.name), type_text(each.input), printable(each.output)));
  }
  if (network.states().empty()) add_field(text, "state", "none");
  if (network.sample_rate() > 0) add_field(text, "sound", fmt::format("{} Hz", network.sample_rate()));
  add_field(text, "parameters", with_commas(network.parameters()));
  std::vector<std::string> operators;
  for (const auto& [name, count] : network.operators())
    operators.push_back(fmt::format("{} {}", count, printable(name)));
  for (const std::string& each : wrap(fmt::format("{}", fmt::join(operators, ", ")), 100)) {
    add_field(text, text.find("operators") == text.npos ? "operators" : "", each);
  }
  return text;
}

Json network_json(const penstock::Network& network) {
  Json inputs = Json::array(), outputs = Json::array(), states = Json::array();
  const auto tensor = [](const NetworkTensor& each) {
    return Json{{"name", each.name}, {"type", each.type}, {"shape", each.shape}, {"axes", each.axes}};
  };
  for (const NetworkTensor& each : network.inputs()) inputs.push_back(tensor(each));
  for (const NetworkTensor& each : network.outputs()) outputs.push_back({{"name", each.name}, {"delay", each.delay}});
  for (const NetworkState& each : network.states()) {
    states.push_back(tensor(each.input));
    states.back()["next"] = each.output;
  }
  Json json = {{"inputs", inputs},
               {"outputs", outputs},
               {"states", states},
               {"parameters", network.parameters()},
               {"operators", network.operators()}};
  if (network.sample_rate() > 0) json["sample_rate"] = network.sample_rate();
  return json;
}

}  // namespace penstock::cli
