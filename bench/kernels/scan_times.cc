// Times the linear recurrence on a GPU against a copy of as many bytes on the device, and checks what it timed: some
// channels of the timed outputs against a loop in double. One line of Markdown a case; exit status 1, and no time, for
// one whose error is above the bound.
//
//   cuda_scan_times [--sweep|--algorithms] [CASE...]  CASE: STORAGE,DIRECTION,B,T,C[,RULE], such as
//   bf16,backward,8,16384,1024; RULE:
//                                        terms (the default), mingru or minlstm
//   cuda_scan_times --first                 what the first call of a process costs, and the host's share of later ones
//   cuda_scan_times --first-layer [STORAGE] the same of a layer, which needs cuBLASLt unless it is of floats
//
// --sweep times other shapes of blocks than the planned one as well, --algorithms both algorithms beside their
// estimates.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/driver/driver.h"
#include "backend/cuda/scan/layer.h"
#include "backend/cuda/scan/scan.h"
#include "bench/kernels/measure.h"
#include "penstock/error.h"
#include "plan/gpu/scan_rules.h"

namespace {

using namespace penstock;               // NOLINT(google-build-using-namespace)
using namespace penstock::bench::cuda;  // NOLINT(google-build-using-namespace)
using plan::GpuScanPlan;

struct Case {
  Storage storage = Storage::f32;
  bool backward = false;
  Index rows = 1, steps = 1, channels = 1;
  std::string rule = "terms";

  ScanRule scan() const { return rule == "terms" ? given_terms : scan_rule(rule); }
  Index elements() const { return rows * steps * channels; }
  Index bytes() const { return elements() * size_of(storage); }
  /// Tensors read and written, at least.
  int tensors() const { return backward ? scan().read_back + 2 + scan().gates : scan().gates + 1; }
  double moved() const { return static_cast<double>(bytes()) * tensors(); }
};

/// The tensors of a case, and what to compare with.
struct Run {
  Case c;
  Stream& stream;
  std::vector<Pattern> values;  // of the terms
  Pattern y_values, dy_values;
  std::vector<Buffer> terms, gradients;
  Buffer y, dy, workspace;

  Run(const Case& which, Stream& on)
      : c(which),
        stream(on),
        y_values(random_pattern(11, -1.0, 1.0, c.storage)),
        dy_values(random_pattern(12, -1.0, 1.0, c.storage)) {
    const auto room = [&] { return Buffer(on, static_cast<std::size_t>(c.bytes())); };
    for (int g = 0; g < c.scan().gates; ++g) {
      const bool gain = c.rule == "terms" && g == 0;
      values.push_back(random_pattern(static_cast<std::uint64_t>(g) + 1, gain ? 0.8 : -1.0, 1.0, c.storage));
      if (!c.backward || g < c.scan().read_back) terms.push_back(tensor(on, c.elements(), values.back(), c.storage));
      if (c.backward) gradients.push_back(room());
    }
    y = c.backward ? tensor(on, c.elements(), y_values, c.storage) : room();
    if (c.backward) dy = tensor(on, c.elements(), dy_values, c.storage);
  }

  DeviceSequence sequence(const Buffer& buffer) const { return {buffer.address(), c.steps * c.channels, c.channels}; }
  ScanTerms sequences(const std::vector<Buffer>& buffers) const {
    ScanTerms all;
    for (std::size_t g = 0; g < buffers.size(); ++g) all[g] = sequence(buffers[g]);
    return all;
  }
  ScanShape shape() const {
    return {.rule = c.scan(), .storage = c.storage, .rows = c.rows, .steps = c.steps, .channels = c.channels};
  }
  ScanForward forward() const { return {.shape = shape(), .terms = sequences(terms), .y = sequence(y)}; }
  ScanBackward backward() const {
    ScanBackward call;
    call.shape = shape();
    call.terms = sequences(terms);
    call.y = sequence(y), call.dy = sequence(dy);
    call.dterms = sequences(gradients);
    return call;
  }
  void poison() {
    if (!c.backward) y.fill(0xff);
    for (Buffer& gradient : gradients) gradient.fill(0xff);
  }

