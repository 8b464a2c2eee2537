// Times of LSTMs of the sizes of amplifier models, a sample at a time and in chunks, beside other libraries:
//
//     amplifier_times [STEPS] [LAYERSxUNITS ...] [PEER.so ...]
//
// Denormal numbers count as zeros, as on the threads of audio hosts; with KEEP_DENORMALS=1 they do not.
// All run the same random weights on the same samples. A peer is a shared library that exports
// `void* peer_open(const char* nam)`, which returns null for sizes that it does not have, and
// `void peer_run(void* model, const float* x, float* y, size_t samples)`. Repeats docs/results/streaming.md.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <penstock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <list>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "penstock/network.h"
#include "penstock/recurrent.h"

namespace penstock {
namespace {

constexpr std::size_t kSamples = 512, kChunk = 64, kTurns = 400;

struct Sizes {
  Index layers, hidden;
};
constexpr Sizes kSizes[] = {{1, 8}, {1, 16}, {1, 24}, {1, 32}, {1, 40}, {2, 16}, {1, 64}, {1, 128}};

/// The weights of an LSTM in the order of Neural Amp Modeler.
struct Amplifier {
  Sizes sizes;
  std::vector<float> weights;

  explicit Amplifier(Sizes of) : sizes(of) {
    std::mt19937 random(7);
    const double bound = 1 / std::sqrt(static_cast<double>(of.hidden));
    std::uniform_real_distribution<float> uniform(static_cast<float>(-bound), static_cast<float>(bound));
    const auto add = [&](Index count, bool zero = false) {
      for (Index i = 0; i < count; ++i) weights.push_back(zero ? 0.0f : uniform(random));
    };
    for (Index layer = 0; layer < of.layers; ++layer) {
      add(4 * of.hidden * (input(layer) + of.hidden + 1));
      add(2 * of.hidden, true);
    }
    add(of.hidden + 1);
  }

  Index input(Index layer) const { return layer == 0 ? 1 : sizes.hidden; }
  std::string nam() const {
    return fmt::format(R"({{"version": "0.5.4", "architecture": "LSTM", "config": {{"input_size": 1, )"
                       R"("hidden_size": {}, "num_layers": {}}}, "weights": [{}]}})",
                       sizes.hidden, sizes.layers, fmt::join(weights, ", "));
  }
};

/// A library that is timed. A call of run() takes `together` samples.
struct Contender {
  std::string name;
  std::size_t together;
  std::function<void(const float* x, float* y)> run;
  std::vector<double> turns = {};  ///< ns a sample.
  std::vector<float> outputs = {};
};

void must(penstock_status status, const penstock_error& error) {
  if (status != PENSTOCK_OK) throw std::runtime_error(error.text);
}

Contender of_runtime(const std::string& file, std::size_t together) {
  penstock_model* model = nullptr;
  penstock_session* session = nullptr;
  penstock_error error = {};
  const std::int64_t extents[] = {1, static_cast<std::int64_t>(together), 1};
  const penstock_shape shape = {"input", extents, 3};
  must(penstock_network_open(file.c_str(), &shape, 1, &model, &error), error);
  must(penstock_session_open(model, nullptr, 0, &session, &error), error);
  return {"penstock.h", together, [session, together](const float* x, float* y) {
            penstock_error failure;
            must(penstock_session_step(session, x, together, y, together, &failure), failure);
          }};
}

/// Layers of Recurrent, with the head as a loop.
class Layers {
 public:
  explicit Layers(const Amplifier& of)
      : network_({.input_size = 1, .hidden_size = of.sizes.hidden, .layers = of.sizes.layers}) {
    const float* at = of.weights.data();
    const Index hidden = of.sizes.hidden;
    for (Index layer = 0; layer < of.sizes.layers; ++layer) {
      const auto parameter = [&](const char* name) {
        return network_.parameter(fmt::format("{}_l{}", name, layer)).value;
      };
      const auto ih = parameter("weight_ih"), hh = parameter("weight_hh"), bias = parameter("bias_ih");
      const Index inputs = of.input(layer);
      for (Index row = 0; row < 4 * hidden; ++row) {
        std::copy_n(at, inputs, &ih[static_cast<std::size_t>(row * inputs)]);
        std::copy_n(at + inputs, hidden, &hh[static_cast<std::size_t>(row * hidden)]);
        at += inputs + hidden;
      }
      std::copy_n(at, 4 * hidden, bias.begin());
      std::ranges::fill(parameter("bias_hh"), 0.0f);
      at += 6 * hidden;
    }
    network_.weights_changed();
    head_.assign(at, at + hidden + 1);
    state_.resize(static_cast<std::size_t>(network_.state_size()));
    y_.resize(static_cast<std::size_t>(hidden));
  }
  void run(const float* x, float* y) {
    network_.step(1, x, y_.data(), state_.data());
    float sum = head_.back();
    for (std::size_t i = 0; i < y_.size(); ++i) sum += head_[i] * y_[i];
    *y = sum;
  }

