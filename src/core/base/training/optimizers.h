// The update rules of optimisers. One text for training on CPUs and for kernels. The including file defines
// PENSTOCK_STEP, StepSqrt(x) and StepDivide(a, b). Freestanding, without include guard.

/// X(kind, rule) for each of them: `kind` in OptimizerKind, in this order, and its rule below.
#define PENSTOCK_OPTIMIZERS(X) \
  X(adamw, AdamW)              \
  X(sgd, Sgd)

// A rule updates a value and its moments by the gradient; V is float, or a vector of floats. `args` has the
// coefficients of the run, `state` the factors of the step (StepState); `keep` is the fraction of the value that weight
// decay keeps. With one moment, `second` is not read. No product is fused with a sum, so that every instruction set has
// the same bits.

/// Loshchilov and Hutter 2019.
struct AdamW {
  static constexpr int kMoments = 2;
  template <class V, class Arguments, class State>
  PENSTOCK_STEP void Update(const Arguments& args, const State& state, V keep, V gradient, V& value, V& first,
                            V& second) {
    const V g = gradient * V(state.gradient_factor);
    first = V(args.beta1) * first + V(args.rest1) * g;
    second = V(args.beta2) * second + V(args.rest2) * g * g;
    const V root = StepSqrt(second) * V(state.root_correction) + V(args.epsilon);
    value = keep * value - StepDivide(V(state.rate) * first, root);
  }
};

/// SGD with momentum, which is beta1.
struct Sgd {
  static constexpr int kMoments = 1;
  template <class V, class Arguments, class State>
  PENSTOCK_STEP void Update(const Arguments& args, const State& state, V keep, V gradient, V& value, V& first, V&) {
    first = V(args.beta1) * first + gradient * V(state.gradient_factor);
    value = keep * value - V(state.rate) * first;
  }
};
