// Measurements of `penstock bench` on a CPU.

#include "bench/suite/tables.h"

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
const std::vector<Shape> latency_shapes = {{1, 1, 128, 256}, {1, 10, 128, 256}, {1, 100, 128, 256}};
const std::vector<Shape> head_shapes = {{1, 200, 256, 256, 4}, {16, 200, 256, 256, 4}};
const std::vector<Shape> cuda_rnn_shapes = {{1, 256, 64, 128}, {1, 512, 64, 128}, {1, 1024, 64, 128},
                                            {1, 256, 64, 256}, {1, 512, 64, 256}, {1, 1024, 64, 256}};

}  // namespace

ListsBySubject cpu_lists() {
  const std::vector<std::string> frameworks = {"torch", "torch-compile", "onnxruntime", "onednn", "numpy"};
  const std::vector<std::string> loops = {"numpy", "torch", "torch-compile"}, gated = {"lstm", "gru"};
  const std::vector<std::string> minimal = {"mingru", "minlstm"};
  const std::vector<std::string> algorithms = {"penstock", "penstock-sequential", "penstock-scan"};
  return {
      {"layer",
       {.groups = {{dense, dense_shapes}, {{"mingru-log", "minlstm-log"}, scan_shapes}},
        .ours = {"penstock"},
        .peers = frameworks}},
      {"scan",
       {.groups = {{{"scan", "scan-log"}, scan_shapes}}, .ours = algorithms, .peers = {"torch", "numba", "numpy"}}},
      {"stream", {.groups = {{gated, stream_shapes}}, .ours = {"penstock"}, .peers = frameworks}},
      {"batch", {.groups = {{gated, batch_shapes}}, .ours = {"penstock"}, .peers = frameworks}},
      {"latency",
       {.groups = {{{"lstm", "gru", "slstm", "mingru"}, latency_shapes}}, .ours = {"penstock"}, .peers = frameworks}},
      {"throughput",
       {.groups = {{{"lstm", "gru", "slstm", "elman", "mingru", "minlstm"}, batch_shapes}},
        .ours = {"penstock"},
        .peers = frameworks}},
      {"fused",
       {.groups = {{gated, {{64, 200, 256, 512}}}},
        .ours = {"penstock", "penstock-loop"},
        .peers = {"torch", "torch-loop"},
        .who = "penstock-loop and torch-loop call a cell for every step."}},
      {"recurrent",
       {.groups = {{dense, head_shapes}},
        .ours = {"penstock"},
        .peers = {"torch"},
        .who = "Cells with one head are in the table of layers."}},
      {"cuda_rnn",
       {.groups = {{minimal, cuda_rnn_shapes}},
        .ours = {"penstock"},
        .peers = loops,
        .who = "The numpy column is a loop over time steps, as in CUDA_RNN's process_sequence."}},
      {"cs179",
       {.groups = {{minimal, cs179_shapes()}},
        .ours = algorithms,
        .peers = loops,
        .who = "penstock runs what the planner chooses, penstock-sequential goes step by step, penstock-scan is a "
               "parallel "
               "scan."}},
  };
}

}  // namespace penstock::bench
