#pragma once

// Some hundreds of problems for the planner, and what it chooses for each as a line of text: "problem | plan | cost".

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "penstock/error.h"
#include "plan/cell_table.h"
#include "plan/gpu/dense.h"
#include "plan/gpu/product.h"
#include "plan/gpu/scan_layer.h"
#include "plan/h200.h"
#include "plan/plan.h"

namespace penstock::plan::test {

struct Choice {
  std::string problem, plan;
  double cost = 0;  ///< As estimated, in whatever the planner counts; 0: it chose by rules alone
};

/// One of so many of the problems that nested loops go through. The number has no divisor in common with the length of
/// any of the loops, so that every value of each of them takes part, and with most values of the others.
class OneOf {
 public:
  explicit OneOf(int all) : all_(all) {}
  bool next() { return seen_++ % all_ == 0; }

 private:
  int all_, seen_ = 0;
};

/// Returns an H200, an A100 and an RTX 5090 as the driver describes them.
inline std::vector<GpuModel> chips() {
  return {h200(),
          {.name = "A100",
           .compute_major = 8,
           .multiprocessors = 108,
           .threads = 2048,
           .registers = 65536,
           .shared_bytes = 167936,
           .block_bytes = 166912},
          {.name = "RTX 5090",
           .compute_major = 12,
           .multiprocessors = 170,
           .threads = 1536,
           .registers = 65536,
           .shared_bytes = 102400,
           .block_bytes = 101376}};
}

inline Choice choice_of(const GpuProductProblem& problem, const GpuModel& gpu) {
  const GpuProductPlan p = plan_gpu_product(problem, gpu);
  return {fmt::format("product {} {}x{}x{}{}{}{}", gpu.name, problem.m, problem.n, problem.k,
                      problem.a_transposed ? " at" : "", problem.b_transposed ? " bt" : "",
                      problem.one_split ? " one" : ""),
          fmt::format("{} {}x{} {}x{} depth {} blocks {} ahead {} most_m {} shared {} splits {} of {}",
                      p.pairs        ? "pairs"
                      : p.warpgroups ? "warpgroups"
                                     : "warps",
                      p.teams_m, p.teams_n, p.tiles_m, p.tiles_n, p.depth, p.blocks, p.ahead, p.most_m, p.shared,
                      p.splits, p.split_k),
          p.cycles};
}

inline std::string text_of(const GpuScanPlan& p) {
  return fmt::format("{} vector {} lanes {} groups {} steps {} piece {} keep {} window {} blocks {} shared {} grid {}",
                     to_string(p.algorithm), p.vector, p.lanes, p.groups, p.steps, p.piece, p.keep, p.window, p.blocks,
                     p.shared, p.grid);
}

inline std::string text_of(const GpuScanProblem& p) {
  return fmt::format("{} {}x{}x{} gates {} aligned {}{}{}{}{}", to_string(p.storage), p.rows, p.steps, p.channels,
                     p.gates, p.alignment, p.backward ? " backward" : "", p.computed ? " computed" : "",
                     p.lengths ? " lengths" : "", p.reset ? " reset" : "");
}

inline Choice choice_of(const GpuScanProblem& problem, const GpuModel& gpu) {
  return {fmt::format("scan {} {}", gpu.name, text_of(problem)), text_of(plan_gpu_scan(problem, gpu)), 0};
}

inline std::string text_of(const GpuDensePlan& p) {
  return fmt::format(
      "{} slots {} warps {} resident {}/{} blocks {} stages {} shared {} grid {} cluster {} x {} groups {} parts {}",
      to_string(p.algorithm), p.slots, p.warps, p.resident, p.chunks, p.blocks, p.stages, p.shared, p.grid, p.cluster,
      p.octets, p.groups, p.parts);
}

inline Choice choice_of(const GpuDenseProblem& problem, const GpuModel& gpu) {
  const std::string name =
      fmt::format("dense {} {} {} {}x{} heads of {}{}{}{} by {}", gpu.name, problem.cell, to_string(problem.storage),
                  problem.rows, problem.heads, problem.head_size(), problem.backward ? " backward" : "",
                  problem.training ? " training" : "", problem.ragged ? " ragged" : "", to_string(problem.algorithm));
  try {
    const GpuDensePlan p = plan_gpu_dense(problem, gpu);
    return {name, text_of(p), p.microseconds};
  } catch (const Error& error) {
    return {name, error.code() == ErrorCode::unsupported ? "refused" : error.what(), 0};
  }
}

inline Choice choice_of(const GpuLayerProblem& problem, const GpuModel& gpu) {
  const GpuScanPlan p = plan_gpu_layer(problem, gpu);
  return {fmt::format("layer {} {} input {}{}{}", gpu.name, text_of(problem.scan), problem.input,
                      problem.keep_gates ? " keep" : "", problem.tf32 ? " tf32" : ""),
          text_of(p), p.microseconds};
}

inline Choice choice_of(const Problem& problem, const CpuModel& cpu) {
  const Plan p = make_plan(problem, cpu);
  return {fmt::format("cpu {} {}x{} hidden {} heads {} threads {}{}", problem.cell->info.name, problem.rows,
                      problem.steps, problem.hidden, problem.heads, problem.threads, problem.exact ? " exact" : ""),
          fmt::format("{} {} x {} chunk {}", to_string(p.algorithm), p.row_parts, p.channel_parts, p.chunk),
          p.microseconds};
}

template <class Visit>
void visit_products(const Visit& visit) {
  OneOf selection(7);
  const std::vector<GpuProductProblem> products = {
      {64'000, 200, 100},  {64'000, 100, 200}, {200, 100, 64'000}, {4096, 512, 256},   {4096, 256, 512},
      {512, 256, 4096},    {32'768, 512, 256}, {512, 256, 32'768}, {8192, 2048, 1024}, {2048, 1024, 8192},
      {1, 1, 1},           {33, 7, 513},       {1, 4096, 1024},    {128, 128, 128},    {1000, 1000, 1000},
      {1'000'000, 64, 64}, {16, 3072, 768},    {97, 389, 65'537}};
  for (const GpuModel& gpu : chips()) {
    for (GpuProductProblem p : products) {
      for (const int form : {0, 1, 2}) {
        p.a_transposed = form == 2, p.b_transposed = p.one_split = form == 1;
        if (selection.next()) visit(p, gpu);
      }
    }
  }
}

template <class Visit>
void visit_scans(const Visit& visit) {
  OneOf selection(7);
  for (const GpuModel& gpu : chips()) {
    for (const Storage storage : {Storage::f32, Storage::bf16}) {
      for (const Index steps : {16, 4096}) {
        for (const Index channels : {1, 100, 1024}) {
          for (const int form : {0, 1, 2, 3, 4, 5}) {
            GpuScanProblem p{.storage = storage, .rows = 8, .steps = steps, .channels = channels};
            p.backward = form % 2 == 1, p.computed = form >= 2;
            p.gates = form >= 4 ? 3 : 2, p.read_back = p.computed ? p.gates : 1;
            p.lengths = form >= 3 && steps == 4096;
            p.alignment = channels % 8 == 0 ? 16 : channels % 4 == 0 ? 4 : size_of(storage);
            if (selection.next()) visit(p, gpu);
          }
        }
      }
    }
  }
}

template <class Visit>
void visit_layers(const Visit& visit) {
  OneOf selection(7);
  const std::vector<std::array<Index, 4>> shapes = {
      {1, 1, 64, 128},       {1, 16, 64, 128},    {1, 128, 64, 128},    {1, 1024, 64, 128}, {1, 16'384, 64, 128},
      {64, 16, 100, 100},    {64, 128, 100, 100}, {64, 1000, 100, 100}, {64, 64, 256, 256}, {8, 1024, 1024, 1024},
      {8, 4096, 1024, 1024}, {3, 333, 7, 33},     {5, 777, 1, 1},       {16, 256, 23, 100}, {2, 4096, 512, 40}};
  for (const auto& [rows, steps, input, hidden] : shapes) {
    for (const Storage storage : {Storage::f32, Storage::bf16}) {
      for (const int gates : {2, 3}) {
        for (const bool keep : {false, true}) {
          GpuLayerProblem p;
          p.scan = {.storage = storage, .rows = rows, .steps = steps, .channels = hidden};
          p.scan.computed = true, p.scan.gates = p.scan.read_back = gates;
          p.scan.alignment = hidden % 8 == 0 ? 16 : size_of(storage);
          p.input = input, p.keep_gates = keep;
          if (selection.next()) visit(p, h200());
        }
      }
    }
  }
}

template <class Visit>
void visit_dense(const Visit& visit) {
  OneOf selection(7);
  const std::vector<std::array<Index, 3>> shapes = {
      // rows, heads, D
      {16, 12, 64}, {16, 6, 128}, {256, 12, 64}, {1, 1, 64},    {7, 3, 33},   {16, 1, 256}, {16, 1, 512}, {1, 1, 512},
      {16, 1, 768}, {64, 1, 768}, {4, 2, 384},   {16, 1, 1024}, {33, 1, 300}, {5, 1, 8},    {16, 4, 17}};
  for (const GpuModel& gpu : chips()) {
    for (const auto& [rows, heads, head] : shapes) {
      for (const char* cell : {"elman", "gru", "lstm", "slstm"}) {
        for (const int form : {0, 1, 2, 3}) {
          GpuDenseProblem p;
          p.cell = cell, p.storage = form == 3 ? Storage::f32 : Storage::bf16;
          p.rows = rows, p.steps = 1024, p.heads = heads, p.hidden = heads * head;
          p.training = form == 1, p.backward = form == 2 || form == 3, p.ragged = form == 2;
          for (const DenseAlgorithm algorithm :
               {DenseAlgorithm::automatic, DenseAlgorithm::cluster, DenseAlgorithm::chip}) {
            p.algorithm = algorithm;
            const bool apart = algorithm == DenseAlgorithm::automatic || gpu.compute_major == 9;
            if (apart && selection.next()) visit(p, gpu);
          }
        }
      }
    }
  }
}

template <class Visit>
void visit_cpu(const Visit& visit) {
  OneOf selection(11);
  CpuModel cpu;
  cpu.vector_bytes = 64;
  for (const char* cell : {"elman", "lstm", "mingru"}) {
    for (const Index rows : {1, 2, 5, 15, 16, 23, 64}) {
      for (const Index hidden : {32, 96, 512}) {
        for (const int threads : {1, 2, 3, 8, 64}) {
          Problem p;
          p.cell = &cell_traits(cell), p.rows = rows, p.steps = rows % 2 == 0 ? 100 : 5000;
          p.hidden = hidden, p.threads = threads, p.heads = hidden == 96 ? 3 : 1;
          p.exact = rows == 23;
          if (selection.next()) visit(p, cpu);
        }
      }
    }
  }
}

/// Calls visit(problem, machine) for every problem.
template <class Visit>
void visit_problems(const Visit& visit) {
  visit_products(visit);
  visit_scans(visit);
  visit_layers(visit);
  visit_dense(visit);
  visit_cpu(visit);
}

}  // namespace penstock::plan::test