  /// Greatest difference over some channels of some rows, relative to the greatest value.
  double error() const {
    constexpr Index sampled_channels = 6;
    double worst = 0, scale = 0;
    const auto compare = [&](const std::vector<std::uint8_t>& got, Index t, Index j, double want) {
      const double value = read(&got[static_cast<std::size_t>((t * c.channels + j) * size_of(c.storage))], c.storage);
      const double off = std::abs(value - want);
      if (!(off <= worst)) worst = off;
      scale = std::max(scale, std::abs(want));
    };
    for (const Index row : {Index{0}, c.rows - 1}) {
      std::vector<std::vector<std::uint8_t>> outputs;
      if (!c.backward) outputs.push_back(row_of(y, row));
      for (const Buffer& gradient : gradients) outputs.push_back(row_of(gradient, row));
      for (Index k = 0; k < sampled_channels; ++k) {
        const Index j = k * (c.channels - 1) / (sampled_channels - 1);
        const auto element = [&](Index t) { return (row * c.steps + t) * c.channels + j; };
        double state = 0;
        for (Index s = 0; s < c.steps; ++s) {
          const Index t = c.backward ? c.steps - 1 - s : s;
          std::vector<double> gate;
          for (const Pattern& pattern : values) gate.push_back(pattern.at(element(t)));
          if (!c.backward) {
            state = textbook_step(c.rule, gate, state).h;
            compare(outputs[0], t, j, state);
          } else {
            const Step step = textbook_step(c.rule, gate, t > 0 ? y_values.at(element(t - 1)) : 0.0);
            const double gradient = dy_values.at(element(t)) + state;
            for (std::size_t g = 0; g < outputs.size(); ++g) compare(outputs[g], t, j, gradient * step.by_gates[g]);
            state = step.keep * gradient;
          }
        }
      }
      if (c.rows == 1) break;
    }
    return worst / scale;
  }

  std::vector<std::uint8_t> row_of(const Buffer& buffer, Index row) const {
    const auto bytes = static_cast<std::size_t>(c.bytes() / c.rows);
    std::vector<std::uint8_t> row_bytes(bytes);
    check(driver().copy_to_host(row_bytes.data(), buffer.address() + static_cast<std::size_t>(row) * bytes, bytes,
                                stream.handle()),
          "copying from the GPU");
    stream.synchronize();
    return row_bytes;
  }

