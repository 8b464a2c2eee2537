// The update rules of optimisers. One text for training on CPUs and for kernels. The including file defines
// PENSTOCK_STEP, StepSqrt(x), StepDivide(a, b) and StepSign(x). penstock/learning_rules.h lists them. Freestanding,
// without include guard.

// A rule updates a value and its moments by the gradient; V is float, or a vector of floats. `args` has the
// coefficients of the run, `state` the factors of the step (StepState); `keep` is the fraction of the value that weight
// decay keeps. With one moment, `second` is not read. No product is fused with a sum, so that every instruction set has
// the same bits.

// kCorrects: the first steps make up for moments that begin at zero (StepState::rate, root_correction).

/// Loshchilov and Hutter 2019.
struct AdamW {
  static constexpr int kMoments = 2;
  static constexpr bool kCorrects = true;
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
  static constexpr bool kCorrects = false;
  template <class V, class Arguments, class State>
  PENSTOCK_STEP void Update(const Arguments& args, const State& state, V keep, V gradient, V& value, V& first, V&) {
    first = V(args.beta1) * first + gradient * V(state.gradient_factor);
    value = keep * value - V(state.rate) * first;
  }
};

/// Chen et al. 2023, algorithm 2: the sign of an average of gradients.
struct Lion {
  static constexpr int kMoments = 1;
  static constexpr bool kCorrects = false;
  template <class V, class Arguments, class State>
  PENSTOCK_STEP void Update(const Arguments& args, const State& state, V keep, V gradient, V& value, V& first, V&) {
    const V g = gradient * V(state.gradient_factor);
    const V direction = StepSign(V(args.beta1) * first + V(args.rest1) * g);
    value = keep * value - V(state.rate) * direction;
    first = V(args.beta2) * first + V(args.rest2) * g;
  }
};

/// Hinton 2012, as PyTorch has it but with decoupled weight decay: the gradient over the root of an average of its
/// squares, whose weight of the past is beta2.
struct RmsProp {
  static constexpr int kMoments = 1;
  static constexpr bool kCorrects = false;
  template <class V, class Arguments, class State>
  PENSTOCK_STEP void Update(const Arguments& args, const State& state, V keep, V gradient, V& value, V& first, V&) {
    const V g = gradient * V(state.gradient_factor);
    first = V(args.beta2) * first + V(args.rest2) * g * g;
    value = keep * value - StepDivide(V(state.rate) * g, StepSqrt(first) + V(args.epsilon));
  }
};

/// No optimiser: keeps the moving average of the values in `first` (StepState::average_rest).
struct WeightAverage {
  static constexpr int kMoments = 1;
  static constexpr bool kCorrects = false;
  template <class V, class Arguments, class State>
  PENSTOCK_STEP void Update(const Arguments&, const State& state, V, V, V& value, V& first, V&) {
    first = first + V(state.average_rest) * (value - first);
  }
};
