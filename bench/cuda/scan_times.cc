// Times the linear recurrence on a GPU against a copy of as many bytes on the device, and checks what it timed: some
// channels of the timed outputs against a loop in double. One line of Markdown a case; exit status 1, and no time, for
// one whose error is above the bound.
//
//   cuda_scan [--sweep] [CASE...]       CASE: STORAGE,DIRECTION,B,T,C such as bf16,backward,8,16384,1024
//   cuda_scan --first                   what the first call of a process costs, and the host's share of later ones
//
// --sweep times other shapes of blocks than the planned one as well.

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

#include "backend/cuda/driver.h"
#include "backend/cuda/scan.h"
#include "base/random.h"
#include "penstock/error.h"

namespace {

using namespace penstock;
using namespace penstock::cuda;
using plan::GpuScanPlan;
using plan::Storage;

struct Case {
  Storage storage = Storage::f32;
  bool backward = false;
  Index rows = 1, steps = 1, channels = 1;

  Index elements() const { return rows * steps * channels; }
  Index bytes() const { return elements() * size_of(storage); }
  /// Read and written, at least.
  double moved() const { return static_cast<double>(bytes()) * (backward ? 5 : 3); }
};

/// Numbers as they lie in memory and as double. Tensors repeat a pattern of prime length, so that no two channels and
/// no two rows are alike.
struct Pattern {
  std::vector<std::uint8_t> bytes;
  std::vector<double> values;
  double at(Index element) const { return values[static_cast<std::size_t>(element) % values.size()]; }
};

double read(const std::uint8_t* p, Storage storage) {
  float single = 0;
  std::uint16_t half = 0;
  std::memcpy(storage == Storage::f32 ? static_cast<void*>(&single) : &half, p,
              static_cast<std::size_t>(size_of(storage)));
  if (storage == Storage::f32) return single;
  if (storage == Storage::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
  _Float16 value = 0;
  std::memcpy(&value, &half, sizeof half);
  return static_cast<double>(value);
}

Pattern random_pattern(std::uint64_t seed, double low, double high, Storage storage) {
  constexpr std::size_t length = 1'000'003;
  Pattern pattern;
  pattern.bytes.resize(length * static_cast<std::size_t>(size_of(storage)));
  Random random(seed);
  for (std::size_t i = 0; i < length; ++i) {
    const auto value = static_cast<float>(low + (high - low) * random.uniform());
    const auto f16 = static_cast<_Float16>(value);
    std::uint8_t* p = &pattern.bytes[i * static_cast<std::size_t>(size_of(storage))];
    if (storage == Storage::f32) std::memcpy(p, &value, 4);
    if (storage == Storage::bf16) std::memcpy(p, reinterpret_cast<const std::uint8_t*>(&value) + 2, 2);
    if (storage == Storage::f16) std::memcpy(p, &f16, 2);
    pattern.values.push_back(read(p, storage));
  }
  return pattern;
}

/// A tensor that repeats the pattern.
Buffer tensor(Stream& stream, const Case& c, const Pattern& pattern) {
  const auto bytes = static_cast<std::size_t>(c.bytes());
  Buffer buffer(stream, bytes);
  std::size_t done = std::min(bytes, pattern.bytes.size());
  buffer.upload(pattern.bytes.data(), done);
  while (done < bytes) {
    const std::size_t more = std::min(done, bytes - done);
    check(driver().copy_on_device(buffer.address() + done, buffer.address(), more, stream.handle()), "repeating");
    done += more;
  }
  return buffer;
}

/// Median milliseconds of one call, of 25 after 3 to warm up.
double time_of(Stream& stream, const std::function<void()>& work) {
  EventHandle start = nullptr, end = nullptr;
  check(driver().event_create(&start, event_default), "making an event");
  check(driver().event_create(&end, event_default), "making an event");
  std::vector<float> times;
  for (int i = 0; i < 28; ++i) {
    float milliseconds = 0;
    check(driver().event_record(start, stream.handle()), "timing");
    work();
    check(driver().event_record(end, stream.handle()), "timing");
    check(driver().event_synchronize(end), "timing");
    check(driver().event_elapsed(&milliseconds, start, end), "timing");
    if (i >= 3) times.push_back(milliseconds);
  }
  driver().event_destroy(start);
  driver().event_destroy(end);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return static_cast<double>(times[times.size() / 2]);
}

/// The tensors of a case, and what to compare with.
struct Run {
  Case c;
  Stream& stream;
  Pattern first, second, third;
  Buffer a, b, y, da, db, workspace;

  Run(const Case& which, Stream& on)
      : c(which),
        stream(on),
        first(random_pattern(1, 0.8, 1.0, c.storage)),
        second(random_pattern(2, -1.0, 1.0, c.storage)),
        third(random_pattern(3, -1.0, 1.0, c.storage)) {
    a = tensor(on, c, first);
    b = tensor(on, c, second);
    if (c.backward) y = tensor(on, c, third);
    da = Buffer(on, static_cast<std::size_t>(c.bytes()));
    if (c.backward) db = Buffer(on, static_cast<std::size_t>(c.bytes()));
  }

  DeviceSequence sequence(const Buffer& buffer) const { return {buffer.address(), c.steps * c.channels, c.channels}; }
  ScanShape shape() const { return {.storage = c.storage, .rows = c.rows, .steps = c.steps, .channels = c.channels}; }
  ScanForward forward() const { return {.shape = shape(), .terms = {sequence(a), sequence(b)}, .y = sequence(da)}; }
  ScanBackward backward() const {
    return {.shape = shape(),
            .terms = {sequence(a)},
            .y = sequence(y),
            .dy = sequence(b),
            .dterms = {sequence(da), sequence(db)}};
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
      const std::vector<std::uint8_t> out = row_of(da, row),
                                      other = c.backward ? row_of(db, row) : std::vector<std::uint8_t>{};
      for (Index k = 0; k < sampled_channels; ++k) {
        const Index j = k * (c.channels - 1) / (sampled_channels - 1);
        const auto element = [&](Index t) { return (row * c.steps + t) * c.channels + j; };
        double state = 0;
        for (Index s = 0; s < c.steps; ++s) {
          if (!c.backward) {
            state = first.at(element(s)) * state + second.at(element(s));
            compare(out, s, j, state);
          } else {
            const Index t = c.steps - 1 - s;
            const double gradient = second.at(element(t)) + state;
            compare(other, t, j, gradient);
            compare(out, t, j, t > 0 ? gradient * third.at(element(t - 1)) : 0.0);
            state = first.at(element(t)) * gradient;
          }
        }
      }
      if (c.rows == 1) break;
    }
    return worst / scale;
  }

  std::vector<std::uint8_t> row_of(const Buffer& buffer, Index row) const {
    const auto bytes = static_cast<std::size_t>(c.bytes() / c.rows);
    std::vector<std::uint8_t> values(bytes);
    check(driver().copy_to_host(values.data(), buffer.address() + static_cast<std::size_t>(row) * bytes, bytes,
                                stream.handle()),
          "copying from the GPU");
    stream.synchronize();
    return values;
  }

  /// Milliseconds of a copy that reads and writes as many bytes as the case does.
  double copy_time() const {
    const auto half = static_cast<std::size_t>(c.moved() / 2);
    Buffer from(stream, half), to(stream, half);
    from.fill(1);
    return time_of(stream, [&] {
      check(driver().copy_on_device(to.address(), from.address(), half, stream.handle()), "copying");
    });
  }
};

double bound(Storage storage) { return storage == Storage::f32 ? 1e-5 : storage == Storage::bf16 ? 0x1p-8 : 0x1p-10; }

/// Measures one plan; false if it computes something wrong.
bool measure(Run& run, const std::optional<GpuScanPlan>& chosen, double copy_ms) {
  Device& device = run.stream.device();
  const plan::GpuScanProblem problem = run.c.backward ? problem_of(run.backward()) : problem_of(run.forward());
  const GpuScanPlan plan = chosen ? complete(*chosen, problem, device.model()) : plan_gpu_scan(problem, device.model());
  const ScanExecutable executable =
      run.c.backward ? ScanExecutable(device, run.backward(), plan) : ScanExecutable(device, run.forward(), plan);
  run.workspace = Buffer(run.stream, executable.workspace_bytes());
  run.workspace.fill(0);
  run.da.fill(0xff);
  run.db.fill(0xff);
  const auto work = [&] {
    if (run.c.backward) {
      executable.run(run.backward(), run.workspace.address(), run.stream.handle());
    } else {
      executable.run(run.forward(), run.workspace.address(), run.stream.handle());
    }
  };
  const double ms = time_of(run.stream, work);
  const double error = run.error();
  const auto [registers, shared, local] = executable.kernel().resources();
  const std::string form = fmt::format("{} x {} threads, {} steps, {} values, {} tiles, {} blocks", plan.groups,
                                       plan.lanes, plan.steps, plan.vector, plan.depth, plan.blocks);
  if (!(error < bound(run.c.storage))) {
    fmt::print("| {} {} {},{},{} | {} | wrong by {} |\n", to_string(run.c.storage),
               run.c.backward ? "backward" : "forward", run.c.rows, run.c.steps, run.c.channels, form, error);
    return false;
  }
  fmt::print("| {} {} | {},{},{} | {} | {} | {:.4f} | {:.2f} | {:.4f} | {:.1f} % | {:.1e} |\n",
             to_string(run.c.storage), run.c.backward ? "backward" : "forward", run.c.rows, run.c.steps, run.c.channels,
             form, registers, ms, run.c.moved() / ms * 1e-9, copy_ms, 100 * copy_ms / ms, error);
  std::fflush(stdout);
  return true;
}

/// Shapes of blocks worth a look: those that fill much of the shared memory.
std::vector<GpuScanPlan> other_plans(const Case& c, const plan::GpuModel& gpu) {
  std::vector<GpuScanPlan> plans;
  for (const int words : {1, 2, 4}) {
    for (const int steps : {8, 16, 32}) {
      for (const int groups : {8, 16}) {
        for (const int depth : {1, 2}) {
          GpuScanPlan plan;
          plan.vector = 4 / size_of(c.storage) * words;
          plan.groups = groups, plan.steps = steps, plan.depth = depth;
          plan.why = "a sweep";
          const Index ring = Index{128} * words * steps * groups * depth * (c.backward ? 3 : 2);
          plan.blocks = static_cast<int>(
              std::min<Index>(gpu.shared_bytes / (ring + plan.tile_channels() * (groups + 28) * 8), 6));
          plan.blocks = std::min(plan.blocks, 48 / groups);
          const bool fits = plan.blocks >= 1 && plan.tile_channels() <= plan.threads() && c.channels % plan.vector == 0;
          if (fits && plan.blocks * ring > gpu.shared_bytes / 2 && words * steps >= 16 && words * steps <= 32)
            plans.push_back(plan);
        }
      }
    }
  }
  return plans;
}

Case parse(const std::string& text) {
  char storage[8] = {}, direction[16] = {};
  long long rows = 0, steps = 0, channels = 0;
  if (std::sscanf(text.c_str(), "%7[^,],%15[^,],%lld,%lld,%lld", storage, direction, &rows, &steps, &channels) != 5) {
    throw Error(ErrorCode::invalid_argument, "CASE must be STORAGE,DIRECTION,B,T,C, not '" + text + "'");
  }
  Case c{.backward = std::string(direction) == "backward", .rows = rows, .steps = steps, .channels = channels};
  for (const Storage s : {Storage::f32, Storage::bf16, Storage::f16}) {
    if (storage == std::string(to_string(s))) c.storage = s;
  }
  return c;
}

constexpr const char* kCases[] = {"f32,forward,8,16384,1024",   "f32,backward,8,16384,1024",
                                  "bf16,forward,16,16384,1024", "bf16,backward,16,16384,1024",
                                  "f16,forward,16,16384,1024",  "f32,forward,1,4194304,256",
                                  "f32,forward,64,4096,500",    "bf16,forward,1,1048576,512"};

/// Prints what a process pays before its first result, and what a call costs the host afterwards.
int first_call() {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const Clock::time_point start = Clock::now();
  Device& device = Device::get(0);
  Stream stream(device);
  const double context = since(start);
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
  const double all = since(start);
  constexpr int calls = 1000;  // as many as fit the driver's queue without waiting
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < calls; ++i) executable.run(call, workspace.address(), stream.handle());
    best = std::min(best, since(begin) * 1e3 / calls);
    stream.synchronize();
  }
  std::vector<float> out(ones.size());
  y.download(out.data(), bytes);
  const float last = out.back();  // a sum of as many ones as there are steps
  fmt::print(
      "driver and context {:.0f} ms; first result after {:.0f} ms; a call costs the host {:.2f} us; last value {}\n",
      context, all, best, last);
  return last == static_cast<float>(c.steps) ? 0 : 1;
}

int run(const std::vector<std::string>& cases, bool sweep) {
  Device& device = Device::get(0);
  Stream stream(device);
  bool right = true;
  fmt::print(
      "{}\n\n| scan | B,T,C | block | registers | ms | TB/s | copy ms | of copy | error "
      "|\n|---|---|---|---|---|---|---|---|---|\n",
      device.model().name);
  for (const std::string& text : cases) {
    Run one(parse(text), stream);
    const double copy_ms = one.copy_time();
    right &= measure(one, std::nullopt, copy_ms);
    if (!sweep) continue;
    for (const GpuScanPlan& plan : other_plans(one.c, device.model())) right &= measure(one, plan, copy_ms);
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> cases(argv + 1, argv + argc);
  const bool sweep = !cases.empty() && cases.front() == "--sweep";
  if (sweep) cases.erase(cases.begin());
  if (cases.empty()) cases.assign(std::begin(kCases), std::end(kCases));
  try {
    if (cases.front() == "--first") return first_call();
    return run(cases, sweep);
  } catch (const Error& error) {
    fmt::print(stderr, "cuda_scan: {}\n", error.what());
    return exit_status(error.code());
  }
}
