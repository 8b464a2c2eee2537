#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/suite/case.h"

/// The numbers of a case, what the oracle makes of them, and whether somebody else made the same.
namespace penstock::bench {

struct Array {
  std::string name;
  std::vector<Index> shape;
  std::vector<float> values;
};

/// Weights, input and gradient of the output of a case; every contender gets copies of these.
struct Problem {
  Case test;
  /// Weights named as in Recurrent; with a head also "head_weight" [1, H], "head_bias" [1]. For a bare scan: its terms.
  std::vector<Array> weights;
  std::vector<float> x;     ///< [B, T, I]
  std::vector<float> dy;    ///< [B, T, H]; training only
  std::vector<Index> rows;  ///< R rows of the batch, whose results are compared in full.

  /// The weights for one contender. PENSTOCK_BENCH_FAULT=NAME:K in the environment makes the K-th of all values of the
  /// contender of that name wrong by 1/sqrt(H), the size of its range: so that the checks themselves can be tested.
  std::vector<Array> weights_for(const std::string& contender) const;
  /// `dy`, but zero in all rows that are not compared.
  std::vector<float> masked_dy() const;
  /// Returns what is compared, in one sentence.
  std::string checked() const;
};

/// Throws Error(invalid_argument) for a cell or a size that the library refuses.
Problem make_problem(const Case& test, std::uint64_t seed);

/// Bytes that a case needs at its peak; `here` contenders run it in this process, and `in_python` in that of the peers.
double memory_needed(const Case& test, int here, int in_python = 0);

/// Results of the compared rows, of `Real` float from a contender and double from the oracle.
template <class Real>
struct Answers {
  std::vector<Real> y;   ///< [R, T, C]
  std::vector<Real> dx;  ///< [R, T, I]; training only
  /// Gradients by name of the weight; training only, and empty if they were not asked for.
  std::vector<std::pair<std::string, std::vector<Real>>> gradients;
};

/// Returns the answers in double precision, by equations that share no code with the library. `at_piece` is called now
/// and then and may throw.
Answers<double> solve(
    const Problem& problem, const std::function<void()>& at_piece = [] {});

struct Verdict {
  bool right = false;
  double error = 0.0;      ///< The largest, relative to the largest value of its tensor.
  double tolerance = 0.0;  ///< That this error was held to.
  std::string complaint;   ///< Empty if right: the tensor that is wrong, and how much.
};

enum class Extent {
  all,             ///< y; for training also dx and the gradient of every weight
  without_weights  ///< All but the gradients of weights
};

/// Judges results. Anything missing from `got` is wrong. `slack`, if above 0, replaces every tolerance.
Verdict judge(const Problem& problem, const Answers<double>& want, const Answers<float>& got, Extent extent,
              double slack = 0.0);

/// The worse of two.
Verdict worse(const Verdict& a, const Verdict& b);

}  // namespace penstock::bench