 private:
  Recurrent<float> network_;
  std::vector<float> head_, state_, y_;
};

void add_peer(const char* path, const Amplifier& amplifier, std::list<Contender>& contenders) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto open = reinterpret_cast<void* (*)(const char*)>(dlsym(library, "peer_open"));
  const auto run = reinterpret_cast<void (*)(void*, const float*, float*, std::size_t)>(dlsym(library, "peer_run"));
  if (open == nullptr || run == nullptr) throw std::runtime_error(fmt::format("{} is no peer", path));
  for (const std::size_t together : {std::size_t{1}, kChunk}) {
    void* const model = open(amplifier.nam().c_str());
    if (model == nullptr) return;
    contenders.push_back(
        {std::filesystem::path(path).stem(), together, [=](const float* x, float* y) { run(model, x, y, together); }});
  }
}

double turn(Contender& contender, const std::vector<float>& x) {
  contender.outputs.resize(x.size());
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < x.size(); i += contender.together) contender.run(&x[i], &contender.outputs[i]);
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return time.count() / static_cast<double>(x.size());
}

double share(std::vector<double>& sorted, double of) {
  return sorted[static_cast<std::size_t>(of * static_cast<double>(sorted.size() - 1))];
}

/// Times single calls: a line of what a program has to expect at worst.
void print_worst(Contender& contender, const std::vector<float>& x, long steps) {
  std::vector<float> y(x.size());
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(steps));
  for (std::size_t i = 0; times.size() < times.capacity(); i = (i + 1) % x.size()) {
    const auto begin = std::chrono::steady_clock::now();
    contender.run(&x[i], &y[i]);
    times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(times);
  fmt::print("    single steps: mean {:.0f}, median {:.0f}, p99.99 {:.0f}, worst {:.0f}\n",
             std::reduce(times.begin(), times.end()) / static_cast<double>(times.size()), share(times, 0.5),
             share(times, 0.9999), times.back());
}

void measure(Sizes sizes, long steps, std::span<const char* const> peers) {
  const Amplifier amplifier(sizes);
  const std::string nam = amplifier.nam();
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("amplifier{}.safetensors", std::random_device()());
  Network::import_audio(std::as_bytes(std::span(nam))).save(file);
  std::list<Contender> contenders = {of_runtime(file, 1), of_runtime(file, kChunk)};
  std::filesystem::remove(file);
  Layers layers(amplifier);
  if (steps == 0) contenders.push_back({"Recurrent::step", 1, [&](const float* x, float* y) { layers.run(x, y); }});
  for (const char* peer : peers) add_peer(peer, amplifier, contenders);
  std::vector<float> x(kSamples);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = 0.8f * std::sin(0.11f * static_cast<float>(i) + 1e-4f * static_cast<float>(i * i));
  for (std::size_t t = 0; t < kTurns; ++t) {
    for (Contender& contender : contenders) contender.turns.push_back(turn(contender, x));
  }
  fmt::print("{} x {}\n", sizes.layers, sizes.hidden);
  for (Contender& contender : contenders) {
    double far = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      far = std::max(far, std::abs(static_cast<double>(contender.outputs[k] - contenders.front().outputs[k])));
    }
    std::ranges::sort(contender.turns);
    fmt::print("  {:<24}{:>4} together: least {:.1f}, quartiles {:.1f} {:.1f} {:.1f} ns, differs by {:.1e}\n",
               contender.name, contender.together, contender.turns.front(), share(contender.turns, 0.25),
               share(contender.turns, 0.5), share(contender.turns, 0.75), far);
    if (steps > 0 && contender.together == 1) print_worst(contender, x, steps);
  }
}

}  // namespace
}  // namespace penstock

int main(int count, char** arguments) {
  const long steps = count > 1 ? std::atol(arguments[1]) : 0;
#if defined(__SSE2__)
  // As hosts of audio plug-ins do, and these libraries ask for: denormal numbers count as zeros.
  if (std::getenv("KEEP_DENORMALS") == nullptr) _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
  std::vector<penstock::Sizes> sizes;
  std::vector<const char*> peers;
  for (const char* argument : std::span(arguments, static_cast<std::size_t>(count)).subspan(std::min(2, count))) {
    int layers = 0, hidden = 0, end = 0;
    if (std::sscanf(argument, "%dx%d%n", &layers, &hidden, &end) == 2 && argument[end] == 0) {
      sizes.push_back({layers, hidden});
    } else {
      peers.push_back(argument);
    }
  }
  if (sizes.empty()) sizes.assign(std::begin(penstock::kSizes), std::end(penstock::kSizes));
  try {
    for (const auto& each : sizes) penstock::measure(each, steps, peers);
  } catch (const std::exception& error) {
    fmt::print(stderr, "amplifier_times: {}\n", error.what());
    return 1;
  }
}
