#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/suite/report.h"

namespace penstock::bench {
namespace {

using Json = nlohmann::ordered_json;

Json machine_json(const Report& report) {
  const Machine& machine = report.machine;
  const SystemInfo& system = machine.system;
  return {{"penstock", system.version},
          {"cpu", system.cpu},
          {"isa", system.isa},
          {"isas", system.isas},
          {"threads", system.threads},
          {"l1_data_bytes", system.l1_data_bytes},
          {"l2_bytes", system.l2_bytes},
          {"l3_bytes", system.l3_bytes},
          {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel},
          {"governor", machine.governor},
          {"load", machine.load},
          {"compiler", machine.compiler},
          {"gemm", system.gemm},
          {"python", report.python},
          {"gpu", machine.gpu.gpus.empty() ? "" : machine.gpu.gpus.front().name},
          {"cuda_driver", machine.gpu.driver},
          {"date", machine.date}};
}

Json limits_json(const Report& report) {
  Json products = Json::array(), reads = Json::array();
  for (const auto& [key, rate] : report.limits.product_rates()) {
    products.push_back({{"dtype", key.first}, {"threads", key.second}, {"flops_per_second", rate}});
  }
  for (const auto& [key, rate] : report.limits.read_rates()) {
    reads.push_back({{"threads", key.first}, {"bytes", key.second}, {"bytes_per_second", rate}});
  }
  return {{"products", products}, {"reads", reads}};
}

std::string outcome_name(Entry::Outcome outcome) {
  switch (outcome) {
    case Entry::Outcome::timed:
      return "timed";
    case Entry::Outcome::wrong:
      return "wrong";
    case Entry::Outcome::skipped:
      return "skipped";
    case Entry::Outcome::failed:
      return "failed";
    case Entry::Outcome::untimed:
      break;
  }
  return "untimed";
}

Json entry_json(const Entry& entry, const Line& line) {
  Json json = {{"name", entry.name}, {"outcome", outcome_name(entry.outcome)}};
  if (!entry.note.empty()) json["note"] = entry.note;
  // Infinities have no place in JSON; a result that is not there is as wrong as can be.
  if (entry.tolerance > 0.0) {
    json["error"] = std::isfinite(entry.error) ? Json(entry.error) : Json("infinite");
    json["tolerance"] = entry.tolerance;
  }
  if (entry.loses_digits) json["loses_digits"] = true;
  if (entry.outcome != Entry::Outcome::timed) return json;
  json["samples"] = entry.time.samples;
  json["minimum"] = entry.time.minimum;
  json["lower_quartile"] = entry.time.lower_quartile;
  json["median"] = entry.time.median;
  json["upper_quartile"] = entry.time.upper_quartile;
  json["maximum"] = entry.time.maximum;
  json["percentile_99"] = entry.time.percentile_99;
  json["percentile_999"] = entry.time.percentile_999;
  json["ratio"] = entry.time.median / line.entries.front().time.median;
  return json;
}

Json line_json(const Line& line) {
  const Case& test = line.test;
  Json entries = Json::array();
  for (const Entry& entry : line.entries) entries.push_back(entry_json(entry, line));
  return {{"cell", test.cell},
          {"B", test.shape.rows},
          {"T", test.shape.steps},
          {"I", test.shape.inputs},
          {"H", test.shape.hidden},
          {"heads", test.shape.heads},
          {"pass", to_string(test.pass)},
          {"dtype", test.dtype},
          {"threads", test.threads},
          {"device", test.device},
          {"head", test.has_head()},
          {"checked", line.checked},
          {"limit",
           {{"seconds", line.limit.seconds},
            {"bound", line.limit.bound},
            {"input_seconds", line.limit.input},
            {"recurrent_seconds", line.limit.recurrent},
            {"flops", line.limit.flops},
            {"step_bytes", line.limit.bytes}}},
          {"results", entries}};
}

}  // namespace

std::string report_json(const Report& report) {
  Json peers = Json::array(), missing = Json::array(), tables = Json::array();
  for (const Peer& peer : report.peers) {
    if (peer.missing.empty()) {
      peers.push_back({{"name", peer.name}, {"version", peer.version}});
    } else {
      missing.push_back({{"name", peer.name}, {"reason", peer.missing}});
    }
  }
  for (const Measured& measured : report.tables) {
    Json lines = Json::array();
    for (const Line& line : measured.lines) lines.push_back(line_json(line));
    tables.push_back({{"name", measured.table->name}, {"title", measured.table->title}, {"cases", lines}});
  }
  const Json json = {
      {"command", report.command},
      {"machine", machine_json(report)},
      {"settings",
       {{"seconds", report.settings.seconds}, {"rounds", report.settings.rounds}, {"seed", report.settings.seed}}},
      {"peers", peers},
      {"missing", missing},
      {"limits", limits_json(report)},
      {"all_right", report.all_right()},
      {"interrupted", report.interrupted},
      {"tables", tables}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string plot(const Report& report, const std::string& path, const std::function<bool()>& stop) {
  return PythonPeers(report.settings.python, report.settings.peers_folder, {}, stop)
      .run_script("plot.py", report_json(report), path);
}

}  // namespace penstock::bench
