// The losses of regression, as functions of the difference of an output and its target, in double. One text for
// training on CPUs and for kernels. The including file defines PENSTOCK_STEP. Freestanding, without include guard.

/// X(kind, rule) for each of them: `kind` in LossKind, after cross-entropy and in this order, and its rule below.
#define PENSTOCK_REGRESSION_LOSSES(X) \
  X(mse, SquaredError)                \
  X(mae, AbsoluteError)

struct SquaredError {
  PENSTOCK_STEP double Term(double difference) { return difference * difference; }
  PENSTOCK_STEP double Slope(double difference) { return 2.0 * difference; }
};

struct AbsoluteError {
  PENSTOCK_STEP double Term(double difference) { return fabs(difference); }
  PENSTOCK_STEP double Slope(double difference) {
    return difference > 0.0 ? 1.0 : difference < 0.0 ? -1.0 : difference;  // NaN stays NaN
  }
};
