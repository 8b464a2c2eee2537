#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace penstock {

/// xoshiro256** (Blackman and Vigna), seeded by splitmix64. Small, fast, and its whole state is four numbers that a
/// checkpoint can keep. The same on every platform, which std:: distributions are not.
class Random {
 public:
  using State = std::array<std::uint64_t, 4>;

  explicit Random(std::uint64_t seed = 0) {
    for (auto& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      word = z ^ (z >> 31);
    }
  }
  explicit Random(const State& state) : state_(state) {}
  const State& state() const { return state_; }

  std::uint64_t bits() {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform in 0 .. n-1, for n >= 1 (the bias of at most n / 2^64 is of no consequence here).
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>((static_cast<__uint128_t>(bits()) * static_cast<std::uint64_t>(n)) >> 64);
  }
  /// Standard normal, by Box and Muller; draws two uniforms each time so that the state alone says what comes next.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  static std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  State state_{};
};

}  // namespace penstock
