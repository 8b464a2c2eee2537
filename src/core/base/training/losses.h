// The losses of regression, as functions of the difference of an output and its target, in double. One text for
// training on CPUs and for kernels. The including file defines PENSTOCK_STEP. penstock/learning_rules.h lists them,
// after cross-entropy. Freestanding, without include guard.

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
