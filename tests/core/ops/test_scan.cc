// The scan over explicit coefficients against a loop in double: both forms, every kind of batch, values and gradients.

#include "penstock/scan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

enum class Given { terms, logs, signed_logs };

/// Case of one test. Tensors are batch-first, with `gap` unused elements after each step.
struct Case {
  Index B = 1, T = 1, C = 1;
  Given given = Given::terms;
  bool reverse = false, resets = false, ragged = false, packed = false;
  Algorithm algorithm = Algorithm::sequential;
  int threads = 1;
  Index gap = 0;
};

struct Tensors {
  std::vector<double> a, b, factor, dh, h0, dhT;  // [B, T, C], states [B, C]
  std::vector<Index> lengths, starts;
  std::vector<std::uint8_t> reset;
};

Tensors make(const Case& c) {
  Random random(static_cast<std::uint64_t>(c.B * 1000003 + c.T * 1009 + c.C));
  Tensors t;
  const auto n = static_cast<std::size_t>(c.B * c.T * c.C);
  for (std::size_t i = 0; i < n; ++i) {
    const bool logs = c.given != Given::terms;
    // Drawn as floats, so that both precisions see the same terms.
    t.a.push_back(static_cast<float>(logs ? random.uniform(-9.0, 0.0) : random.uniform(-1.0, 1.0)));
    t.b.push_back(static_cast<float>(logs ? random.uniform(-4.0, 1.0) : random.normal()));
    t.factor.push_back(random.uniform(0.0, 1.0) < 0.5 ? -1.0 : 1.0);
    t.dh.push_back(static_cast<float>(random.normal()));
  }
  for (Index i = 0; i < c.B * c.C; ++i) {
    t.h0.push_back(static_cast<float>(random.normal()));
    t.dhT.push_back(static_cast<float>(random.normal()));
  }
  for (Index i = 0; i < c.B * c.T; ++i) t.reset.push_back(random.uniform(0.0, 1.0) < 0.1);
  t.starts.push_back(0);
  for (Index row = 0; row < c.B; ++row) {
    t.lengths.push_back(row == 0 || !(c.ragged || c.packed)
                            ? c.T
                            : static_cast<Index>(random.uniform(0.0, static_cast<double>(c.T) + 0.99)));
    t.starts.push_back(t.starts.back() + t.lengths.back());
  }
  return t;
}

struct Result {
  std::vector<double> h, hT, da, db, dfactor, dh0;
};

/// The reference: a loop, in double.
Result reference(const Case& c, const Tensors& t) {
  Result r;
  const auto n = t.a.size();
  r.h.assign(n, 0), r.da.assign(n, 0), r.db.assign(n, 0), r.dfactor.assign(n, 0);
  r.hT.resize(t.h0.size()), r.dh0.resize(t.h0.size());
  const bool logs = c.given != Given::terms;
  for (Index row = 0; row < c.B; ++row) {
    const Index length = t.lengths[row];
    for (Index ch = 0; ch < c.C; ++ch) {
      std::vector<double> before(static_cast<std::size_t>(length));
      const auto place = [&](Index step) { return c.reverse ? length - 1 - step : step; };
      const auto at = [&](Index step) { return (row * c.T + place(step)) * c.C + ch; };
      const auto a_of = [&](Index i) { return logs ? std::exp(t.a[i]) : t.a[i]; };
      const auto sign_of = [&](Index i) { return c.given == Given::signed_logs ? t.factor[i] : 1.0; };
      const auto clears = [&](Index step) {
        const Index cell = c.packed ? t.starts[row] + place(step) : row * c.T + place(step);
        return c.resets && t.reset[cell] != 0;
      };
      double h = t.h0[row * c.C + ch];
      for (Index step = 0; step < length; ++step) {
        if (clears(step)) h = 0;
        before[step] = h;
        const double b = logs ? sign_of(at(step)) * std::exp(t.b[at(step)]) : t.b[at(step)];
        h = a_of(at(step)) * h + b;
        r.h[at(step)] = h;
      }
      r.hT[row * c.C + ch] = h;
      double carry = t.dhT[row * c.C + ch];
      for (Index step = length - 1; step >= 0; --step) {
        const Index i = at(step);
        const double dh = t.dh[i] + carry;
        const double size = logs ? std::exp(t.b[i]) : 1.0;
        r.da[i] = dh * before[step] * (logs ? a_of(i) : 1.0);
        r.db[i] = dh * size * sign_of(i);
        r.dfactor[i] = dh * size;
        carry = clears(step) ? 0 : a_of(i) * dh;
      }
      r.dh0[row * c.C + ch] = carry;
    }
  }
  return r;
}

