#include "bench/suite/tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/error.h"

namespace penstock::bench {
namespace {

const std::vector<Subject> subjects = {
    {.name = "layer",
     .title = "One layer over whole sequences",
     .about = "A call computes y from x (forward), or y and the gradients of x and of all weights (training).",
     .passes = {Pass::forward, Pass::training}},
    {.name = "scan",
     .title = "The scan by itself",
     .about = "h_t = a_t h_{t-1} + b_t with explicit coefficients a and b (scan) or their logarithms (scan-log). I and "
              "H are the "
              "number of channels. Training adds the gradients of the terms.",
     .passes = {Pass::forward, Pass::training}},
    {.name = "stream",
     .title = "One step of a stream",
     .about = "A call is one time step with carried state. Where I is 1, a dense layer from H to 1 follows; oneDNN has "
              "none and is left out there.",
     .passes = {Pass::step}},
    {.name = "batch",
     .title = "Many sequences at once",
     .about =
         "One layer forward over B sequences. \"per sequence\" is the speed-up of one sequence: B times the time of "
         "B = 1, divided by the time of the batch.",
     .passes = {Pass::forward},
     .per_sequence = true},
    {.name = "latency",
     .title = "One request at a time",
     .about = "One sequence forward, every call timed by itself. p99 is the time within which 99 % of the calls end. "
              "Peers have the median and p99.",
     .passes = {Pass::forward},
     .percentiles = true},
    {.name = "throughput",
     .title = "Sequences per second",
     .about = "One layer forward over B sequences of 100 steps, for each cell.",
     .passes = {Pass::forward},
     .per_sequence = true},
    {.name = "fused",
     .title = "A layer against a loop over cells",
     .about = "The same sequences in one call, and in one call per step.",
     .passes = {Pass::forward}},
    {.name = "recurrent",
     .title = "Networks with memory mixing",
     .about = "One layer with a recurrent matrix. \"12x64\" means 12 heads of 64 units.",
     .passes = {Pass::forward, Pass::training}},
    {.name = "cuda_rnn",
     .title = "The shapes of CUDA_RNN",
     .about = "One sequence forward.",
     .passes = {Pass::forward}},
    {.name = "cs179",
     .title = "The lengths of the CS179 study",
     .about = "256 to 65,536 steps at 256 channels, forward.",
     .passes = {Pass::forward}},
};

std::vector<Table> make_tables(const std::string& device, const ListsBySubject& all) {
  std::vector<Table> made;
  for (const auto& [name, lists] : all) {
    made.push_back({*std::ranges::find(subjects, name, &Subject::name), lists, device});
    if (!lists.who.empty()) made.back().about += " " + lists.who;
  }
  return made;
}

}  // namespace

std::vector<Shape> cs179_shapes() {
  std::vector<Shape> shapes;
  for (Index steps = 256; steps <= 65536; steps *= 4) shapes.push_back({1, steps, 256, 256});
  for (Index steps = 256; steps <= 4096; steps *= 4) shapes.push_back({8, steps, 256, 256});
  return shapes;
}

const std::vector<Table>& tables(const std::string& device) {
  static const std::vector<Table> on_cpu = make_tables("cpu", cpu_lists()), on_gpu = make_tables("cuda", cuda_lists());
  if (device != "cpu" && device != "cuda") fail_choice("device", device, {"cpu", "cuda"});
  return device == "cpu" ? on_cpu : on_gpu;
}

const Table& find_table(const std::string& name, const std::string& device) {
  std::vector<std::string> names;
  for (const Table& table : tables(device)) {
    if (table.name == name) return table;
    names.push_back(table.name);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("TABLE must be one of {} or all{}, not '{}'", fmt::join(names, ", "),
                          device == "cpu" ? "" : " on device " + device, name),
              {.argument = "TABLE", .value = name, .choices = names});
}

std::vector<std::string> peer_names(const std::string& device) {
  std::vector<std::string> names;
  for (const Table& table : tables(device)) {
    for (const std::string& peer : table.peers) {
      if (std::ranges::find(names, peer) == names.end()) names.push_back(peer);
    }
  }
  return names;
}

}  // namespace penstock::bench
