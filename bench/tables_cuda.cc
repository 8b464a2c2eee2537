// What `penstock bench --device cuda` measures.

#include "bench/tables.h"

namespace penstock::bench {
namespace {

/// Bound by the product, in between, and bound by everything around it; small enough that the oracle, on the CPU, takes
/// seconds.
const std::vector<Shape> layer_shapes = {{8, 1024, 512, 512}, {64, 512, 256, 256}, {64, 1000, 100, 100}};
const std::vector<Shape> scan_shapes = {{8, 4096, 512, 512}, {1, 65536, 128, 128}, {64, 1024, 100, 100}};
const std::vector<Shape> cuda_rnn_shapes = {{1, 16, 64, 128},  {1, 64, 64, 128},   {1, 256, 64, 128},
                                            {1, 512, 64, 128}, {1, 1024, 64, 128}, {1, 256, 64, 256},
                                            {1, 512, 64, 256}, {1, 1024, 64, 256}};

std::vector<Shape> cs179_shapes() {
  std::vector<Shape> shapes;
  for (Index steps = 256; steps <= 65536; steps *= 4) shapes.push_back({1, steps, 256, 256});
  for (Index steps = 256; steps <= 4096; steps *= 4) shapes.push_back({8, steps, 256, 256});
  return shapes;
}

}  // namespace

std::vector<Table> make_cuda_tables() {
  const std::vector<std::string> linear = {"mingru", "minlstm"}, logarithmic = {"mingru-log", "minlstm-log"};
  const std::vector<std::string> regimes = {"penstock", "penstock-direct", "penstock-fused", "penstock-scan"};
  const std::vector<std::string> torch = {"torch", "torch-compile"};
  std::vector<Table> all = {
      {.name = "layer",
       .title = "One layer over whole sequences",
       .about = "A call is y from x (forward), or that and the gradients of x and of all weights (training).",
       .groups = {{logarithmic, layer_shapes}},
       .passes = {Pass::forward, Pass::training},
       .ours = {"penstock"},
       .peers = torch,
       .dtypes = {"bf16", "f32"}},
      {.name = "scan",
       .title = "The scan by itself",
       .about =
           "h_t = a_t h_{t-1} + b_t from given terms, in linear form and from their logarithms (scan-log); I and H are "
           "the channels. Training adds the gradients of the terms.",
       .groups = {{{"scan", "scan-log"}, scan_shapes}},
       .passes = {Pass::forward, Pass::training},
       .ours = {"penstock"},
       .peers = torch},
      {.name = "fused",
       .title = "A layer against a loop over cells",
       .about = "The same sequences through one call and, as penstock-loop, through a call for every step.",
       .groups = {{linear, {{64, 200, 256, 512}, {1, 200, 64, 128}}}},
       .passes = {Pass::forward},
       .ours = {"penstock", "penstock-loop"},
       .peers = {"torch"}},
      {.name = "cuda_rnn",
       .title = "The shapes of CUDA_RNN",
       .about = "One sequence forward, as the planner decides (penstock) and in each regime: direct, fused, scan.",
       .groups = {{linear, cuda_rnn_shapes}},
       .passes = {Pass::forward},
       .ours = regimes,
       .peers = {"torch"}},
      {.name = "cs179",
       .title = "The lengths of the CS179 study",
       .about = "256 to 65,536 steps at 256 channels, forward, as the planner decides (penstock) and in each regime.",
       .groups = {{linear, cs179_shapes()}},
       .passes = {Pass::forward},
       .ours = regimes,
       .peers = {"torch"}},
  };
  for (Table& table : all) table.device = "cuda";
  return all;
}

}  // namespace penstock::bench