/// A tensor of the batch in Real, laid out as the case has it: padded or packed, with gaps.
template <class Real>
struct Laid {
  std::vector<Real> memory;
  SequenceView<Real> view;

  Laid(const Case& c, const Tensors& t, const std::vector<double>& values) {
    const Index step = c.C + c.gap;
    memory.assign(static_cast<std::size_t>(c.B * c.T * step), std::numeric_limits<Real>::quiet_NaN());
    view = {memory.data(), c.packed ? 0 : c.T * step, step};
    each(c, t, [&](Index from, Index to) { memory[to] = static_cast<Real>(values[from]); });
  }

  template <class Body>
  static void each(const Case& c, const Tensors& t, const Body& body) {
    for (Index row = 0; row < c.B; ++row) {
      for (Index s = 0; s < t.lengths[row]; ++s) {
        const Index cell = c.packed ? t.starts[row] + s : row * c.T + s;
        for (Index ch = 0; ch < c.C; ++ch) body((row * c.T + s) * c.C + ch, cell * (c.C + c.gap) + ch);
      }
    }
  }

  std::vector<double> back(const Case& c, const Tensors& t, std::size_t size) const {
    std::vector<double> values(size, 0);
    each(c, t, [&](Index to, Index from) { values[to] = memory[from]; });
    return values;
  }
};

template <class Real>
Result run(const Case& c, const Tensors& t) {
  Scan<Real> scan(c.C, c.given == Given::terms ? ScanForm::linear : ScanForm::logarithmic, c.reverse);
  Batch batch{.rows = c.B, .steps = c.T};
  if (c.packed) batch.cu_seqlens = t.starts.data();
  if (c.ragged) batch.lengths = t.lengths.data();
  if (c.resets) batch.reset = t.reset.data();
  const Execution execution{.threads = c.threads, .algorithm = c.algorithm};
  const bool with_factor = c.given == Given::signed_logs;
  const std::vector<double> nothing(t.a.size(), std::numeric_limits<double>::quiet_NaN());
  Laid<Real> a(c, t, t.a), b(c, t, t.b), factor(c, t, t.factor), dh(c, t, t.dh);
  Laid<Real> h(c, t, nothing), da(c, t, nothing), db(c, t, nothing), dfactor(c, t, nothing);
  const std::vector<Real> h0(t.h0.begin(), t.h0.end()), dhT(t.dhT.begin(), t.dhT.end());
  std::vector<Real> hT(h0.size()), dh0(h0.size());
  const typename Scan<Real>::Terms terms{
      a.view, b.view, with_factor ? SequenceView<const Real>(factor.view) : SequenceView<const Real>()};
  scan.forward(batch, terms, h.view, h0.data(), hT.data(), execution);
  scan.backward(batch, terms, h.view, h0.data(), dh.view, dhT.data(),
                {da.view, db.view, with_factor ? dfactor.view : SequenceView<Real>()}, dh0.data(), execution);
  if (c.ragged) {
    for (Index row = 0; row < c.B; ++row) {
      if (t.lengths[row] < c.T) {
        EXPECT_EQ(h.view.data[(row * c.T + c.T - 1) * h.view.step_stride], 0);
        EXPECT_EQ(da.view.data[(row * c.T + c.T - 1) * h.view.step_stride], 0);
      }
    }
  }
  const std::size_t n = t.a.size();
  return {h.back(c, t, n),  {hT.begin(), hT.end()}, da.back(c, t, n),
          db.back(c, t, n), dfactor.back(c, t, n),  {dh0.begin(), dh0.end()}};
}

