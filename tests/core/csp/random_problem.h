#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "penstock/csp.h"

/// Random problems with an evaluation of their own, which shares nothing with the solver's.
namespace penstock::csp::test {

/// An expression or a condition as a tree: 'v' variable, 'c' constant, 'm' and 'M' minimum and maximum, 'C' ceil_div,
/// '?' select, '=', '#' (!=), '<', 'l' (<=), '!', '&', '|', '>' (implication), and + - * / %.
struct Tree {
  char kind;
  Integer value = 0;  // of a constant; the number of a variable
  std::vector<Tree> children;
};

inline Integer evaluate(const Tree& tree, const std::vector<Integer>& values) {
  const auto child = [&](std::size_t i) { return evaluate(tree.children[i], values); };
  switch (tree.kind) {
    case 'v':
      return values[tree.value];
    case 'c':
      return tree.value;
    case '+':
      return child(0) + child(1);
    case '-':
      return child(0) - child(1);
    case '*':
      return child(0) * child(1);
    case '/':
      return child(0) / child(1);
    case '%':
      return child(0) % child(1);
    case 'C': {
      const Integer a = child(0), b = child(1), q = a / b;
      return q * b != a && (a > 0) == (b > 0) ? q + 1 : q;
    }
    case 'm':
      return child(0) < child(1) ? child(0) : child(1);
    case 'M':
      return child(0) < child(1) ? child(1) : child(0);
    case '?':
      return child(0) != 0 ? child(1) : child(2);
    case '=':
      return child(0) == child(1);
    case '#':
      return child(0) != child(1);
    case '<':
      return child(0) < child(1);
    case 'l':
      return child(0) <= child(1);
    case '!':
      return child(0) == 0;
    case '&':
      return child(0) != 0 && child(1) != 0;
    case '|':
      return child(0) != 0 || child(1) != 0;
    default:  // '>'
      return child(0) == 0 || child(1) != 0;
  }
}

inline Constraint condition(const Tree& tree, const std::vector<Expression>& variables);

inline Expression expression(const Tree& tree, const std::vector<Expression>& variables) {
  const auto child = [&](std::size_t i) { return expression(tree.children[i], variables); };
  switch (tree.kind) {
    case 'v':
      return variables[tree.value];
    case 'c':
      return tree.value;
    case '+':
      return child(0) + child(1);
    case '-':
      return child(0) - child(1);
    case '*':
      return child(0) * child(1);
    case '/':
      return child(0) / child(1);
    case '%':
      return child(0) % child(1);
    case 'C':
      return ceil_div(child(0), child(1));
    case 'm':
      return min(child(0), child(1));
    case 'M':
      return max(child(0), child(1));
    default:
      return select(condition(tree.children[0], variables), child(1), child(2));
  }
}

inline Constraint condition(const Tree& tree, const std::vector<Expression>& variables) {
  const auto number = [&](std::size_t i) { return expression(tree.children[i], variables); };
  const auto child = [&](std::size_t i) { return condition(tree.children[i], variables); };
  switch (tree.kind) {
    case '=':
      return number(0) == number(1);
    case '#':
      return number(0) != number(1);
    case '<':
      return number(0) < number(1);
    case 'l':
      return number(0) <= number(1);
    case '!':
      return !child(0);
    case '&':
      return child(0) && child(1);
    case '|':
      return child(0) || child(1);
    default:
      return implies(child(0), child(1));
  }
}

class Generator {
 public:
  Generator(Random& random, int variables) : random_(random), variables_(variables) {}

  Tree number(int depth) {
    if (depth == 0 || random_.below(4) == 0) {
      if (random_.below(3) > 0) return {'v', random_.below(variables_), {}};
      return {'c', random_.below(13) - 4, {}};
    }
    const char kind = "++--***/%CmM?"[random_.below(13)];
    if (kind == '?') return {kind, 0, {test(depth - 1), number(depth - 1), number(depth - 1)}};
    return {kind, 0, {number(depth - 1), number(depth - 1)}};
  }

  Tree test(int depth) {
    if (depth == 0 || random_.below(2) == 0) {
      const char kind = "==#<ll"[random_.below(6)];
      return {kind, 0, {number(depth), number(depth)}};
    }
    const char kind = "!&|>"[random_.below(4)];
    if (kind == '!') return {kind, 0, {test(depth - 1)}};
    return {kind, 0, {test(depth - 1), test(depth - 1)}};
  }

 private:
  Random& random_;
  int variables_;
};

struct Problem {
  std::vector<std::vector<Integer>> domains;
  std::vector<Tree> constraints;
  Tree cost;

  Model model;
  std::vector<Expression> variables;
  std::string text;  // the same in the text format
};

/// With what can be refused (divisors that may be 0) left out.
inline Problem random_problem(Random& random) {
  Problem problem;
  const int count = 1 + static_cast<int>(random.below(4));
  for (int x = 0; x < count; ++x) {
    std::vector<Integer> values;
    const Integer size = 1 + random.below(6), first = random.below(12) - 5;
    const bool holes = random.below(2) == 0;
    for (Integer i = 0; i < size; ++i) values.push_back(holes ? random.below(21) - 8 : first + i);
    const Domain domain(values);
    values.clear();
    for (Integer i = 0; i < domain.size(); ++i) values.push_back(domain[i]);
    problem.domains.push_back(values);
    const std::string name = std::string(1, static_cast<char>('a' + x));
    problem.variables.push_back(problem.model.var(name, domain));
    problem.text += name + " in " + domain.text() + "\n";
  }
  Generator generator(random, count);
  for (Integer wanted = 1 + random.below(4); wanted > 0;) {
    const Tree tree = generator.test(2);
    const std::string name = "rule " + std::to_string(wanted);
    try {
      const Constraint constraint = condition(tree, problem.variables);
      problem.model.require(name, constraint);
      problem.text += name + ": " + constraint.text() + "\n";
    } catch (const Error&) {
      continue;
    }
    problem.constraints.insert(problem.constraints.begin(), tree);  // "rule 1" comes first
    --wanted;
  }
  while (true) {
    problem.cost = generator.number(2);
    try {
      const Expression cost = expression(problem.cost, problem.variables);
      problem.model.minimise(cost);
      problem.text += "minimise " + cost.text() + "\n";
      return problem;
    } catch (const Error&) {
      continue;
    }
  }
}

/// Every assignment under which the chosen constraints hold, in lexicographic order.
inline std::vector<std::vector<Integer>> by_brute_force(const Problem& problem, const std::vector<bool>& chosen) {
  std::vector<std::vector<Integer>> all;
  std::vector<Integer> values(problem.domains.size());
  const std::function<void(std::size_t)> descend = [&](std::size_t x) {
    if (x < values.size()) {
      for (const Integer value : problem.domains[x]) {
        values[x] = value;
        descend(x + 1);
      }
      return;
    }
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] && evaluate(problem.constraints[i], values) == 0) return;
    }
    all.push_back(values);
  };
  descend(0);
  return all;
}

inline std::vector<std::vector<Integer>> by_brute_force(const Problem& problem) {
  return by_brute_force(problem, std::vector<bool>(problem.constraints.size(), true));
}

}  // namespace penstock::csp::test