  /// Milliseconds of a copy that reads and writes as many bytes as the case does.
  double copy_time(Clock& clock) const {
    const auto half = static_cast<std::size_t>(c.moved() / 2);
    Buffer from(stream, half), to(stream, half);
    from.fill(1);
    return clock.median(
        [&] { check(driver().copy_on_device(to.address(), from.address(), half, stream.handle()), "copying"); });
  }
};

double bound(Storage storage) { return storage == Storage::f32 ? 1e-5 : storage == Storage::bf16 ? 0x1p-8 : 0x1p-10; }

/// Measures one plan; false if it computes something wrong.
bool measure(Run& run, Clock& clock, const std::optional<GpuScanPlan>& chosen, double copy_ms) {
  cuda::Device& device = run.stream.device();
  const plan::GpuScanProblem problem = run.c.backward ? problem_of(run.backward()) : problem_of(run.forward());
  GpuScanPlan plan = chosen ? *chosen : plan_gpu_scan(problem, device.model());
  if (plan.algorithm != plan::ScanAlgorithm::direct) plan = complete(plan, problem, device.model());
  const ScanExecutable executable =
      run.c.backward ? ScanExecutable(device, run.backward(), plan) : ScanExecutable(device, run.forward(), plan);
  run.workspace = Buffer(run.stream, executable.workspace_bytes());
  run.workspace.fill(0);
  run.poison();
  const auto work = [&] {
    if (run.c.backward) {
      executable.run(run.backward(), run.workspace.address(), run.stream.handle());
    } else {
      executable.run(run.forward(), run.workspace.address(), run.stream.handle());
    }
  };
  const double ms = clock.median(work);
  const double error = run.error();
  const auto [registers, shared, local] = executable.kernel().resources();
  const std::string form = fmt::format("{}, estimated {:.1f} us: {} x {} threads, {} steps, {} values, {} blocks{}",
                                       to_string(plan.algorithm), plan.microseconds, plan.groups, plan.lanes,
                                       plan.steps, plan.vector, plan.blocks, plan.keep ? ", kept" : "");
  if (!(error < bound(run.c.storage))) {
    fmt::print("| {} {} {} {},{},{} | {} | wrong by {} |\n", run.c.rule, to_string(run.c.storage),
               run.c.backward ? "backward" : "forward", run.c.rows, run.c.steps, run.c.channels, form, error);
    return false;
  }
  fmt::print("| {} {} {} | {},{},{} | {} | {} | {:.4f} | {:.2f} | {:.4f} | {:.1f} % | {:.1e} |\n", run.c.rule,
             to_string(run.c.storage), run.c.backward ? "backward" : "forward", run.c.rows, run.c.steps, run.c.channels,
             form, registers, ms, run.c.moved() / ms * 1e-9, copy_ms, 100 * copy_ms / ms, error);
  std::fflush(stdout);
  return true;
}

/// Shapes of blocks worth a look: those that fill much of the shared memory or of the registers.
std::vector<GpuScanPlan> other_plans(const Case& c, const plan::GpuScanProblem& problem, const plan::GpuModel& gpu) {
  std::vector<GpuScanPlan> plans;
  const auto consider = [&](GpuScanPlan plan) {
    const int size = static_cast<int>(size_of(c.storage)), inputs = c.tensors() - (c.backward ? c.scan().gates : 1);
    const int values = plan.vector * plan.steps * (plan.keep ? 8 : inputs * size) / 4;  // registers
    const Index ring = static_cast<Index>(plan.threads()) * plan.vector * plan.steps * inputs * size;
    if (c.channels % plan.vector != 0 || ring + 16 * 1024 > gpu.block_bytes / plan.blocks) return;
    if (values > 65536 / (plan.threads() * plan.blocks) - 56 || 4 * plan.blocks * ring < gpu.shared_bytes) return;
    plan.why = "a sweep";
    try {
      plans.push_back(complete(plan, problem, gpu));
    } catch (const Error&) {
      return;  // too much shared memory beside the ring
    }
  };
  for (const int lanes : {16, 32}) {
    for (const int words : {1, 2}) {
      for (const int steps : {8, 12, 16, 24, 32}) {
        for (const int threads : {256, 512}) {
          for (const int blocks : {1, 2}) {
            GpuScanPlan plan;
            plan.lanes = lanes, plan.vector = static_cast<int>(4 / size_of(c.storage)) * words;
            plan.groups = threads / lanes, plan.steps = steps, plan.blocks = blocks;
            if (threads * blocks > 512) continue;
            consider(plan);
            plan.keep = true;
            if (c.rule != "terms" && !c.backward) consider(plan);
          }
        }
      }
    }
  }
  return plans;
}

Storage parse_storage(const std::string& text) {
  for (const Storage storage : {Storage::f32, Storage::bf16, Storage::f16}) {
    if (text == to_string(storage)) return storage;
  }
  throw Error(ErrorCode::invalid_argument, "STORAGE must be f32, bf16 or f16, not '" + text + "'");
}

Case parse(const std::string& text) {
  char storage[8] = {}, direction[16] = {}, rule[16] = "terms";
  long long rows = 0, steps = 0, channels = 0;
  if (std::sscanf(text.c_str(), "%7[^,],%15[^,],%lld,%lld,%lld,%15s", storage, direction, &rows, &steps, &channels,
                  rule) < 5) {
    throw Error(ErrorCode::invalid_argument, "CASE must be STORAGE,DIRECTION,B,T,C[,RULE], not '" + text + "'");
  }
  Case c{.backward = std::string(direction) == "backward", .rows = rows, .steps = steps, .channels = channels};
  c.rule = rule;
  c.storage = parse_storage(storage);
  return c;
}

constexpr const char* kCases[] = {"f32,forward,8,16384,1024",   "f32,backward,8,16384,1024",
                                  "bf16,forward,16,16384,1024", "bf16,backward,16,16384,1024",
                                  "f16,forward,16,16384,1024",  "f32,forward,1,4194304,256",
                                  "f32,forward,64,4096,500",    "bf16,forward,1,1048576,512"};

/// Times of a process's start, milestone after milestone.
struct Milestones {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now(), last = start;
  std::string text;

