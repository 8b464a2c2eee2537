// The digits that a scan keeps: beside a loop where decays are close to one, and where logarithms are infinite.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "penstock/scan.h"

namespace penstock {
namespace {

/// Decays 1 - 2^-k, or drawn up to that, over T steps, and what a plain loop in float makes of them.
struct Decays {
  int k;
  bool constant, logs;
  Index T;

  std::vector<float> a() const {
    Random random(static_cast<std::uint64_t>(k));
    std::vector<float> terms(static_cast<std::size_t>(T));
    for (float& term : terms) {
      const double decay = std::ldexp(constant ? 1.0 : random.uniform(0.5, 1.0), -k);
      term = static_cast<float>(logs ? std::log1p(-decay) : 1 - decay);
    }
    return terms;
  }
};

/// h_t = a_t h_{t-1} + b_t, `reverse` from the last step on with a one step later, as gradients run.
template <class Real>
std::vector<double> loop(const Decays& c, const std::vector<float>& a, const std::vector<float>& b, bool reverse) {
  std::vector<double> all(b.size());
  Real h = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const std::size_t t = reverse ? b.size() - 1 - i : i;
    const std::size_t of = reverse ? t + 1 : t;
    const Real term = of < a.size() ? Real{a[of]} : Real(0);
    const Real add = c.logs && !reverse ? std::exp(Real{b[t]}) : Real{b[t]};
    h = c.logs ? h + (std::expm1(term) * h + add) : term * h + add;
    all[t] = static_cast<double>(h);
  }
  return all;
}

double worst_error(const std::vector<double>& got, const std::vector<double>& want) {
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    size = std::max(size, std::abs(want[i]));
    worst = std::max(worst, std::abs(got[i] - want[i]) / size);
  }
  return worst;
}

void expect_a_loops_digits(const Decays& c) {
  SCOPED_TRACE(testing::Message() << "1 - 2^-" << c.k << (c.constant ? " constant" : " drawn")
                                  << (c.logs ? " logs" : "") << " T " << c.T);
  const std::vector<float> a = c.a();
  Random random(5);
  std::vector<float> b(a.size()), dh(a.size());
  for (std::size_t t = 0; t < a.size(); ++t) {
    b[t] = static_cast<float>(c.constant ? (c.logs ? 0.0 : 1.0) : random.uniform(-1.0, 1.0));
    dh[t] = static_cast<float>(random.uniform(0.0, 1.0));
  }
  const auto view = [&](auto& v) {
    return SequenceView<std::remove_reference_t<decltype(v[0])>>::batch_first(v.data(), c.T, 1);
  };
  const std::vector<double> want = loop<double>(c, a, b, false), want_back = loop<double>(c, a, dh, true);
  // Two roundings more: of a chunk's effect, and of the state that enters it.
  const double few = 4 * std::numeric_limits<float>::epsilon();
  const double allowed = 2 * worst_error(loop<float>(c, a, b, false), want) + few;
  const double allowed_back = 2 * worst_error(loop<float>(c, a, dh, true), want_back) + few;
  const Scan<float> scan(1, c.logs ? ScanForm::logarithmic : ScanForm::linear);
  for (const Algorithm algorithm : {Algorithm::sequential, Algorithm::scan, Algorithm::automatic}) {
    SCOPED_TRACE(to_string(algorithm));
    const Execution execution{.threads = 2, .algorithm = algorithm};
    const Batch batch{.rows = 1, .steps = c.T};
    std::vector<float> h(a.size()), da(a.size()), db(a.size());
    const Scan<float>::Terms terms{view(a), view(b), {}};
    scan.forward(batch, terms, view(h), nullptr, nullptr, execution);
    EXPECT_LE(worst_error({h.begin(), h.end()}, want), allowed);
    scan.backward(batch, terms, view(std::as_const(h)), nullptr, view(std::as_const(dh)), nullptr,
                  {view(da), view(db), {}}, nullptr, execution);
    std::vector<double> back(db.begin(), db.end());
    for (std::size_t t = 0; c.logs && t < back.size(); ++t) back[t] /= std::exp(double{b[t]});
    EXPECT_LE(worst_error(back, want_back), allowed_back + (c.logs ? few : 0));
  }
}

TEST(Scan, DecaysCloseToOneKeepTheDigitsOfALoop) {
  for (const bool logs : {false, true}) {
    for (const bool constant : {false, true}) {
      for (const int k : {8, 12, 16, 20, 24}) expect_a_loops_digits({k, constant, logs, 65'536});
      expect_a_loops_digits({17, constant, logs, 1'000'000});
    }
  }
}

template <class Real>
void expect_logarithms_saturate(double lowest, double highest) {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  std::vector<Real> log_a = {-infinity, infinity, 0}, log_b = {0, -infinity, infinity}, h(3);
  const auto view = [&](auto& v) {
    return SequenceView<std::remove_reference_t<decltype(v[0])>>::batch_first(v.data(), 1, 3);
  };
  const std::vector<Real> h0 = {0, 1, 0};
  Scan<Real>(3, ScanForm::logarithmic)
      .forward({.rows = 1, .steps = 1}, {view(std::as_const(log_a)), view(std::as_const(log_b)), {}}, view(h),
               h0.data());
  EXPECT_EQ(h[0], 1);
  EXPECT_NEAR(std::log(h[1]), highest, 0.01 * highest);
  EXPECT_NEAR(std::log(h[2]), highest, 0.01 * highest);
  log_b = {-infinity, -infinity, -infinity};
  Scan<Real>(3, ScanForm::logarithmic)
      .forward({.rows = 1, .steps = 1}, {view(std::as_const(log_b)), view(std::as_const(log_b)), {}}, view(h),
               h0.data());
  for (const Real value : h) EXPECT_GE(std::log(value), lowest * 1.001);
}

TEST(Scan, LogarithmsSaturate) {
  expect_logarithms_saturate<float>(-87.34, 87.3);
  expect_logarithms_saturate<double>(-707, 707);
}

}  // namespace
}  // namespace penstock
