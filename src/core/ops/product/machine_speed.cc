#include "ops/product/machine_speed.h"

#include <cstring>
#include <memory>

#include "backend/cuda/driver/device.h"
#include "backend/cuda/driver/driver.h"
#include "base/threads.h"
#include "ops/memory/moment.h"
#include "ops/product/linear.h"

namespace penstock::ops {

namespace {

/// Seconds of the quickest of a few runs, after one that warms up.
template <class Work>
double quickest(Queue& queue, const Work& work) {
  constexpr int runs = 5;
  Moment start(queue), end(queue);
  double best = 0.0;
  for (int run = 0; run <= runs; ++run) {
    start.set();
    work();
    end.set();
    const double seconds = end.since(start);
    if (run == 1 || seconds < best) best = seconds;
  }
  return best;
}

double copied_in_a_second(Queue& queue, int threads) {
  constexpr std::size_t bytes = std::size_t{256} << 20, grain = std::size_t{1} << 20;
  Buffer from(queue, bytes), to(queue, bytes);
  from.zero();
  to.zero();
  const double seconds = quickest(queue, [&] {
    if (queue.device().is_cuda()) {
      const auto address = [](const Buffer& buffer) { return reinterpret_cast<cuda::DeviceAddress>(buffer.data()); };
      cuda::check(cuda::driver().copy_on_device(address(to), address(from), bytes,
                                                static_cast<cuda::StreamHandle>(queue.stream())),
                  "copying");
      return;
    }
    parallel_for(threads, static_cast<Index>(bytes), static_cast<Index>(grain), [&](Index begin, Index end) {
      std::memcpy(static_cast<std::byte*>(to.data()) + begin, static_cast<const std::byte*>(from.data()) + begin,
                  static_cast<std::size_t>(end - begin));
    });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

double products_in_a_second(Queue& queue, Target target, int threads) {
  const Index size = target.device.is_cuda() ? 4096 : 1024;
  target.rows = 1;
  target.steps = size;
  const std::unique_ptr<Executable> product = linear_forward({size, size}).prepare(target);
  const auto square = static_cast<std::size_t>(size * size);
  Buffer x(queue, square * size_of(target.dtype)), y(queue, square * size_of(target.dtype));
  // Bytes for the parameters, which a GPU may read in the smaller type of the activations.
  Buffer weight(queue, square * size_of(target.master())), bias(queue, static_cast<std::size_t>(size) * 8);
  Buffer scratch(queue, product->scratch_bytes()), persistent(queue, product->persistent_bytes());
  for (Buffer* buffer : {&x, &y, &weight, &bias, &persistent}) buffer->zero();
  void* const values[] = {x.data(), weight.data(), bias.data(), y.data()};
  const Call call{.batch = {.rows = 1, .steps = size}, .threads = threads, .stream = queue.stream()};
  const double seconds = quickest(queue, [&] { product->run(call, {values, scratch.data(), persistent.data()}); });
  return 2.0 * static_cast<double>(square) * static_cast<double>(size) / seconds;
}

}  // namespace

MachineSpeed measure_machine_speed(Queue& queue, const Target& target) {
  const int threads = resolve_threads(target.execution.threads);
  return {copied_in_a_second(queue, threads), products_in_a_second(queue, target, threads)};
}

}  // namespace penstock::ops
