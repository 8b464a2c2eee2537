#include "bench/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/error.h"
#include "penstock/system.h"

namespace penstock::bench {
namespace {

const std::vector<std::string> dense = {"lstm", "gru", "elman", "slstm"};

/// Small, cache-bound, beyond one core's cache, batched, and long: what each part of a dense engine is bound by.
const std::vector<Shape> dense_shapes = {{1, 200, 64, 64},    {1, 200, 256, 256},  {1, 200, 512, 512},
                                         {16, 200, 256, 256}, {64, 100, 128, 256}, {64, 200, 256, 512},
                                         {1, 1000, 128, 128}};
const std::vector<Shape> scan_shapes = {
    {8, 1024, 256, 256}, {1, 4096, 512, 512}, {1, 65536, 64, 64}, {64, 512, 128, 128}};
const std::vector<Shape> stream_shapes = {{1, 64, 1, 8},   {1, 64, 1, 16},   {1, 64, 1, 32},   {1, 64, 1, 64},
                                          {1, 64, 64, 64}, {1, 64, 64, 128}, {1, 64, 64, 256}, {1, 64, 64, 512}};
const std::vector<Shape> batch_shapes = {
    {1, 100, 128, 256}, {8, 100, 128, 256}, {32, 100, 128, 256}, {128, 100, 128, 256}};
const std::vector<Shape> cuda_rnn_shapes = {{1, 256, 64, 128}, {1, 512, 64, 128}, {1, 1024, 64, 128},
                                            {1, 256, 64, 256}, {1, 512, 64, 256}, {1, 1024, 64, 256}};

std::vector<Shape> cs179_shapes() {
  std::vector<Shape> shapes;
  for (const Index rows : {1, 8}) {
    for (Index steps = 256; steps <= 65536; steps *= 4) shapes.push_back({rows, steps, 256, 256});
  }
  return shapes;
}

std::vector<Table> make_tables() {
  const std::vector<std::string> frameworks = {"torch", "torch-compile", "onnxruntime", "onednn", "numpy"};
  const std::vector<std::string> loops = {"numpy", "torch", "torch-compile"};
  return {
      {.name = "layer",
       .title = "One layer over whole sequences",
       .about = "A call is y from x (forward), or that and the gradients of x and of all weights (training).",
       .groups = {{dense, dense_shapes}, {{"mingru-log", "minlstm-log"}, scan_shapes}},
       .passes = {Pass::forward, Pass::training},
       .ours = {"penstock"},
       .peers = frameworks},
      {.name = "scan",
       .title = "The scan by itself",
       .about =
           "h_t = a_t h_{t-1} + b_t from given terms, in linear form and from their logarithms (scan-log); I and H are "
           "the channels. Training adds the gradients of the terms.",
       .groups = {{{"scan", "scan-log"}, scan_shapes}},
       .passes = {Pass::forward, Pass::training},
       .ours = {"penstock", "penstock-sequential", "penstock-scan"},
       .peers = {"torch", "numba", "numpy"}},
      {.name = "stream",
       .title = "One step of a stream",
       .about = "A call is one time step, the state carried. Where I is 1, a dense layer from H to 1 stands behind it "
                "(but oneDNN has none and stays out).",
       .groups = {{{"lstm", "gru"}, stream_shapes}},
       .passes = {Pass::step},
       .ours = {"penstock"},
       .peers = frameworks},
      {.name = "batch",
       .title = "Many sequences at once",
       .about = "One layer forward over B sequences. The speed-up is that of one sequence: B times the time of B = 1, "
                "divided by the time of the batch.",
       .groups = {{{"lstm", "gru"}, batch_shapes}},
       .passes = {Pass::forward},
       .ours = {"penstock"},
       .peers = frameworks,
       .per_sequence = true},
      {.name = "fused",
       .title = "A layer against a loop over cells",
       .about =
           "The same sequences through one call and through a call for every step: penstock-loop and torch-loop are "
           "loops over cells.",
       .groups = {{{"lstm", "gru"}, {{64, 200, 256, 512}}}},
       .passes = {Pass::forward},
       .ours = {"penstock", "penstock-loop"},
       .peers = {"torch", "torch-loop"}},
      {.name = "cuda_rnn",
       .title = "The shapes of CUDA_RNN",
       .about = "One sequence forward. The numpy column is the loop over time steps that its process_sequence is.",
       .groups = {{{"mingru", "minlstm"}, cuda_rnn_shapes}},
       .passes = {Pass::forward},
       .ours = {"penstock"},
       .peers = loops},
      {.name = "cs179",
       .title = "The lengths of the CS179 study",
       .about = "256 to 65,536 steps at 256 channels, forward: step by step (penstock-sequential), as a parallel scan "
                "(penstock-scan), and as the planner decides (penstock).",
       .groups = {{{"mingru", "minlstm"}, cs179_shapes()}},
       .passes = {Pass::forward},
       .ours = {"penstock", "penstock-sequential", "penstock-scan"},
       .peers = loops},
  };
}

template <class T>
std::vector<T> or_else(const std::vector<T>& wanted, const std::vector<T>& usual) {
  return wanted.empty() ? usual : wanted;
}

std::vector<int> thread_counts(const std::vector<int>& wanted) {
  const int all = system_info().threads;
  std::vector<int> counts;
  for (int count : or_else(wanted, {1, all})) {
    constexpr int most = 1024;  // as the library has it
    if (count < 0 || count > most) {
      throw Error(ErrorCode::invalid_argument, fmt::format("threads must be 0 to {}, not {}", most, count));
    }
    if (count == 0) count = all;
    if (std::ranges::find(counts, count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

/// The table's groups, cut to the cells and shapes that are wanted.
std::vector<Group> wanted_groups(const Table& table, Choice choice) {
  const bool any_cell = choice.cells.empty(), bare = is_bare_scan(table.groups.front().cells.front());
  for (const std::string& cell : choice.cells) {
    if (!is_bare_scan(cell)) find_cell(cell);
  }
  std::erase_if(choice.cells, [&](const std::string& cell) { return is_bare_scan(cell) != bare; });
  if (choice.cells.empty() && !any_cell) return {};
  if (!any_cell && !choice.shapes.empty()) return {{choice.cells, choice.shapes}};
  std::vector<Group> groups;
  for (Group group : table.groups) {
    if (!any_cell) {
      const std::vector<std::string> usual = std::exchange(group.cells, choice.cells);
      // A cell that the table has not runs at the shapes of its kind, or at all if there is one group.
      std::erase_if(group.cells, [&](const std::string& cell) {
        return table.groups.size() > 1 && find_cell(cell).scan != find_cell(usual.front()).scan;
      });
    }
    if (!choice.shapes.empty()) group.shapes = choice.shapes;
    constexpr std::size_t few = 2;
    if (choice.quick && group.shapes.size() > few) group.shapes.resize(few);
    groups.push_back(group);
  }
  return groups;
}

}  // namespace

const std::vector<Table>& tables(const std::string& device) {
  static const std::vector<Table> on_cpu = make_tables(), on_gpu = make_cuda_tables();
  if (device != "cpu" && device != "cuda") {
    throw Error(ErrorCode::invalid_argument, fmt::format("device must be cpu or cuda, not '{}'", device));
  }
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
                          device == "cpu" ? "" : " on device " + device, name));
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

std::vector<Case> cases(const Table& table, const Choice& choice) {
  std::vector<Case> all;
  const bool on_gpu = table.device == "cuda";
  if (on_gpu && !choice.threads.empty()) {
    throw Error(ErrorCode::invalid_argument, "threads are the CPU's: device cuda has none to choose");
  }
  const std::vector<int> threads = on_gpu ? std::vector<int>{1} : thread_counts(choice.threads);
  for (const Shape& shape : choice.shapes) {
    constexpr Index most = Index{1} << 20;  // as the library has it
    if (std::max(shape.inputs, shape.hidden) > most) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("shapes must have an input and a hidden size of at most {} each, not {}", most,
                              to_string(shape)));
    }
  }
  for (const std::string& dtype : choice.dtypes) {
    const std::string second = on_gpu ? "f16" : "bf16-weights";
    if (dtype != "f32" && dtype != second && dtype != "bf16") {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("dtypes must be among f32, {} and bf16, not '{}'", second, dtype));
    }
  }
  for (const Pass pass : choice.passes) {
    if ((pass == Pass::step) != (table.passes.front() == Pass::step)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("passes must be among those of the table {}, not '{}'", table.name, to_string(pass)));
    }
  }
  for (const Group& group : wanted_groups(table, choice)) {
    for (const std::string& cell : group.cells) {
      for (const std::string& dtype : or_else(choice.dtypes, table.dtypes)) {
        for (const Pass pass : or_else(choice.passes, table.passes)) {
          for (const Shape& shape : group.shapes) {
            for (const int count : threads) all.push_back({cell, shape, pass, dtype, count, table.device});
          }
        }
      }
    }
  }
  return all;
}

}  // namespace penstock::bench
