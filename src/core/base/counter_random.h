#pragma once

// Random numbers as functions of a counter, so that any thread of any device draws any of them by itself. Freestanding:
// the host's compiler and NVRTC both read this text.

#ifdef __CUDACC_RTC__
#define PENSTOCK_COUNTER static __device__ __forceinline__
#else
#define PENSTOCK_COUNTER inline
#endif

namespace penstock::counter_random {

using Word = unsigned long long;

/// 2^64 over the golden ratio: what splitmix64 adds from number to number.
static constexpr Word golden = 0x9e3779b97f4a7c15ULL;

/// The finaliser of splitmix64, a bijection whose bits look independent of those of its argument.
PENSTOCK_COUNTER Word mix(Word z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// Returns the key of a site's numbers: of a dropout of a model, or a stream of tokens.
PENSTOCK_COUNTER Word key_of(Word seed, Word site) { return mix(seed + golden * (site + 1)); }

/// The number of that index.
PENSTOCK_COUNTER Word bits(Word key, Word index) { return mix(key + golden * index); }

/// Uniform in [0, 1).
PENSTOCK_COUNTER double uniform(Word key, Word index) {
  return static_cast<double>(bits(key, index) >> 11) * (1.0 / 9007199254740992.0);
}

/// Returns whether dropout keeps the value of that index; `threshold` is 2^32 times the probability of dropping it.
PENSTOCK_COUNTER bool keeps(Word key, Word index, unsigned threshold) {
  return static_cast<unsigned>(bits(key, index) >> 32) >= threshold;
}

/// Returns what Random(seed).bits() draws first (xoshiro256** after splitmix64).
PENSTOCK_COUNTER Word first_draw(Word seed) {
  const Word word = mix(seed + 2 * golden) * 5;
  return ((word << 7) | (word >> 57)) * 9;
}

/// The seed of a training step's dropouts.
PENSTOCK_COUNTER Word seed_of_step(Word seed, Word step) { return first_draw(seed ^ (golden * (step + 1))); }

}  // namespace penstock::counter_random
