#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "plan/gpu/dense_rules.h"
#include "plan/gpu/product_rules.h"
#include "plan/gpu/scan_layer_rules.h"
#include "plan/gpu/scan_rules.h"

/// How long the rules of plans on GPUs take to be stated, solved and proved best: the slowest of some ten thousand
/// problems of ugly sizes, in milliseconds of the processor, the least of three runs each.
using namespace penstock;        // NOLINT(google-build-using-namespace)
using namespace penstock::plan;  // NOLINT(google-build-using-namespace)

namespace {

struct Row {
  std::string problem;
  double milliseconds;
};

template <class Make>
double milliseconds_of(const Make& make) {
  double least = 0;
  for (int run = 0; run < 3; ++run) {
    const std::clock_t begin = std::clock();
    best_plan(make());
    const double took = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    least = run == 0 ? took : std::min(least, took);
  }
  return least;
}

void measure_dense(const GpuModel& gpu, std::vector<Row>& rows) {
  using MakeRule = DenseRule (*)(const GpuDenseProblem&, const GpuModel&);
  constexpr MakeRule rules[] = {dense_head_rule, dense_cluster_rule, dense_chip_rule, dense_step_rule};
  GpuDenseProblem problem{.steps = 1024, .training = true};
  for (const char* const cell : {"elman", "gru", "gru-before", "lstm", "slstm"}) {
    for (const Index batch : {1, 3, 37, 256, 1000}) {
      for (const Index hidden : {8, 100, 509, 512, 768, 1000, 1021, 1500, 2048, 4096}) {
        for (const Storage storage : {Storage::f32, Storage::bf16}) {
          problem.cell = cell, problem.rows = batch, problem.hidden = hidden, problem.storage = storage;
          for (const bool backward : {false, true}) {
            problem.backward = backward;
            for (const MakeRule rule : rules) {
              rows.push_back(
                  {gpu.name + ", " + rule(problem, gpu).name + ": " + problem.cell +
                       fmt::format(" {} x {}, {}{}", batch, hidden, to_string(storage), backward ? ", backward" : ""),
                   milliseconds_of([&] { return rule(problem, gpu); })});
            }
          }
        }
      }
    }
  }
}

void measure_products(const GpuModel& gpu, std::vector<Row>& rows) {
  for (const Index m : {1, 17, 512, 64'000}) {
    for (const Index n : {8, 200, 1021, 4096}) {
      for (const Index k : {7, 100, 4096, 64'000}) {
        const GpuProductProblem problem{.m = m, .n = n, .k = k};
        const std::string name = fmt::format("{}, product {} x {} x {} ", gpu.name, m, n, k);
        rows.push_back({name + "by warps", milliseconds_of([&] { return warp_product_rule(problem, gpu); })});
        rows.push_back({name + "by warpgroups", milliseconds_of([&] { return warpgroup_product_rule(problem, gpu); })});
      }
    }
  }
}

void measure_scans(const GpuModel& gpu, std::vector<Row>& rows) {
  for (const Index batch : {1, 64, 512}) {
    for (const Index steps : {16, 1000, 16'384}) {
      for (const Index channels : {8, 100, 1021, 4096}) {
        GpuLayerProblem problem;
        problem.scan = {
            .rows = batch, .steps = steps, .channels = channels, .gates = 2, .read_back = 2, .computed = true};
        problem.input = 100;
        const std::string name = fmt::format("{}, scan {} x {} x {} ", gpu.name, batch, steps, channels);
        rows.push_back({name + "in one launch", milliseconds_of([&] { return fused_layer_rule(problem, gpu); })});
        rows.push_back({name + "direct", milliseconds_of([&] { return direct_scan_rule(problem.scan, gpu); })});
        rows.push_back({name + "in chunks", milliseconds_of([&] { return chunked_scan_rule(problem.scan, gpu); })});
      }
    }
  }
}

}  // namespace

int main() {
  std::vector<Row> rows;
  for (const char* const chip : {"h200", "a100", "rtx 4090", "b200"}) {
    const GpuModel gpu = named_gpu(chip);
    measure_dense(gpu, rows);
    measure_products(gpu, rows);
    measure_scans(gpu, rows);
  }
  std::ranges::sort(rows, std::ranges::greater(), &Row::milliseconds);
  fmt::print("{} problems; median {:.3f} ms\n", rows.size(), rows[rows.size() / 2].milliseconds);
  for (std::size_t i = 0; i < 10; ++i) fmt::print("{:6.2f} ms  {}\n", rows[i].milliseconds, rows[i].problem);
}
