// Derived programs of random cells against dual numbers and finite differences, in double precision.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "custom/cell.h"
#include "custom/random_cell.h"

namespace penstock::custom {
namespace {

/// A value with its derivative in one direction.
struct Dual {
  double x = 0, d = 0;
};

/// Textbook rules, independent of graph/derive.cc.
Dual dual_of(Operation operation, Dual a, Dual b, Dual c) {
  const double y = apply(operation, a.x, b.x, c.x);
  switch (operation) {
    case Operation::add:
      return {y, a.d + b.d};
    case Operation::subtract:
      return {y, a.d - b.d};
    case Operation::multiply:
      return {y, a.d * b.x + a.x * b.d};
    case Operation::divide:
      return {y, (a.d * b.x - a.x * b.d) / (b.x * b.x)};
    case Operation::multiply_add:
      return {y, a.d * b.x + a.x * b.d + c.d};
    case Operation::subtract_product:
      return {y, c.d - a.d * b.x - a.x * b.d};
    case Operation::exp:
      return {y, std::exp(a.x) * a.d};
    case Operation::log:
      return {y, a.d / a.x};
    case Operation::tanh:
      return {y, a.d / (std::cosh(a.x) * std::cosh(a.x))};
    case Operation::sigmoid:
      return {y, a.d / ((1 + std::exp(a.x)) * (1 + std::exp(-a.x)))};
    case Operation::softplus:
      return {y, a.d / (1 + std::exp(-a.x))};
    case Operation::relu:
      return {y, a.x > 0 ? a.d : 0};
    case Operation::erf:
      return {y, 2 / std::sqrt(std::acos(-1.0)) * std::exp(-a.x * a.x) * a.d};
    case Operation::sin:
      return {y, std::cos(a.x) * a.d};
    case Operation::cos:
      return {y, -std::sin(a.x) * a.d};
    case Operation::sqrt:
      return {y, a.d / (2 * std::sqrt(a.x))};
    case Operation::abs:
      return {y, a.x > 0 ? a.d : a.x < 0 ? -a.d : 0};
    case Operation::min:
      return {y, a.x <= b.x ? a.d : b.d};
    case Operation::max:
      return {y, a.x >= b.x ? a.d : b.d};
    case Operation::clamp:
      return {y, a.x < b.x ? b.d : a.x > c.x ? c.d : a.d};
    case Operation::where:
      return {y, a.x != 0 ? b.d : c.d};
    default:
      return {y, 0};
  }
}

using Leaf = std::pair<Operation, int>;
using Values = std::map<Leaf, double>;

std::vector<Leaf> leaves_of(const CustomCell& cell) {
  std::vector<Leaf> leaves;
  for (int g = 0; g < cell.gates; ++g) leaves.emplace_back(Operation::input, g);
  for (int g = 0; g < cell.gates && !cell.scan; ++g) leaves.emplace_back(Operation::recurrent, g);
  for (int s = 0; s < static_cast<int>(cell.states.size()) && !cell.scan; ++s) {
    leaves.emplace_back(Operation::state, s);
  }
  for (int k = 0; k < static_cast<int>(cell.learnt.size()); ++k) leaves.emplace_back(Operation::learnt, k);
  return leaves;
}

/// The outputs, and their derivatives if leaves move by `direction`.
std::vector<Dual> evaluate(const CustomCell& cell, const Values& values, const Values& direction) {
  std::vector<Dual> of(static_cast<std::size_t>(cell.graph.size()));
  for (NodeId id = 0; id < cell.graph.size(); ++id) {
    const Node& node = cell.graph[id];
    Dual& to = of[static_cast<std::size_t>(id)];
    if (node.operation == Operation::constant) {
      to = {node.value, 0};
    } else if (node.operands().empty()) {
      const Leaf leaf{node.operation, node.index};
      to = {values.at(leaf), direction.contains(leaf) ? direction.at(leaf) : 0};
    } else {
      Dual operand[3];
      for (std::size_t i = 0; i < node.operands().size(); ++i) operand[i] = of[static_cast<std::size_t>(node.of[i])];
      to = dual_of(node.operation, operand[0], operand[1], operand[2]);
    }
  }
  std::vector<Dual> outputs;
  for (const NodeId output : cell.outputs) outputs.push_back(of[static_cast<std::size_t>(output)]);
  return outputs;
}

Values drawn(const std::vector<Leaf>& leaves, Random& random) {
  Values values;
  for (const Leaf& leaf : leaves) values[leaf] = random.uniform(-1.5, 1.5);
  return values;
}

double weighted(const std::vector<Dual>& outputs, const std::vector<double>& weights, double Dual::*part) {
  double sum = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) sum += outputs[k].*part * weights[k];
  return sum;
}

/// A cell at one point, with what its programs compute there.
struct Point {
  CustomCell cell;
  std::vector<Leaf> leaves;
  Values values;
  std::vector<double> weights;  // of the outputs
  DerivedCell derived;
  std::vector<double> outputs, gradients;  // gradients: of the leaves, in their order
};

Point random_point(Random& random, bool scan, bool smooth) {
  Point point;
  point.cell = test::random_cell(random, scan, smooth);
  point.leaves = leaves_of(point.cell);
  point.values = drawn(point.leaves, random);
  for (std::size_t k = 0; k < point.cell.outputs.size(); ++k) point.weights.push_back(random.uniform(-1.0, 1.0));
  point.derived = derive(point.cell, "random", ErrorCode::invalid_argument);
  const auto value = [&](Operation operation, int index) { return point.values.at({operation, index}); };
  const std::vector<double> trained = run(point.derived.training, value);
  const auto outputs = static_cast<std::ptrdiff_t>(point.weights.size());
  point.outputs = run(point.derived.forward, value);
  EXPECT_EQ(point.outputs, std::vector<double>(trained.begin(), trained.begin() + outputs));
  point.gradients = run(point.derived.backward, [&](Operation operation, int index) {
    if (operation == Operation::kept) return trained[static_cast<std::size_t>(outputs + index)];
    if (operation == Operation::gradient) return point.weights[static_cast<std::size_t>(index)];
    // All that a backward pass has besides; a dense cell's sums are gone.
    const bool there = operation == Operation::state || operation == Operation::learnt ||
                       (point.cell.scan && operation == Operation::input);
    EXPECT_TRUE(there) << "a backward pass reads " << to_string(operation);
    return point.values.at({operation, index});
  });
  return point;
}

constexpr double kRounding = 1e-11;

TEST(Derivatives, OfRandomCellsAreThoseOfDualNumbers) {
  Random random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(trial);
    const Point point = random_point(random, trial % 4 == 3, trial % 3 == 0);
    const auto outputs = evaluate(point.cell, point.values, {});
    ASSERT_EQ(point.outputs.size(), outputs.size());
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      EXPECT_NEAR(point.outputs[k], outputs[k].x, kRounding * (1 + std::fabs(outputs[k].x)));
    }
    ASSERT_EQ(point.gradients.size(), point.leaves.size() + (point.cell.scan ? 2 : 0));  // then a and b
    for (std::size_t i = 0; i < point.leaves.size(); ++i) {
      const double want =
          weighted(evaluate(point.cell, point.values, {{point.leaves[i], 1.0}}), point.weights, &Dual::d);
      EXPECT_NEAR(point.gradients[i], want, kRounding * (1 + std::fabs(want))) << to_string(point.leaves[i].first);
    }
  }
}

