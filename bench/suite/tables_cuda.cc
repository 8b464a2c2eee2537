// Measurements of `penstock bench --device cuda`.

#include "bench/suite/tables.h"

namespace penstock::bench {
namespace {

/// Bound by the product, in between, and bound by everything around it; small enough that the oracle, on the CPU, takes
/// seconds.
const std::vector<Shape> gpu_layer_shapes = {{8, 1024, 512, 512}, {64, 512, 256, 256}, {64, 1000, 100, 100}};
const std::vector<Shape> gpu_scan_shapes = {{8, 4096, 512, 512}, {1, 65536, 128, 128}, {64, 1024, 100, 100}};
const std::vector<Shape> gpu_cuda_rnn_shapes = {
    {1, 16, 64, 128},  {1, 64, 64, 128},  {1, 256, 64, 128},  {1, 512, 64, 128},  {1, 1024, 64, 128},
    {1, 256, 64, 256}, {1, 512, 64, 256}, {1, 1024, 64, 256}, {1, 8192, 64, 128}, {1, 65536, 64, 128}};

/// Heads of 64 and 128 units on one multiprocessor each, and single heads that clusters, the whole chip or launches of
/// single steps have to share, batches of 16 and 64 rows and of one.
const std::vector<Shape> gpu_lstm_shapes = {{16, 1024, 768, 768, 12}, {16, 1024, 768, 768, 6}, {16, 1024, 512, 512},
                                            {16, 1024, 768, 768},     {64, 1024, 768, 768},    {16, 1024, 1024, 1024},
                                            {16, 256, 2048, 2048},    {1, 1024, 512, 512},     {64, 200, 256, 512}};
const std::vector<Shape> gpu_gru_shapes = {{16, 1024, 768, 768}, {1, 1024, 512, 512}};
const std::vector<Shape> gpu_slstm_shapes = {{16, 1024, 768, 768, 12}, {16, 1024, 512, 512, 4}};

const std::vector<Shape> gpu_batch_shapes = {
    {1, 100, 128, 256}, {32, 100, 128, 256}, {256, 100, 128, 256}, {1024, 100, 128, 256}};

}  // namespace

ListsBySubject cuda_lists() {
  const std::vector<std::string> linear = {"mingru", "minlstm"}, logarithmic = {"mingru-log", "minlstm-log"};
  const std::vector<std::string> torch = {"torch", "torch-compile"};
  const std::string who =
      "penstock runs what the planner chooses; direct: one thread runs all steps of its channels; scan: in chunks. "
      "torch is a Python loop over the steps.";
  return {
      {"layer",
       {.groups = {{logarithmic, gpu_layer_shapes}}, .ours = {"penstock"}, .peers = torch, .dtypes = {"bf16", "f32"}}},
      {"scan", {.groups = {{{"scan", "scan-log"}, gpu_scan_shapes}}, .ours = {"penstock"}, .peers = torch}},
      {"recurrent",
       {.groups = {{{"lstm"}, gpu_lstm_shapes},
                   {{"gru"}, gpu_gru_shapes},
                   {{"slstm"}, gpu_slstm_shapes},
                   {{"elman"}, {{16, 1024, 768, 768}}}},
        .ours = {"penstock", "penstock-recurrence"},
        .peers = {"torch", "torch-loop", "flashrnn"},
        .who = "penstock, torch (cuDNN) and torch-loop (a call for every step) run the whole layer, with the product "
               "of the "
               "input. penstock-recurrence and flashrnn run the recurrence with that product given.",
        .dtypes = {"bf16"}}},
      {"batch",
       {.groups = {{{"lstm", "gru"},
                    {{1, 100, 128, 256}, {8, 100, 128, 256}, {32, 100, 128, 256}, {128, 100, 128, 256}}}},
        .ours = {"penstock"},
        .peers = torch,
        .dtypes = {"f32", "bf16"}}},
      {"throughput",
       {.groups = {{linear, gpu_batch_shapes}},
        .ours = {"penstock"},
        .peers = torch,
        .who = "torch is a Python loop over the steps.",
        .dtypes = {"bf16"}}},
      {"fused",
       {.groups = {{linear, {{64, 200, 256, 512}, {1, 200, 64, 128}}}, {{"lstm", "gru"}, {{64, 200, 256, 512}}}},
        .ours = {"penstock", "penstock-loop"},
        .peers = {"torch", "torch-loop"},
        .who = "penstock-loop and torch-loop make a call for every step. torch is such a loop, too, for minGRU and "
               "minLSTM."}},
      {"cuda_rnn",
       {.groups = {{linear, gpu_cuda_rnn_shapes}},
        .ours = {"penstock", "penstock-copied", "penstock-cpu", "penstock-direct", "penstock-scan"},
        .peers = {"torch"},
        .who = "Data are on the GPU (penstock), copied to it and back (copied), or on the CPU (cpu). " + who}},
      {"cs179",
       {.groups = {{linear, cs179_shapes()}},
        .ours = {"penstock", "penstock-direct", "penstock-scan", "penstock-cpu-sequential", "penstock-cpu-scan"},
        .peers = {"torch"},
        .who = who + " cpu: the same on the CPU, step by step or in chunks."}},
  };
}

}  // namespace penstock::bench