template <class Real>
void check(const Case& c) {
  SCOPED_TRACE(testing::Message() << "B " << c.B << " T " << c.T << " C " << c.C << " given " << int(c.given) << " "
                                  << to_string(c.algorithm) << " threads " << c.threads << " reverse " << c.reverse);
  const Tensors t = make(c);
  const Result want = reference(c, t), got = run<Real>(c, t);
  const double allowed = test::tolerance<Real>({.summed = 1, .steps = c.T, .logit = 9.0});
  const double back = 2 * allowed;
  EXPECT_TRUE(test::close(got.h, want.h, allowed, 1.0));
  EXPECT_TRUE(test::close(got.hT, want.hT, allowed, 1.0));
  EXPECT_TRUE(test::close(got.da, want.da, back, 1.0));
  EXPECT_TRUE(test::close(got.db, want.db, back, 1.0));
  if (c.given == Given::signed_logs) {
    EXPECT_TRUE(test::close(got.dfactor, want.dfactor, back, 1.0));
  }
  EXPECT_TRUE(test::close(got.dh0, want.dh0, back, 1.0));
}

TEST(Scan, EveryKindOfBatch) {
  for (const Given given : {Given::terms, Given::logs, Given::signed_logs}) {
    for (const Index channels : {1, 15, 16, 17, 67}) {
      for (const bool reverse : {false, true}) {
        check<float>({.B = 3, .T = 29, .C = channels, .given = given, .reverse = reverse});
        Case uneven{.B = 5, .T = 13, .C = channels, .given = given, .reverse = reverse, .resets = true};
        uneven.ragged = true, uneven.threads = 2, uneven.gap = 3;
        check<float>(uneven);
        uneven.ragged = false, uneven.threads = 3, uneven.gap = 0;
        uneven.packed = true;
        check<float>(uneven);
        check<double>({.B = 2, .T = 7, .C = channels, .given = given, .reverse = reverse, .resets = true});
      }
    }
  }
}

TEST(Scan, ChunksOfEveryLength) {
  for (const Given given : {Given::terms, Given::signed_logs}) {
    for (const Index steps : {1, 1023, 1024, 1025, 4099}) {
      for (const bool reverse : {false, true}) {
        check<float>({.B = 2,
                      .T = steps,
                      .C = 5,
                      .given = given,
                      .reverse = reverse,
                      .resets = true,
                      .ragged = true,
                      .algorithm = Algorithm::scan,
                      .threads = 3});
      }
    }
  }
}

