#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "custom/trace.h"

/// Random cells whose values stay moderate, so that rounding and finite differences can be told from defects.
namespace penstock::test {

inline CellValue random_operation(const std::vector<CellValue>& values, Random& random, bool smooth) {
  const auto any = [&] { return values[static_cast<std::size_t>(random.below(static_cast<Index>(values.size())))]; };
  const CellValue a = any(), b = any(), c = any();
  switch (random.below(smooth ? 14 : 22)) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return tanh(a) * b;
    case 3:
      return a / (1.0 + b * b);
    case 4:
      return multiply_add(tanh(a), sigmoid(b), c);
    case 5:
      return exp(tanh(a));
    case 6:
      return log(1.5 + tanh(a));
    case 7:
      return tanh(a);
    case 8:
      return sigmoid(a);
    case 9:
      return softplus(a);
    case 10:
      return erf(a);
    case 11:
      return sin(a) + 0.5;
    case 12:
      return cos(a);
    case 13:
      return sqrt(1.25 + sin(a));
    case 14:
      return relu(a);
    case 15:
      return abs(a);
    case 16:
      return min(a, b);
    case 17:
      return max(a, b);
    case 18:
      return clamp(a, -0.75, tanh(b) + 0.5);
    case 19:
      return where(less(a, b), b, c);
    case 20:
      return where(less_equal(a, b), tanh(a), c);
    default:
      return where(equal(a, b), a, c * 0.5);
  }
}

/// A dense cell, or a scan cell, of up to 30 random operations.
inline custom::CustomCell random_cell(Random& random, bool scan, bool smooth) {
  CellDefinition definition;
  definition.name = "random";
  definition.scan = scan;
  definition.gates = static_cast<int>(1 + random.below(scan ? 3 : 5));
  definition.states.clear();
  for (Index s = 0, count = scan ? 1 : 1 + random.below(4); s < count; ++s) {
    definition.states.push_back("s" + std::to_string(s));
  }
  for (Index k = 0, count = random.below(3); k < count; ++k) {
    definition.learnt.push_back({"p" + std::to_string(k), random.uniform(-1.0, 1.0)});
  }
  return custom::trace_cell(definition, [&](const CellSymbols& in) {
    std::vector<CellValue> values;
    for (const auto* leaves : {&in.wx, &in.rh, &in.s, &in.p})
      values.insert(values.end(), leaves->begin(), leaves->end());
    values.push_back(0.5);
    const Index count = 5 + random.below(25);
    for (Index i = 0; i < count; ++i) values.push_back(random_operation(values, random, smooth));
    std::vector<CellValue> outputs;
    for (std::size_t k = 0; k < (scan ? 2 : definition.states.size()); ++k) {
      outputs.push_back(tanh(values[values.size() - 1 - k]) + 0.125 * values[values.size() - 2 - k]);
    }
    return outputs;
  });
}

}  // namespace penstock::test
