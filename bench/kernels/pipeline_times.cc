// Time of copies to and from a GPU next to its work, and how much of it CudaPipeline hides:
//   cuda_pipeline_times [T C CHUNKS]    chunks [T, C] of floats through h_t = 0.9 h_(t-1) + x_t, from memory to memory
// The last states are compared with a loop in double; exit status 1, and no time, if they are wrong.

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/staging.h"
#include "penstock/cuda.h"
#include "penstock/error.h"
#include "penstock/scan_program.h"

namespace {

using namespace penstock;  // NOLINT(google-build-using-namespace)

struct Work {
  Index steps, channels;
  int chunks;

  std::size_t values() const { return static_cast<std::size_t>(steps * channels); }
  std::size_t bytes() const { return values() * sizeof(float); }
  /// Returns the input of chunk n at step t, the same in all channels: every chunk ends differently.
  float input(int n, Index t) const { return static_cast<float>(std::sin(0.01 * static_cast<double>(n * steps + t))); }
};

template <class Call>
double milliseconds(const Call& call) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto start = Clock::now();
    call();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

/// The scan over one chunk, its state carried on.
class Scan {
 public:
  Scan(Stream& stream, const Work& work)
      : work_(work),
        program_(ScanProgram::get({.channels = work.channels, .rows = 1, .steps = work.steps, .alignment = 4},
                                  {.device = Device::cuda()})),
        gains_(stream, work.bytes()),
        state_(stream, static_cast<std::size_t>(work.channels) * sizeof(float)),
        workspace_(stream, program_->workspace_bytes()) {
    const std::vector<float> gains(work.values(), kGain);
    gains_.upload(gains.data(), gains_.bytes());
    reset(stream);
  }

  void reset(Stream& stream) {
    state_.clear();
    stream.synchronize();
  }
  void run(void* in, void* out, void* stream) {
    Context context;
    context.execution.device = Device::cuda();
    context.stream = stream;
    const Tensor state = Tensor::contiguous(state_.data(), DType::f32, {1, work_.channels}, Device::cuda());
    program_->forward(context, {.batch = {.rows = 1, .steps = work_.steps},
                                .terms = {chunk(gains_.data()), chunk(in), {}},
                                .h = chunk(out),
                                .h0 = state,
                                .hT = state,
                                .workspace = workspace_.memory()});
  }

  static constexpr float kGain = 0.9f;

 private:
  Tensor chunk(void* at) const {
    return Tensor::contiguous(at, DType::f32, {1, work_.steps, work_.channels}, Device::cuda());
  }

  Work work_;
  std::shared_ptr<const ScanProgram> program_;
  Buffer gains_, state_, workspace_;
};

/// Greatest difference of the chunks' last values from a loop in double.
double error(const Work& work, const std::vector<float>& lasts) {
  double h = 0, worst = 0;
  for (int n = 0; n < work.chunks; ++n) {
    for (Index t = 0; t < work.steps; ++t)
      h = static_cast<double>(Scan::kGain) * h + static_cast<double>(work.input(n, t));
    worst = std::max(worst, std::abs(static_cast<double>(lasts[static_cast<std::size_t>(n)]) - h));
  }
  return worst;
}

/// Copies to the GPU and back, from memory as the system gives it and from page-locked memory.
void print_copies() {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  Stream stream(Device::cuda());
  Buffer there(stream, bytes);
  std::vector<std::byte> plain(bytes, std::byte{1});
  const cuda::PinnedMemory pinned(cuda::Device::get(0), bytes);
  std::memset(pinned.data(), 1, bytes);
  const auto rate = [&](const auto& copy) { return static_cast<double>(bytes) / milliseconds(copy) / 1e6; };
  const double plain_up = rate([&] { there.upload(plain.data(), bytes); });
  const double plain_down = rate([&] { there.download(plain.data(), bytes); });
  const double pinned_up = rate([&] { there.upload(pinned.data(), bytes); });
  const double pinned_down = rate([&] { there.download(pinned.data(), bytes); });
  const double word = milliseconds([&] { there.upload(plain.data(), 4); }) * 1e3;
  fmt::print(
      "64 MB, pageable: {:.1f} GB/s to the GPU, {:.1f} back; pinned: {:.1f} and {:.1f}, {:.2f} and {:.2f} times as "
      "fast. A copy of 4 bytes that is waited for: {:.1f} us\n",
      plain_up, plain_down, pinned_up, pinned_down, pinned_up / plain_up, pinned_down / plain_down, word);
}

int run(const Work& work) {
  Stream stream(Device::cuda());
  Scan scan(stream, work);
  std::vector<std::vector<float>> inputs(static_cast<std::size_t>(work.chunks), std::vector<float>(work.values()));
  for (int n = 0; n < work.chunks; ++n) {
    for (Index t = 0; t < work.steps; ++t) {
      std::fill_n(inputs[static_cast<std::size_t>(n)].begin() + t * work.channels, work.channels, work.input(n, t));
    }
  }
  std::vector<float> output(work.values()), lasts;

  Buffer in(stream, work.bytes()), out(stream, work.bytes());
  const auto one_after_the_other = [&](bool made) {
    return milliseconds([&] {
      scan.reset(stream);
      std::vector<float> from(made ? work.values() : 0), to(from.size());
      for (const std::vector<float>& input : inputs) {
        if (made) std::memcpy(from.data(), input.data(), work.bytes());
        in.upload(made ? from.data() : input.data(), work.bytes());
        scan.run(in.data(), out.data(), stream.handle());
        out.download(made ? to.data() : output.data(), work.bytes());
        if (made) std::memcpy(output.data(), to.data(), work.bytes());
      }
    });
  };
  const double in_place = one_after_the_other(false), made = one_after_the_other(true);
  const double computing = milliseconds([&] {
    for (int n = 0; n < work.chunks; ++n) scan.run(in.data(), out.data(), stream.handle());
    stream.synchronize();
  });
  CudaPipeline pipeline(work.bytes(), work.bytes());
  const double piped = milliseconds([&] {
    scan.reset(stream);
    lasts.clear();
    std::size_t next = 0;
    pipeline.run(
        [&](void* to) {
          if (next == inputs.size()) return false;
          std::memcpy(to, inputs[next++].data(), work.bytes());
          return true;
        },
        [&](void* from, void* to, void* on) { scan.run(from, to, on); },
        [&](const void* from) {
          std::memcpy(output.data(), from, work.bytes());
          lasts.push_back(output.back());
        });
  });
  const double off = error(work, lasts);
  if (!(off < 1e-4)) {
    fmt::print("wrong by {}\n", off);
    return 1;
  }
  constexpr double kilo = 1e3;
  const double moved = 2.0 * static_cast<double>(work.bytes()) * work.chunks;
  fmt::print(
      "{} chunks of {},{}; copied, computed and copied back one after the other: {:.1f} ms ({:.1f} GB/s) where the "
      "chunks "
      "lie, {:.1f} ms where each is first written to a buffer and then read from one, as by who makes and uses them; "
      "of "
      "it {:.1f} ms of computing. As a pipeline, writing and reading included: {:.1f} ms ({:.1f} GB/s); error {:.1e}\n",
      work.chunks, work.steps, work.channels, in_place, moved / in_place / kilo / kilo, made, computing, piped,
      moved / piped / kilo / kilo, off);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Work work{16384, 1024, 12};
  try {
    if (argc == 4) work = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoi(argv[3])};
    print_copies();
    return run(work);
  } catch (const Error& error) {
    fmt::print(stderr, "cuda_pipeline_times: {}\n", error.what());
    return exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_pipeline_times: {}\n", error.what());
    return 1;
  }
}
