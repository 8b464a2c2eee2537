// Times of the steps of the C runtime, one by one: the median, and what a program has to expect at worst.
//
//     runtime_times MODEL [STEPS [INPUT=EXTENTS ...]]
//
// MODEL is a file of `penstock train`, or with shapes one of `penstock import`. Repeats docs/results/streaming.md.
#include <penstock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

/// Counts times of up to 1 ms by the nanosecond, and those beyond by their order.
class Histogram {
 public:
  void add(std::int64_t ns) {
    ++count_;
    worst_ = std::max(worst_, ns);
    ++counts_[static_cast<std::size_t>(std::clamp<std::int64_t>(ns, 0, static_cast<std::int64_t>(counts_.size()) - 1))];
  }
  /// The least time that a share of all steps did not exceed.
  std::int64_t at(double share) const {
    auto left = static_cast<std::int64_t>(share * static_cast<double>(count_));
    for (std::size_t ns = 0; ns < counts_.size(); ++ns) {
      left -= counts_[ns];
      if (left < 0) return static_cast<std::int64_t>(ns);
    }
    return worst_;
  }
  std::int64_t worst() const { return worst_; }

 private:
  std::vector<std::int64_t> counts_ = std::vector<std::int64_t>(1'000'000);
  std::int64_t count_ = 0, worst_ = 0;
};

[[noreturn]] void fail(const penstock_error& error) {
  std::fprintf(stderr, "runtime_times: %s\n", error.text);
  std::exit(1);
}

penstock_model* open(const char* path, int count, char** arguments) {
  std::vector<std::string> names(static_cast<std::size_t>(count));
  std::vector<std::vector<std::int64_t>> extents(names.size());
  std::vector<penstock_shape> shapes;
  for (std::size_t i = 0; i < names.size(); ++i) {
    char* at = std::strchr(arguments[i], '=');
    if (at == nullptr) std::fprintf(stderr, "runtime_times: a shape is written as input=1,576\n"), std::exit(2);
    names[i].assign(arguments[i], at);
    do extents[i].push_back(std::strtoll(at + 1, &at, 10));
    while (*at == ',');
    shapes.push_back({names[i].c_str(), extents[i].data(), extents[i].size()});
  }
  penstock_model* model = nullptr;
  penstock_error error = {};
  penstock_status status = penstock_model_open(path, &model, &error);
  if (status == PENSTOCK_INCOMPATIBLE)
    status = penstock_network_open(path, shapes.data(), shapes.size(), &model, &error);
  if (status != PENSTOCK_OK) fail(error);
  return model;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return std::fprintf(stderr, "usage: runtime_times MODEL [STEPS [INPUT=EXTENTS ...]]\n"), 2;
  const long long steps = count > 2 ? std::atoll(arguments[2]) : 10'000'000;
  penstock_model* const model = open(arguments[1], std::max(0, count - 3), arguments + 3);
  penstock_model_info info = {};
  info.struct_size = sizeof(info);
  penstock_session* session = nullptr;
  penstock_error error = {};
  if (penstock_model_get_info(model, &info, &error) != PENSTOCK_OK ||
      penstock_session_open(model, nullptr, 0, &session, &error) != PENSTOCK_OK) {
    fail(error);
  }
  std::vector<float> features(info.inputs), outputs(info.outputs);
  Histogram times;
  std::uint32_t random = 1;
  for (long long step = -1000; step < steps; ++step) {
    for (float& feature : features) {
      random = random * 1664525U + 1013904223U;
      feature = static_cast<float>(random >> 8) / static_cast<float>(1 << 24) - 0.5F;
    }
    const auto begin = std::chrono::steady_clock::now();
    const penstock_status status =
        info.vocabulary > 0
            ? penstock_session_step_token(session, static_cast<std::int32_t>(random % info.vocabulary), outputs.data(),
                                          outputs.size(), &error)
            : penstock_session_step(session, features.data(), features.size(), outputs.data(), outputs.size(), &error);
    const auto end = std::chrono::steady_clock::now();
    if (status != PENSTOCK_OK) fail(error);
    if (step >= 0) times.add(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
  }
  const char* set = "";
  penstock_model_get_instruction_set(model, &set, nullptr);
  std::printf("%lld steps on %s, ns: median %lld, p99 %lld, p99.99 %lld, worst %lld\n", steps, set,
              static_cast<long long>(times.at(0.5)), static_cast<long long>(times.at(0.99)),
              static_cast<long long>(times.at(0.9999)), static_cast<long long>(times.worst()));
  penstock_session_close(session, nullptr);
  penstock_model_close(model, nullptr);
  return 0;
}
