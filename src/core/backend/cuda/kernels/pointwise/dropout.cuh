// Which values a dropout keeps.

#include "base/counter_random.h"

struct Dropout {
  unsigned long long key;
  unsigned threshold;
  float scale;

  __device__ __forceinline__ explicit Dropout(const DropoutArguments& args)
      : key(penstock::counter_random::key_of(*args.seed, args.site)), threshold(args.threshold), scale(args.scale) {}

  /// The value of that index as it leaves the dropout.
  __device__ __forceinline__ float of(float value, Index index) const {
    const bool kept = penstock::counter_random::keeps(key, (unsigned long long)index, threshold);
    return kept ? scale * value : 0.0f;
  }
};
