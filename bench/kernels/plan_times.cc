// Times the plans of every algorithm for layers on a GPU, beside their estimates (docs/results/planning.md):
//   plan_times FILE [CANDIDATES SECONDS UNTIL FIRST SEED]              adds a JSON line for each problem to FILE, and
//                                                                      prints a summary; status 3: the GPU failed
//   plan_times --compile FOLDER [CANDIDATES SECONDS UNTIL FIRST SEED]  only fills the cache of kernels; processes share
//                                                                      the layers by files in FOLDER
// CANDIDATES plans of each algorithm (1), each for SECONDS (0.02), from layer FIRST (0) on until UNTIL seconds (3600)
// are over. The layers are those of kLayers, and kDrawn that are drawn at random from SEED (46).

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/driver/device.h"
#include "base/random.h"
#include "penstock/error.h"
#include "penstock/tune.h"

namespace {

using namespace penstock;  // NOLINT(google-build-using-namespace)
using Json = nlohmann::ordered_json;

constexpr int kDrawn = 60;
constexpr Precision kPrecisions[] = {Precision::bf16, Precision::f16, Precision::tf32, Precision::full};
constexpr const char* kCells[] = {"lstm", "gru", "elman", "slstm", "mingru", "minlstm"};
constexpr const char* kPrecisionNames[] = {"bf16", "f16", "tf32", "f32"};

struct Layer {
  const char* cell;
  Precision precision;
  Index rows = 1, steps = 1, input = 1, hidden = 1, heads = 1;
};

/// Layers that are compared with other libraries.
const std::vector<Layer> kLayers = {
    {"lstm", Precision::bf16, 256, 128, 2048, 2048}, {"gru", Precision::bf16, 256, 128, 2048, 2048},
    {"lstm", Precision::f16, 16, 1024, 768, 768},    {"gru", Precision::f16, 16, 1024, 768, 768},
    {"lstm", Precision::bf16, 96, 200, 700, 900},    {"gru", Precision::bf16, 96, 200, 700, 900},
    {"lstm", Precision::full, 64, 512, 1024, 1024},  {"lstm", Precision::tf32, 64, 512, 1024, 1024},
    {"lstm", Precision::bf16, 16, 512, 64, 4096},    {"lstm", Precision::bf16, 64, 512, 1024, 1024},
    {"lstm", Precision::bf16, 256, 256, 1024, 1024}, {"lstm", Precision::f16, 16, 1024, 512, 512},
    {"lstm", Precision::f16, 16, 1024, 1024, 1024},  {"lstm", Precision::bf16, 96, 200, 700, 1000},
    {"lstm", Precision::bf16, 96, 200, 700, 1100},   {"lstm", Precision::bf16, 96, 200, 700, 1500},
    {"lstm", Precision::bf16, 16, 128, 2048, 2048},  {"lstm", Precision::bf16, 64, 128, 1024, 3072},
    {"lstm", Precision::bf16, 256, 64, 1024, 4096},
};

/// Returns a number of low .. high whose logarithm is uniform.
Index size_between(Random& random, double low, double high) {
  return std::llround(std::exp(random.uniform(std::log(low), std::log(high))));
}

/// Returns kLayers and layers of all cells and precisions in turn: a half with 32, 64, ... units, and a half with any
/// number.
std::vector<Layer> layers(std::uint64_t seed) {
  std::vector<Layer> all = kLayers;
  Random random(seed);
  for (int i = 0; i < kDrawn; ++i) {
    Layer layer{.cell = kCells[i % 6], .precision = kPrecisions[i / 6 % 4]};
    const bool heads = i % 6 < 4 && random.below(2) == 0;
    layer.heads = heads ? 1 + random.below(4) : 1;
    const Index multiple = layer.heads * (random.below(2) == 0 ? 32 : 1);
    layer.rows = size_between(random, 1, 256), layer.steps = size_between(random, 16, 256);
    layer.input = size_between(random, 16, 1024);
    layer.hidden = std::max<Index>(1, size_between(random, 16, 2048) / multiple) * multiple;
    all.push_back(layer);
  }
  return all;
}

std::string precision_name(Precision precision) {
  return kPrecisionNames[std::ranges::find(kPrecisions, precision) - std::begin(kPrecisions)];
}

std::string name_of(const Layer& layer) {
  return fmt::format("{} {} {}x{}x{}x{} heads={}", layer.cell, precision_name(layer.precision), layer.rows, layer.steps,
                     layer.input, layer.hidden, layer.heads);
}

LayerQuestion question_of(const Layer& layer) {
  LayerQuestion question{.cell = layer.cell, .rows = layer.rows, .steps = layer.steps};
  question.input = layer.input, question.hidden = layer.hidden, question.heads = layer.heads;
  question.training = true;
  question.execution.device = Device::cuda();
  question.execution.precision = layer.precision;
  return question;
}

Json json_of(const TunedWork& work, const Layer& layer, bool drawn) {
  std::vector<double> costs;
  for (const auto& [name, value] : plan::named_costs(cuda::Device::get(0).model().costs)) costs.push_back(value);
  Json json = {{"work", work.work}, {"layer", name_of(layer)}, {"drawn", drawn},
               {"node", work.node}, {"gain", work.gain()},     {"steps", layer.steps}};
  const auto plan_json = [&](const MeasuredPlan& plan) {
    Json one = {{"rule", plan.rule}, {"us", plan.microseconds}, {"estimated", plan.estimated}};
    if (work.estimate && !plan.rule.empty()) one["estimated_op"] = work.estimate(plan, costs);
    for (const auto& [name, value] : plan.variables) one["variables"][name] = value;
    return one;
  };
  json["planned"] = plan_json(work.planned), json["planned"]["text"] = work.planned.text;
  json["best"] = plan_json(work.best);
  for (const MeasuredPlan& plan : work.measured) json["measured"].push_back(plan_json(plan));
  return json;
}

/// "chip 812 (790), cluster 1040 (1100)": times and estimates.
std::string times_of(const TunedWork& work) {
  std::string text;
  for (const MeasuredPlan& plan : work.measured) {
    text += fmt::format("{}{} {:.1f} ({:.1f})", text.empty() ? "" : ", ", plan.rule, plan.microseconds, plan.estimated);
  }
  return text;
}

/// Returns whether this process is the first to take a layer.
bool claims(const std::string& folder, std::size_t layer) {
  std::FILE* const file = std::fopen(fmt::format("{}/{}", folder, layer).c_str(), "wx");
  if (file != nullptr) std::fclose(file);
  return file != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool compiles = std::string(argv[1]) == "--compile" && argc > 2;
  const int first = compiles ? 3 : 2;
  const auto number = [&](int at, double otherwise) {
    return argc > first + at ? std::strtod(argv[first + at], nullptr) : otherwise;
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds_so_far = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  TuneOptions options;
  options.candidates = static_cast<int>(number(0, 1));
  options.seconds = compiles ? 1e-6 : number(1, 0.02);
  const double until = number(2, 3600);
  std::FILE* const file = compiles ? nullptr : std::fopen(argv[1], "a");
  const std::vector<Layer> all = layers(static_cast<std::uint64_t>(number(4, 46)));
  std::set<std::string> known;
  std::size_t good = 0, good_drawn = 0, drawn = 0, done = 0;
  for (auto i = static_cast<std::size_t>(number(3, 0)); i < all.size() && seconds_so_far() < until; ++i) {
    if (compiles && !claims(argv[2], i)) continue;
    std::vector<TunedWork> works;
    try {
      works = tune(question_of(all[i]), options);
    } catch (const Error& error) {
      fmt::print("layer {}, {}: {}\n", i, name_of(all[i]), error.what());
      if (error.code() == ErrorCode::device_failure) return 3;
    }
    ++done;
    if (file == nullptr) continue;
    const bool by_chance = i >= kLayers.size();
    for (const TunedWork& work : works) {
      if (!known.insert(work.work).second) continue;
      fmt::print(file, "{}\n", json_of(work, all[i], by_chance).dump());
      const bool near = work.gain() <= 1.10;
      good += near ? 1 : 0, drawn += by_chance ? 1 : 0, good_drawn += near && by_chance ? 1 : 0;
      if (near) continue;
      fmt::print("{:.2f}  {} T={}: {:.1f} ({:.1f}); {}\n", work.gain(), work.work, all[i].steps,
                 work.planned.microseconds, work.planned.estimated, times_of(work));
    }
    std::fflush(file), std::fflush(stdout);
  }
  if (file == nullptr) return 0;
  std::fclose(file);
  fmt::print("within 1.10: {} of {} problems ({} of {} of drawn layers); {} of {} layers measured in {:.0f} s\n", good,
             known.size(), good_drawn, drawn, done, all.size(), seconds_so_far());
}
