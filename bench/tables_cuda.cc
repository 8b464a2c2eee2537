// What `penstock bench --device cuda` measures.

#include "bench/tables.h"

namespace penstock::bench {
namespace {

/// Bound by the product, in between, and bound by everything around it; small enough that the oracle, on the CPU, takes
/// seconds.
const std::vector<Shape> gpu_layer_shapes = {{8, 1024, 512, 512}, {64, 512, 256, 256}, {64, 1000, 100, 100}};
const std::vector<Shape> gpu_scan_shapes = {{8, 4096, 512, 512}, {1, 65536, 128, 128}, {64, 1024, 100, 100}};
const std::vector<Shape> gpu_cuda_rnn_shapes = {
    {1, 16, 64, 128},  {1, 64, 64, 128},  {1, 256, 64, 128},  {1, 512, 64, 128},  {1, 1024, 64, 128},
    {1, 256, 64, 256}, {1, 512, 64, 256}, {1, 1024, 64, 256}, {1, 8192, 64, 128}, {1, 65536, 64, 128}};

const std::vector<Shape> gpu_batch_shapes = {
    {1, 100, 128, 256}, {32, 100, 128, 256}, {256, 100, 128, 256}, {1024, 100, 128, 256}};

}  // namespace

ListsBySubject cuda_lists() {
  const std::vector<std::string> linear = {"mingru", "minlstm"}, logarithmic = {"mingru-log", "minlstm-log"};
  const std::vector<std::string> regimes = {"penstock", "penstock-direct", "penstock-scan"};
  const std::vector<std::string> torch = {"torch", "torch-compile"};
  const std::string who =
      "As the planner decides (penstock), a thread for all steps of its channels (direct), and in chunks (scan).";
  return {
      {"layer",
       {.groups = {{logarithmic, gpu_layer_shapes}}, .ours = {"penstock"}, .peers = torch, .dtypes = {"bf16", "f32"}}},
      {"scan", {.groups = {{{"scan", "scan-log"}, gpu_scan_shapes}}, .ours = {"penstock"}, .peers = torch}},
      {"throughput",
       {.groups = {{linear, gpu_batch_shapes}}, .ours = {"penstock"}, .peers = torch, .dtypes = {"bf16"}}},
      {"fused",
       {.groups = {{linear, {{64, 200, 256, 512}, {1, 200, 64, 128}}}},
        .ours = {"penstock", "penstock-loop"},
        .peers = {"torch"},
        .who = "penstock-loop is a loop over steps."}},
      {"cuda_rnn",
       {.groups = {{linear, gpu_cuda_rnn_shapes}},
        .ours = {"penstock", "penstock-copied", "penstock-cpu", "penstock-direct", "penstock-scan"},
        .peers = {"torch"},
        .who = "Data on the GPU (penstock), copied there and back (copied), or on the CPU (cpu). " + who}},
      {"cs179", {.groups = {{linear, cs179_shapes()}}, .ours = regimes, .peers = {"torch"}, .who = who}},
  };
}

}  // namespace penstock::bench
