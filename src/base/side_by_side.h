#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace penstock {

/// each(0) to each(count - 1) on several threads, for work that is mostly the compiler's: a kernel that no cache holds
/// takes a tenth of a second and more. If some fail, throws what the first of them threw.
template <class Each>
void side_by_side(std::size_t count, const Each& each) {
  constexpr unsigned most_compilers = 16;
  const auto threads =
      std::min<std::size_t>(count, std::clamp(std::thread::hardware_concurrency(), 1u, most_compilers));
  std::vector<std::exception_ptr> failures(count);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        each(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace penstock
