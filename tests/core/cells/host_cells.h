#pragma once

#include <cmath>

/// The cells by themselves, without an engine: over double, and over floats one at a time.
namespace penstock::cells_on_host {

/// A float as the prelude wants its value types.
struct Single {
  float value;
  Single() = default;
  explicit Single(float of) : value(of) {}

  friend Single operator+(Single a, Single b) { return Single(a.value + b.value); }
  friend Single operator-(Single a, Single b) { return Single(a.value - b.value); }
  friend Single operator*(Single a, Single b) { return Single(a.value * b.value); }
  friend Single operator/(Single a, Single b) { return Single(a.value / b.value); }
  friend Single MulAdd(Single a, Single b, Single c) { return Single(std::fma(a.value, b.value, c.value)); }
  friend Single Max(Single a, Single b) { return a.value < b.value ? b : a; }
  friend Single Abs(Single x) { return Single(std::fabs(x.value)); }
  friend Single Round(Single x) { return Single(std::nearbyint(x.value)); }
  friend Single Pow2(Single n) { return Single(std::ldexp(1.0f, static_cast<int>(n.value))); }
  friend Single Clamp(Single x, Single low, Single high) {
    return x.value < low.value ? low : x.value > high.value ? high : x;
  }
  friend Single SelectPositive(Single x, Single a, Single b) { return x.value >= 0 ? a : b; }
  friend Single SelectZero(Single x, Single a, Single b) { return x.value == 0 ? a : b; }
};

inline double number(double x) { return x; }
inline double number(Single x) { return x.value; }
inline void assign(double& to, double x) { to = x; }
inline void assign(Single& to, double x) { to = Single(static_cast<float>(x)); }

#include "cells/gate_functions.h"

#include "cells/list.h"

#include "cells/contract.h"

}  // namespace penstock::cells_on_host
