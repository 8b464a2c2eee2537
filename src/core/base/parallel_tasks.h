#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include "base/denormals.h"
#include "penstock/stop.h"

namespace penstock {

/// Calls each(0) to each(count - 1) on up to `threads` threads, each of which takes the next index when it is done: for
/// work of a tenth of a second and more. All of them treat denormal numbers as the caller does. If some fail, throws
/// what the first of them threw.
template <class Each>
void side_by_side(int threads, std::size_t count, const Each& each) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<std::size_t> next{0};
  const DenormalMode mode = DenormalMode::of_this_thread();
  const std::atomic<bool>* const asked_to_stop = Stoppable::of_this_thread();
  const auto work = [&] {
    const WithDenormals as_the_caller(mode);
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        stop_if_asked();
        each(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < std::min(count, static_cast<std::size_t>(threads)); ++i) {
      helpers.emplace_back([&] {
        const Stoppable with_the_caller(asked_to_stop);
        work();
      });
    }
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

/// Runs work that is mostly compilation, such as kernels that no cache holds.
template <class Each>
void side_by_side(std::size_t count, const Each& each) {
  constexpr unsigned most_compilers = 16;
  side_by_side(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, most_compilers)), count, each);
}

}  // namespace penstock