  static double since(Clock::time_point then) {
    return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
  }
  void pass(const char* what) {
    text += fmt::format("{} {:.0f} ms, ", what, since(last));
    last = Clock::now();
  }
};

/// The first result of a layer of halves, whose products are cuBLASLt's, or of floats.
int first_layer(Stream& stream, Milestones& milestones, Storage storage) {
  constexpr Index rows = 8, steps = 512, inputs = 256, hidden = 256, positions = rows * steps;
  const Index size = size_of(storage);
  const LayerSpec spec{
      .input = inputs, .hidden = hidden, .storage = storage, .bias = false, .algorithm = plan::ScanAlgorithm::scan};
  const auto room = [&](Index count) { return Buffer(stream, static_cast<std::size_t>(count * size)); };
  Buffer x = room(positions * inputs), weight = room(2 * hidden * inputs), gates = room(positions * 2 * hidden),
         y = room(positions * hidden);
  x.fill(0), weight.fill(0);
  LayerForward call;
  call.batch.rows = rows, call.batch.steps = steps;
  call.x = {x.address(), steps * inputs, inputs}, call.y = {y.address(), steps * hidden, hidden};
  call.weights.weight = weight.address(), call.gates = gates.address();
  if (storage != Storage::f32) {
    find_blas();
    milestones.pass("waiting for cuBLASLt to be open");
    start_products(0).wait();
    milestones.pass("and for its handle");
  }
  const LayerForwardExecutable executable(stream.device(), spec, call);
  milestones.pass("preparing the layer");
  Buffer workspace(stream, executable.workspace_bytes());
  workspace.fill(0);
  executable.run(call, workspace.address(), stream.handle());
  stream.synchronize();
  milestones.pass("first run");
  fmt::print("{}first result of a layer in {} after {:.0f} ms\n", milestones.text, to_string(storage),
             Milestones::since(milestones.start));
  return 0;
}

/// Prints what a process pays before its first result, and what a call costs the host afterwards.
int first_call(std::optional<Storage> layer) {
  using Clock = Milestones::Clock;
  Milestones milestones;
  std::future<void> products;
  if (layer && *layer != Storage::f32) products = start_products(0);
  driver();
  milestones.pass("driver");
  cuda::Device& device = cuda::Device::get(0);
  Stream stream(device);
  milestones.pass("its context");
  if (layer) return first_layer(stream, milestones, *layer);
  const Case c{.rows = 8, .steps = 64, .channels = 64};
  const auto bytes = static_cast<std::size_t>(c.bytes());
  const std::vector<float> ones(static_cast<std::size_t>(c.elements()), 1.0f);
  Buffer a(stream, bytes), b(stream, bytes), y(stream, bytes);
  a.upload(ones.data(), bytes);
  b.upload(ones.data(), bytes);
  const auto sequence = [&](const Buffer& of) {
    return DeviceSequence{of.address(), c.steps * c.channels, c.channels};
  };
  const ScanForward call{.shape = {.rows = c.rows, .steps = c.steps, .channels = c.channels},
                         .terms = {sequence(a), sequence(b)},
                         .y = sequence(y)};
  const ScanExecutable executable(device, call);
  Buffer workspace(stream, executable.workspace_bytes());
  workspace.fill(0);
  executable.run(call, workspace.address(), stream.handle());
  stream.synchronize();
  const double all = Milestones::since(milestones.start);
  constexpr int calls = 1000;  // as many as fit the driver's queue without waiting
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < calls; ++i) executable.run(call, workspace.address(), stream.handle());
    best = std::min(best, Milestones::since(begin) * 1e3 / calls);
    stream.synchronize();
  }
  std::vector<float> out(ones.size());
  y.download(out.data(), bytes);
  const float last = out.back();  // a sum of as many ones as there are steps
  fmt::print("{}first result after {:.0f} ms; a call costs the host {:.2f} us; last value {}\n", milestones.text, all,
             best, last);
  return last == static_cast<float>(c.steps) ? 0 : 1;
}

/// Measures the best plan of each algorithm.
bool measure_algorithms(Run& one, Clock& clock, double copy_ms) {
  const plan::GpuModel& gpu = one.stream.device().model();
  bool right = true;
  for (const auto& rule : scan_rules(one.c.backward ? problem_of(one.backward()) : problem_of(one.forward()), gpu)) {
    if (const std::optional<GpuScanPlan> plan = best_plan(rule)) right &= measure(one, clock, plan, copy_ms);
  }
  return right;
}

int run(const std::vector<std::string>& cases, bool sweep, bool algorithms) {
  cuda::Device& device = cuda::Device::get(0);
  Stream stream(device);
  Clock clock(stream);
  bool right = true;
  fmt::print(
      "{}\n\n| scan | B,T,C | block | registers | ms | TB/s | copy ms | of copy | error "
      "|\n|---|---|---|---|---|---|---|---|---|\n",
      device.model().name);
  for (const std::string& text : cases) {
    Run one(parse(text), stream);
    const double copy_ms = one.copy_time(clock);
    if (algorithms) {
      right &= measure_algorithms(one, clock, copy_ms);
      continue;
    }
    right &= measure(one, clock, std::nullopt, copy_ms);
    if (!sweep) continue;
    const plan::GpuScanProblem problem = one.c.backward ? problem_of(one.backward()) : problem_of(one.forward());
    for (const GpuScanPlan& plan : other_plans(one.c, problem, device.model())) {
      right &= measure(one, clock, plan, copy_ms);
    }
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> cases(argv + 1, argv + argc);
  const bool sweep = !cases.empty() && cases.front() == "--sweep";
  const bool algorithms = !cases.empty() && cases.front() == "--algorithms";
  if (sweep || algorithms) cases.erase(cases.begin());
  if (cases.empty()) cases.assign(std::begin(kCases), std::end(kCases));
  try {
    if (cases.front() == "--first") return first_call(std::nullopt);
    if (cases.front() == "--first-layer") return first_call(cases.size() > 1 ? parse_storage(cases[1]) : Storage::bf16);
    return run(cases, sweep, algorithms);
  } catch (const Error& error) {
    fmt::print(stderr, "cuda_scan_times: {}\n", error.what());
    return exit_status(error.code());
  }
}
