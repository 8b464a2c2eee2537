// The update rules of optimisers, for one value. One text for training on CPUs and for kernels. The including file
// defines PENSTOCK_STEP, StepSqrt(x) and StepDivide(a, b), and includes step_state.h before. Freestanding, without
// include guard.

/// X(kind, rule) for each of them: `kind` in OptimizerKind, in this order, and its rule below.
#define PENSTOCK_OPTIMIZERS(X) \
  X(adamw, AdamW)              \
  X(sgd, Sgd)

// A rule updates a value and its moments by the gradient. `args` has the coefficients of the run; `keep` is what weight
// decay leaves of the value. With one moment, `second` is not read.

/// Loshchilov and Hutter 2019. CPUs run the same rule over vectors (backend/cpu/elementwise.inl).
struct AdamW {
  static constexpr int kMoments = 2;
  template <class Arguments>
  PENSTOCK_STEP void Update(const Arguments& args, const StepState& state, float keep, float gradient, float& value,
                            float& first, float& second) {
    const float g = gradient * state.gradient_factor;
    first = args.beta1 * first + args.rest1 * g;
    second = args.beta2 * second + args.rest2 * g * g;
    const float root = StepSqrt(second) * state.root_correction + args.epsilon;
    value = keep * value - StepDivide(state.rate * first, root);
  }
};

/// SGD with momentum, which is beta1.
struct Sgd {
  static constexpr int kMoments = 1;
  template <class Arguments>
  PENSTOCK_STEP void Update(const Arguments& args, const StepState& state, float keep, float gradient, float& value,
                            float& first, float&) {
    first = args.beta1 * first + gradient * state.gradient_factor;
    value = keep * value - state.rate * first;
  }
};