TEST(Scan, LongOnes) {
  for (const Algorithm algorithm : {Algorithm::sequential, Algorithm::scan}) {
    check<float>({.T = 100'003, .C = 2, .given = Given::terms, .algorithm = algorithm, .threads = 2});
    check<float>({.T = 100'003, .C = 2, .given = Given::signed_logs, .algorithm = algorithm, .threads = 2});
  }
}

TEST(Scan, ExtremeLogarithmsStayFinite) {
  // Gates that are open or shut as far as float reaches, over many steps, h0 of either sign.
  const Index T = 65'536;
  std::vector<float> log_a(T), log_b(T), factor(T), h(T);
  for (const float level : {-0.0f, -1e-6f, -9.2f, -80.0f, -1e30f}) {
    for (const float h0 : {3.5f, -3.5f}) {
      for (Index i = 0; i < T; ++i) {
        log_a[i] = level;
        log_b[i] = i % 3 == 0 ? -1e30f : -3.0f;
        factor[i] = i % 2 == 0 ? 1.0f : -1.0f;
      }
      const auto view = [&](std::vector<float>& v) { return SequenceView<float>::batch_first(v.data(), T, 1); };
      Scan<float>(1, ScanForm::logarithmic)
          .forward({.rows = 1, .steps = T}, {view(log_a), view(log_b), view(factor)}, view(h), &h0);
      double want = h0, worst = 0, size = std::abs(h0);
      for (Index i = 0; i < T; ++i) {
        const double a = std::exp(double{log_a[i]}), b = std::exp(double{log_b[i]});
        want = a * want + factor[i] * b;
        size = a * size + b;
        ASSERT_TRUE(std::isfinite(h[i])) << "step " << i;
        worst = std::max(worst, std::abs(h[i] - want) / std::max(size, 1e-30));
      }
      EXPECT_LE(worst, 1e-4) << "log a = " << level;
    }
  }
}

/// h of one channel, in chunks on two threads or step after step.
std::vector<float> walk(const std::vector<float>& a, const std::vector<float>& b, float h0, Algorithm algorithm,
                        bool reverse = false) {
  const auto T = static_cast<Index>(a.size());
  std::vector<float> h(a.size());
  const auto view = [&](auto& v) {
    return SequenceView<std::remove_reference_t<decltype(v[0])>>::batch_first(v.data(), T, 1);
  };
  Scan<float>(1, ScanForm::linear, reverse)
      .forward({.rows = 1, .steps = T}, {view(a), view(b), {}}, view(h), &h0, nullptr,
               {.threads = 2, .algorithm = algorithm});
  return h;
}

TEST(Scan, ChunksOverflowOnlyWhereStepsDo) {
  for (const bool reverse : {false, true}) {
    // Four terms whose sum overflows unless it starts from the state that enters their chunk.
    std::vector<float> a(4096, 1.0f), b(4096, 0.0f);
    for (const Index t : {1500, 1501, 1502, 1503}) b[reverse ? 4095 - t : t] = 1.5e38f;
    EXPECT_EQ(walk(a, b, -3e38f, Algorithm::scan, reverse), walk(a, b, -3e38f, Algorithm::sequential, reverse));
    // A gain that overflows, of a state that is zero.
    std::fill(b.begin(), b.end(), 0.0f);
    std::fill(a.begin() + 2100, a.begin() + 2300, 2.0f);
    EXPECT_EQ(walk(a, b, 0.0f, Algorithm::scan, reverse), std::vector<float>(4096, 0.0f));
    // Values that overflow do so in both.
    const auto big = walk(a, b, 1.0f, Algorithm::scan, reverse);
    EXPECT_EQ(big, walk(a, b, 1.0f, Algorithm::sequential, reverse));
    EXPECT_TRUE(std::isinf(big[reverse ? 0 : 4095]));
  }
}

TEST(Scan, ChunksOfGradientsOverflowOnlyWhereStepsDo) {
  constexpr Index T = 4096;
  std::vector<float> a(T, 1.0f), h(T, 0.0f), dh(T, 0.0f), da(T), db(T), other(T);
  for (const Index t : {2500, 2501, 2502, 2503}) dh[t] = 1.5e38f;
  const float dhT = -3e38f;
  const auto view = [&](auto& v) {
    return SequenceView<std::remove_reference_t<decltype(v[0])>>::batch_first(v.data(), T, 1);
  };
  const auto run = [&](Algorithm algorithm, std::vector<float>& to) {
    float dh0 = 0;
    Scan<float>(1).backward({.rows = 1, .steps = T}, {view(std::as_const(a)), view(std::as_const(a)), {}},
                            view(std::as_const(h)), nullptr, view(std::as_const(dh)), &dhT, {view(da), view(to), {}},
                            &dh0, {.threads = 2, .algorithm = algorithm});
    return dh0;
  };
  EXPECT_EQ(run(Algorithm::scan, db), run(Algorithm::sequential, other));
  EXPECT_EQ(db, other);
  EXPECT_FLOAT_EQ(db[0], 3e38f);
}

TEST(Scan, InfiniteStatesStayInfinite) {
  // Where a gain of many steps underflows, zero times infinity is no number, but no step ever says that.
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> a(4096, 0.5f);
  std::vector<float> b(4096, 1.0f);
  for (const bool reverse : {false, true}) {
    EXPECT_EQ(walk(a, b, infinity, Algorithm::scan, reverse), std::vector<float>(4096, infinity));
  }
  b[100] = -infinity;
  const auto from_within = walk(a, b, 1.0f, Algorithm::scan);
  EXPECT_EQ(from_within, walk(a, b, 1.0f, Algorithm::sequential));
  EXPECT_EQ(from_within.back(), -infinity);
}

TEST(Scan, InfiniteStatesOfLogarithmsStayInfinite) {
  constexpr Index T = 4096;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> log_b(T, 0.0f), infinite(T, infinity), dh(T, 1.0f);
  const auto view = [&](auto& v) {
    return SequenceView<std::remove_reference_t<decltype(v[0])>>::batch_first(v.data(), T, 1);
  };
  const Scan<float> scan(1, ScanForm::logarithmic);
  // SplitExp() makes e^0.3 of a larger power of two and a negative rest, e^16 of a smaller one and a small positive
  // rest.
  for (const float gain : {-0.3f, 0.0f, 0.3f, 0.5f, 16.0f}) {
    for (const Algorithm algorithm : {Algorithm::scan, Algorithm::sequential}) {
      SCOPED_TRACE(fmt::format("{} {}", gain, to_string(algorithm)));
      const Execution execution = {.threads = 2, .algorithm = algorithm};
      const std::vector<float> log_a(T, gain);
      std::vector<float> h(T), in_place = log_a, da(T), db(T);
      scan.forward({.rows = 1, .steps = T}, {view(log_a), view(log_b), {}}, view(h), &infinity, nullptr, execution);
      EXPECT_EQ(h, infinite);
      scan.forward({.rows = 1, .steps = T}, {view(std::as_const(in_place)), view(log_b), {}}, view(in_place), &infinity,
                   nullptr, execution);
      EXPECT_EQ(in_place, infinite);
      float dh0 = 0;
      scan.backward({.rows = 1, .steps = T}, {view(log_a), view(log_b), {}}, view(std::as_const(log_b)), nullptr,
                    view(dh), &infinity, {view(da), view(db), {}}, &dh0, execution);
      EXPECT_EQ(dh0, infinity);
      EXPECT_EQ(db, infinite);
    }
  }
}

TEST(Scan, SplitsAreExact) {
  const Case c{.T = 333, .C = 19};
  const Tensors t = make(c);
  const std::vector<float> a(t.a.begin(), t.a.end()), b(t.b.begin(), t.b.end());
  const auto run_to = [&](Index first, Index count, std::vector<float>& h, std::vector<float>& state) {
    const auto view = [&](const std::vector<float>& v) {
      return SequenceView<const float>::batch_first(v.data() + first * c.C, count, c.C);
    };
    Scan<float>(c.C).forward({.rows = 1, .steps = count}, {view(a), view(b), {}},
                             SequenceView<float>::batch_first(h.data() + first * c.C, count, c.C), state.data(),
                             state.data(), {.exact = true});
  };
  std::vector<float> whole(a.size()), parts(a.size()), state(c.C, 0.25f), other = state;
  run_to(0, c.T, whole, state);
  for (Index first = 0; first < c.T;) {
    const Index count = std::min<Index>(1 + first % 17, c.T - first);
    run_to(first, count, parts, other);
    first += count;
  }
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(state, other);
}

TEST(Scan, SaysWhatIsMissing) {
  std::vector<float> x(6);
  const auto view = SequenceView<float>::batch_first(x.data(), 2, 3);
  const Scan<float> scan(3);
  test::expect_error(ErrorCode::invalid_argument, "channels must be 1", [] { Scan<float>(0); });
  test::expect_error(ErrorCode::invalid_argument, "terms.a is missing", [&] {
    scan.forward({.rows = 1, .steps = 2}, {{}, view, {}}, view);
  });
  test::expect_error(ErrorCode::invalid_argument, "h is missing", [&] {
    scan.forward({.rows = 1, .steps = 2}, {view, view, {}}, {});
  });
  test::expect_error(ErrorCode::invalid_argument, "terms.factor belongs to the logarithmic form", [&] {
    scan.forward({.rows = 1, .steps = 2}, {view, view, view}, view);
  });
  test::expect_error(ErrorCode::unsupported, "precision must be full for a scan", [&] {
    scan.forward({.rows = 1, .steps = 2}, {view, view, {}}, view, nullptr, nullptr, {.precision = Precision::bf16});
  });
  test::expect_error(ErrorCode::invalid_argument, "precision must be a value of its enumeration, 0 to 4, not 9", [&] {
    scan.forward({.rows = 1, .steps = 2}, {view, view, {}}, view, nullptr, nullptr, {.precision = Precision{9}});
  });
  test::expect_error(ErrorCode::invalid_argument, "algorithm must be a value of its enumeration, 0 to 2, not -1", [&] {
    scan.forward({.rows = 1, .steps = 2}, {view, view, {}}, view, nullptr, nullptr, {.algorithm = Algorithm{-1}});
  });
  test::expect_error(ErrorCode::invalid_argument, "form must be a value of its enumeration, 0 to 1, not 2",
                     [] { Scan<float>(3, ScanForm{2}); });
  test::expect_error(ErrorCode::invalid_argument, "batch.steps must be at least 1", [&] {
    scan.forward({.rows = 1, .steps = 0}, {view, view, {}}, view);
  });
}

}  // namespace
}  // namespace penstock