TEST(Derivatives, OfRandomCellsAreLimitsOfDifferences) {
  Random random(2);
  constexpr double step = 1e-5;
  for (int trial = 0; trial < 1000; ++trial) {
    SCOPED_TRACE(trial);
    const Point point = random_point(random, trial % 4 == 3, true);
    ASSERT_FALSE(point.derived.has_kink);
    for (std::size_t i = 0; i < point.leaves.size(); ++i) {
      Values above = point.values, below = point.values;
      above[point.leaves[i]] += step, below[point.leaves[i]] -= step;
      const double difference = weighted(evaluate(point.cell, above, {}), point.weights, &Dual::x) -
                                weighted(evaluate(point.cell, below, {}), point.weights, &Dual::x);
      const double want = difference / (2 * step);
      EXPECT_NEAR(point.gradients[i], want, 1e-6 * (1 + std::fabs(want)));
    }
  }
}

TEST(Derivatives, TangentsOfRandomCellsAreThoseOfDualNumbers) {
  Random random(3);
  for (int trial = 0; trial < 1000; ++trial) {
    SCOPED_TRACE(trial);
    const Point point = random_point(random, trial % 4 == 3, trial % 2 == 0);
    const Values direction = drawn(point.leaves, random);
    const auto want = evaluate(point.cell, point.values, direction);
    const auto got = run(point.derived.tangent, [&](Operation operation, int index) {
      if (operation >= Operation::input_tangent && operation <= Operation::learnt_tangent) {
        const int kind = static_cast<int>(operation) - static_cast<int>(Operation::input_tangent);
        return direction.at({static_cast<Operation>(kind), index});
      }
      return point.values.at({operation, index});
    });
    for (std::size_t k = 0; k < want.size(); ++k) {
      EXPECT_NEAR(got[k], want[k].d, kRounding * (1 + std::fabs(want[k].d)));
    }
  }
}

}  // namespace
}  // namespace penstock::custom
