#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/kernel.h"
#include "base/random.h"
#include "base/timing.h"
#include "penstock/error.h"
#include "plan/gpu/scan.h"

/// Numbers to measure with and a clock, for the programs that measure on a GPU.
namespace penstock::bench::cuda {

using namespace penstock::cuda;  // NOLINT(google-build-using-namespace): these programs are about nothing else
using penstock::cuda::Buffer;    // not those of any device
using penstock::cuda::Stream;
using plan::Storage;

/// Measures case after case; one that cannot run is a row that says why. False if any was not right.
template <typename Measure>
bool measure_each(const std::vector<std::string>& cases, const Measure& measure) {
  bool right = true;
  for (const std::string& text : cases) {
    try {
      right &= measure(text);
    } catch (const Error& error) {
      fmt::print("| {} | {} |\n", text, error.what());
      right = false;
    }
  }
  return right;
}

/// Runs one of these programs: run(cases) with the cases on its command line, or `usual` ones. Returns its exit status.
template <typename Run>
int run_program(const char* name, int argc, char** argv, std::span<const char* const> usual, const Run& run) {
  std::vector<std::string> cases(argv + 1, argv + argc);
  if (cases.empty()) cases.assign(usual.begin(), usual.end());
  try {
    return run(cases);
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

/// A number of size below 65504 as a half: 10 stored bits of mantissa, exponents from -14 on.
inline std::uint16_t half_of(double x) {
  const int exponent = std::max(x == 0 ? -14 : std::ilogb(x), -14);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(std::abs(x), 10 - exponent)));  // below 2048
  return static_cast<std::uint16_t>((x < 0 ? 0x8000 : 0) + ((exponent + 14) << 10) + units);
}

inline double value_of_half(std::uint16_t half) {
  const int exponent = half >> 10 & 31, units = (half & 1023) + (exponent > 0 ? 1024 : 0);
  return (half & 0x8000 ? -1 : 1) * std::ldexp(units, std::max(exponent, 1) - 25);
}

inline double read(const std::uint8_t* p, Storage storage) {
  float single = 0;
  std::uint16_t half = 0;
  std::memcpy(storage == Storage::f32 ? static_cast<void*>(&single) : &half, p,
              static_cast<std::size_t>(size_of(storage)));
  if (storage == Storage::f32) return single;
  if (storage == Storage::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
  return value_of_half(half);
}

/// Random numbers as they lie in memory and as double. Tensors repeat a pattern of prime length, so that no two
/// channels and no two rows are alike.
struct Pattern {
  std::vector<std::uint8_t> bytes;
  std::vector<double> values;
  double at(Index element) const { return values[static_cast<std::size_t>(element) % values.size()]; }
};

inline Pattern random_pattern(std::uint64_t seed, double low, double high, Storage storage) {
  constexpr std::size_t length = 1'000'003;
  const auto size = static_cast<std::size_t>(size_of(storage));
  Pattern pattern;
  pattern.bytes.resize(length * size);
  Random random(seed);
  for (std::size_t i = 0; i < length; ++i) {
    const auto value = static_cast<float>(low + (high - low) * random.uniform());
    const std::uint16_t f16 = half_of(value);
    std::uint8_t* p = &pattern.bytes[i * size];
    if (storage == Storage::f32) std::memcpy(p, &value, 4);
    if (storage == Storage::bf16) std::memcpy(p, reinterpret_cast<const std::uint8_t*>(&value) + 2, 2);
    if (storage == Storage::f16) std::memcpy(p, &f16, 2);
    pattern.values.push_back(read(p, storage));
  }
  return pattern;
}

/// A tensor of that many elements that repeats the pattern.
inline Buffer tensor(Stream& stream, Index elements, const Pattern& pattern, Storage storage) {
  const auto bytes = static_cast<std::size_t>(elements * size_of(storage));
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

/// `count` elements of a buffer from `first` on.
inline std::vector<double> elements(const Buffer& buffer, Index first, Index count, Storage storage, Stream& stream) {
  const Index size = size_of(storage);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count * size));
  check(driver().copy_to_host(bytes.data(), buffer.address() + static_cast<DeviceAddress>(first * size), bytes.size(),
                              stream.handle()),
        "copying from the GPU");
  stream.synchronize();
  std::vector<double> values;
  for (Index i = 0; i < count; ++i) values.push_back(read(&bytes[static_cast<std::size_t>(i * size)], storage));
  return values;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// One step of one channel, as a textbook has it: its state and how that depends on what made it.
struct Step {
  double h = 0, keep = 0;        // keep: by the state before
  std::vector<double> by_gates;  // by each gate
};

inline Step textbook_step(const std::string& rule, const std::vector<double>& gate, double before) {
  if (rule == "terms") return {gate[0] * before + gate[1], gate[0], {before, 1}};
  if (rule == "mingru") {
    const double z = sigmoid(gate[0]);
    return {(1 - z) * before + z * gate[1], 1 - z, {z * (1 - z) * (gate[1] - before), z}};
  }
  const double f = sigmoid(gate[0]), i = sigmoid(gate[1]), sum = f + i, keep = f / sum;
  const double by_keep = before - gate[2];
  return {keep * before + i / sum * gate[2],
          keep,
          {by_keep * i / (sum * sum) * f * (1 - f), -by_keep * f / (sum * sum) * i * (1 - i), i / sum}};
}

/// Median milliseconds of a piece of work, of 25 after 3 to warm up. Whatever L2 holds of it is overwritten before
/// each.
class Clock {
 public:
  explicit Clock(Stream& stream) : stream_(stream), flushed_(stream, std::size_t{256} << 20) {
    check(driver().event_create(&start_, event_default), "making an event");
    check(driver().event_create(&end_, event_default), "making an event");
  }
  ~Clock() {
    driver().event_destroy(start_);
    driver().event_destroy(end_);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  double median(const std::function<void()>& work) {
    std::vector<double> times;
    for (int i = 0; i < 28; ++i) {
      const double milliseconds = once(work);
      if (i >= 3) times.push_back(milliseconds);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }

  /// Seconds of each of as many calls as together take `seconds`, and of three at least, after one to warm up.
  std::vector<double> sample(double seconds, const std::function<void()>& work) {
    return sample_calls(seconds, [&] { return once(work) * 1e-3; });
  }

  /// Milliseconds that the host spends on one call, while the GPU is not waited for.
  double host(const std::function<void()>& work) {
    using Steady = std::chrono::steady_clock;
    constexpr int calls = 200;  // as many as the driver's queue holds
    double best = 1e9;
    for (int repeat = 0; repeat < 3; ++repeat) {
      stream_.synchronize();
      const Steady::time_point begin = Steady::now();
      for (int i = 0; i < calls; ++i) work();
      best = std::min(best, std::chrono::duration<double, std::milli>(Steady::now() - begin).count() / calls);
    }
    stream_.synchronize();
    return best;
  }

 private:
  /// Milliseconds of one piece of work.
  double once(const std::function<void()>& work) {
    float milliseconds = 0;
    flushed_.fill(0);
    check(driver().event_record(start_, stream_.handle()), "timing");
    work();
    check(driver().event_record(end_, stream_.handle()), "timing");
    check(driver().event_synchronize(end_), "timing");
    check(driver().event_elapsed(&milliseconds, start_, end_), "timing");
    return static_cast<double>(milliseconds);
  }

  Stream& stream_;
  Buffer flushed_;
  EventHandle start_ = nullptr, end_ = nullptr;
};

/// Times of the kernels that this thread launches.
class KernelTimes : public penstock::cuda::LaunchObserver {
 public:
  explicit KernelTimes(Stream& stream) : stream_(stream) { Kernel::observe(this); }
  ~KernelTimes() override {
    Kernel::observe(nullptr);
    for (const EventHandle event : events_) driver().event_destroy(event);
  }
  KernelTimes(const KernelTimes&) = delete;
  KernelTimes& operator=(const KernelTimes&) = delete;

  void before_launch() override { record(); }
  void after_launch(const std::string& kernel) override {
    record();
    kernels_.push_back(kernel);
  }

  std::string text() {
    stream_.synchronize();
    std::string all;
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      float milliseconds = 0;
      check(driver().event_elapsed(&milliseconds, events_[2 * i], events_[2 * i + 1]), "timing");
      all += fmt::format("{}{} {:.0f} us", i == 0 ? "" : ", ", kernels_[i], 1e3F * milliseconds);
    }
    return all;
  }

 private:
  void record() {
    events_.push_back(nullptr);
    check(driver().event_create(&events_.back(), event_default), "making an event");
    check(driver().event_record(events_.back(), stream_.handle()), "timing");
  }

  Stream& stream_;
  std::vector<EventHandle> events_;
  std::vector<std::string> kernels_;
};

/// Returns the kernels that `work` launches, in that order: "SplitPairs 12 us, ...".
inline std::string times_of_kernels(Stream& stream, const std::function<void()>& work) {
  KernelTimes times(stream);
  work();
  return times.text();
}

}  // namespace penstock::bench::cuda
