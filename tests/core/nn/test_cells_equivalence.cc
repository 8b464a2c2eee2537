// Routes that must meet: steps and sequences, parts and wholes, rows and batches, heads and networks, threads.

#include <omp.h>

#include "backend/cpu/instruction_sets.h"
#include "nn/check_cell.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

class CellEquivalence : public CellTest {};

/// Steps first .. first + count - 1 of channel vectors [rows, steps, C].
template <class Real>
std::vector<Real> cut_steps(const std::vector<Real>& values, Index rows, Index steps, Index first, Index count) {
  const Index channels = static_cast<Index>(values.size()) / (rows * steps);
  std::vector<Real> part;
  for (Index b = 0; b < rows; ++b) {
    const auto from = values.begin() + (b * steps + first) * channels;
    part.insert(part.end(), from, from + count * channels);
  }
  return part;
}

/// Steps of all rows; for batches without lengths. States are for the caller to fill in.
template <class Real>
Inputs<Real> cut(const Inputs<Real>& in, Index first, Index count) {
  Inputs<Real> part{.rows = in.rows, .steps = count, .layout = in.layout};
  part.x = cut_steps(in.x, in.rows, in.steps, first, count);
  part.dy = cut_steps(in.dy, in.rows, in.steps, first, count);
  if (!in.reset.empty()) part.reset = cut_steps(in.reset, in.rows, in.steps, first, count);
  return part;
}

/// Row b of states [K, rows, H].
template <class Real>
std::vector<Real> row_of_state(const std::vector<Real>& state, Index rows, Index hidden, Index b) {
  std::vector<Real> row;
  for (Index k = 0; k * rows * hidden < static_cast<Index>(state.size()); ++k) {
    const auto from = state.begin() + (k * rows + b) * hidden;
    row.insert(row.end(), from, from + hidden);
  }
  return row;
}

/// A sequence that is run in parts, states handed on forwards and gradients of states backwards.
template <class Real>
Outputs<Real> run_in_parts(Recurrent<Real>& network, const Inputs<Real>& in, const std::vector<Index>& lengths,
                           const Execution& execution) {
  std::vector<Inputs<Real>> parts;
  std::vector<Real> state = in.state_in;
  Index first = 0;
  for (const Index length : lengths) {
    parts.push_back(cut(in, first, length));
    parts.back().state_in = state;
    state = run(network, parts.back(), execution).state_out;
    first += length;
  }
  Outputs<Real> whole{.y = std::vector<Real>(in.dy.size()), .state_out = state, .dx = std::vector<Real>(in.x.size())};
  whole.dstate_in = in.dstate_out;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    first -= part->steps;
    part->dstate_out = whole.dstate_in;
    const Outputs<Real> out = run(network, *part, execution);
    for (Index b = 0; b < in.rows; ++b) {
      const auto paste = [&](std::vector<Real>& to, const std::vector<Real>& from) {
        const Index channels = static_cast<Index>(from.size()) / (in.rows * part->steps);
        std::copy_n(from.begin() + b * part->steps * channels, part->steps * channels,
                    to.begin() + (b * in.steps + first) * channels);
      };
      paste(whole.y, out.y);
      paste(whole.dx, out.dx);
    }
    whole.dstate_in = out.dstate_in;
    if (whole.gradients.empty()) {
      whole.gradients = out.gradients;
      continue;
    }
    for (std::size_t p = 0; p < out.gradients.size(); ++p) {
      auto& sum = whole.gradients[p].second;
      std::ranges::transform(sum, out.gradients[p].second, sum.begin(), std::plus<>());
    }
  }
  return whole;
}

TEST_P(CellEquivalence, AnySplitOfASequenceIsTheWhole) {
  const Case c{.name = "split", .input = 7, .hidden = 13, .layers = 2, .rows = 3, .steps = 65, .reset = true};
  Recurrent<float> network = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  for (const Execution& execution : executions(info())) {
    const Outputs<float> whole = run(network, in, execution);
    for (const std::vector<Index>& parts : std::vector<std::vector<Index>>{{1, 64}, {64, 1}, {17, 31, 17}, {33, 32}}) {
      SCOPED_TRACE(testing::Message() << to_string(execution.algorithm) << (execution.exact ? " exact" : "")
                                      << ", first part " << parts[0]);
      const Outputs<float> split = run_in_parts(network, in, parts, execution);
      expect_close(network.spec(), split, whole, tolerances(network, in, c));
      if (execution.exact) expect_same_bits_in_rows(split, whole);
    }
  }
}

/// The whole keeps more than 4 MB for its backward pass, which dense cells write past the caches; the first part does
/// not.
TEST_P(CellEquivalence, ALargeTapeIsThatOfItsParts) {
  const Case c{.name = "large", .input = 5, .hidden = 64, .rows = 48, .steps = 200, .reset = true};
  Recurrent<float> network = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  const Execution execution{.exact = true};
  expect_same_bits_in_rows(run_in_parts(network, in, {40, 160}, execution), run(network, in, execution));
}

TEST_P(CellEquivalence, StepsAreTheSequence) {
  const Case c{.name = "steps", .input = 7, .hidden = 17, .layers = 2, .rows = 3, .steps = 17};
  Recurrent<float> network = make_network<float>(cell(), c);
  Inputs<float> in = make_inputs(network, c);
  in.layout = Layout::time_first;
  for (const bool exact : {false, true}) {
    const Execution execution{.exact = exact};
    const Outputs<float> whole = run(network, in, execution);
    Outputs<float> stepped = whole;
    std::vector<float> state = in.state_in;
    for (Index t = 0; t < c.steps; ++t) {
      const std::vector<float> x = cut_steps(in.x, c.rows, c.steps, t, 1);
      std::vector<float> y(static_cast<std::size_t>(c.rows * c.hidden));
      network.step(c.rows, x.data(), y.data(), state.data(), execution);
      for (Index b = 0; b < c.rows; ++b) {
        std::copy_n(y.begin() + b * c.hidden, c.hidden, stepped.y.begin() + (b * c.steps + t) * c.hidden);
      }
    }
    stepped.state_out = state;
    expect_close(network.spec(), stepped, whole, tolerances(network, in, c));
    if (exact) expect_same_bits_in_rows(stepped, whole);
  }
}

TEST_P(CellEquivalence, AStreamOfOneRowIsTheSequenceAtAnySize) {
  // One unit, around the vectors and the blocks of every instruction set, and beyond the cache of a core.
  std::vector<Case> all;
  for (const Index hidden : {1, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 65, 80, 112, 129}) {
    all.push_back({.name = "plain", .input = 1 + hidden % 5, .hidden = hidden, .layers = 1 + hidden % 2});
  }
  all.push_back({.name = "heads", .input = 3, .hidden = 102, .heads = 3, .bias = Bias::single});
  for (const Index head_size : {3, 8}) {  // heads of at most half a vector
    all.push_back({.name = "small heads", .input = 3, .hidden = 5 * head_size, .heads = 5});
  }
  all.push_back({.name = "large", .input = 250, .hidden = 400, .bias = Bias::none});
  for (Case& c : all) {
    if (!c.applies_to(info())) continue;
    c.rows = 1, c.steps = 5;
    Recurrent<float> network = make_network<float>(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    for (const Precision precision : {Precision::full, Precision::bf16_weights, Precision::bf16}) {
      SCOPED_TRACE(testing::Message() << "hidden " << c.hidden << ", " << to_string(precision));
      const Execution execution{.exact = true, .precision = precision};
      const Outputs<float> whole = run(network, in, execution);
      std::vector<float> state = in.state_in, y(whole.y.size());
      for (Index t = 0; t < c.steps; ++t) {
        network.step(1, &in.x[t * c.input], &y[t * c.hidden], state.data(), execution);
      }
      ASSERT_TRUE(same_bits(y, whole.y));
      ASSERT_TRUE(same_bits(state, whole.state_out));
    }
  }
}

void check_rows_alone(const std::string& cell, const Case& c, int threads) {
  Recurrent<float> network = make_network<float>(cell, c);
  const Inputs<float> in = make_inputs(network, c);
  for (const bool exact : {false, true}) {
    const Execution execution{.threads = threads, .exact = exact};
    const Outputs<float> batch = run(network, in, execution);
    for (Index b = 0; b < c.rows; ++b) {
      SCOPED_TRACE(testing::Message() << "row " << b << (exact ? ", exact" : ""));
      const auto row_of = [&](const std::vector<float>& values) { return cut_steps(values, 1, c.rows, b, 1); };
      Inputs<float> row{.steps = c.steps, .x = row_of(in.x), .dy = row_of(in.dy)};
      row.state_in = row_of_state(in.state_in, c.rows, c.hidden, b);
      row.dstate_out = row_of_state(in.dstate_out, c.rows, c.hidden, b);
      const Outputs<float> alone = run(network, row, execution);
      const Outputs<float> of_batch{.y = row_of(batch.y),
                                    .state_out = row_of_state(batch.state_out, c.rows, c.hidden, b),
                                    .dx = row_of(batch.dx),
                                    .dstate_in = row_of_state(batch.dstate_in, c.rows, c.hidden, b),
                                    .gradients = alone.gradients};
      expect_close(network.spec(), alone, of_batch, tolerances(network, in, c));
      if (exact) expect_same_bits_in_rows(alone, of_batch);
    }
  }
}

TEST_P(CellEquivalence, ARowAloneIsTheRowInABatch) {
  check_rows_alone(cell(), {.name = "rows", .input = 7, .hidden = 17, .layers = 2, .rows = 5, .steps = 9}, 0);
  // So many for a thread that dense cells make the product of their input step by step, which a row alone does not.
  check_rows_alone(cell(), {.name = "many", .input = 19, .hidden = 17, .layers = 2, .rows = 29, .steps = 9}, 1);
}

TEST_P(CellEquivalence, ARowOfAPackedBatchIsTheRowAlone) {
  const Case c{.name = "packed_rows", .input = 7, .hidden = 17, .rows = 5, .steps = 9, .form = RowForm::packed};
  Recurrent<float> network = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  const Execution exact{.exact = true};
  const Outputs<float> batch = run(network, in, exact);
  int compared = 0;
  for (Index b = 0; b < c.rows; ++b) {
    const oracle::Span span = oracle::row_span(in.batch(), b);
    if (span.length == 0) continue;
    const auto row_of = [&](const std::vector<float>& values) {
      return cut_steps(values, 1, in.cu_seqlens.back(), span.first, span.length);
    };
    Inputs<float> row{.steps = span.length, .x = row_of(in.x), .dy = row_of(in.dy)};
    row.state_in = row_of_state(in.state_in, c.rows, c.hidden, b);
    row.dstate_out = row_of_state(in.dstate_out, c.rows, c.hidden, b);
    const Outputs<float> alone = run(network, row, exact);
    EXPECT_TRUE(same_bits(alone.y, row_of(batch.y))) << "row " << b;
    EXPECT_TRUE(same_bits(alone.dx, row_of(batch.dx))) << "row " << b;
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

/// Values [positions, ...] of packed rows, one row after the other, put step after step.
template <class T>
std::vector<T> put_by_steps(const std::vector<T>& values, const std::vector<Index>& cu_seqlens) {
  const auto rows = static_cast<Index>(cu_seqlens.size()) - 1;
  const Index channels = static_cast<Index>(values.size()) / cu_seqlens.back();
  std::vector<T> result;
  for (Index t = 0; static_cast<Index>(result.size()) < channels * cu_seqlens.back(); ++t) {
    for (Index b = 0; b < rows && t < cu_seqlens[b + 1] - cu_seqlens[b]; ++b) {
      const auto first = values.begin() + (cu_seqlens[b] + t) * channels;
      result.insert(result.end(), first, first + channels);
    }
  }
  return result;
}

TEST_P(CellEquivalence, PackedRowsMayLieStepAfterStep) {
  const Case c{.name = "by_steps",
               .input = 7,
               .hidden = 33,
               .layers = 2,
               .direction = Direction::bidirectional,
               .rows = 6,
               .steps = 41,
               .form = RowForm::packed,
               .reset = true};
  Recurrent<float> network = make_network<float>(cell(), c);
  Inputs<float> rows = make_inputs(network, c);
  const Index total = rows.cu_seqlens.back();
  rows.cu_seqlens = {0, 41, 82, 82 + (total - 82) / 2, total - 1, total, total};
  ASSERT_GT((total - 82) / 2, 2);
  Inputs<float> steps = rows;
  steps.by_steps = true;
  steps.x = put_by_steps(rows.x, rows.cu_seqlens);
  steps.dy = put_by_steps(rows.dy, rows.cu_seqlens);
  steps.reset = put_by_steps(rows.reset, rows.cu_seqlens);
  for (const Execution& execution : executions(info())) {
    Outputs<float> want = run(network, rows, execution);
    want.y = put_by_steps(want.y, rows.cu_seqlens);
    want.dx = put_by_steps(want.dx, rows.cu_seqlens);
    expect_same_bits(run(network, steps, execution), want);
  }
  steps.cu_seqlens = {0, 1, total, total, total, total, total};
  steps.steps = total;
  expect_error(ErrorCode::invalid_argument, "must not become longer", [&] { run(network, steps); });
}

/// Some rows of states [K, rows, H].
std::vector<float> rows_of_states(const std::vector<float>& states, Index rows, Index hidden,
                                  const std::vector<Index>& wanted) {
  std::vector<float> some;
  for (Index k = 0; k * rows * hidden < static_cast<Index>(states.size()); ++k) {
    for (const Index row : wanted) {
      const auto from = states.begin() + (k * rows + row) * hidden;
      some.insert(some.end(), from, from + hidden);
    }
  }
  return some;
}

/// Adds states [K, wanted.size(), H] to those rows of states [K, rows, H], which are zeros elsewhere.
std::vector<float> at_rows_of_states(const std::vector<float>& states, Index rows, Index hidden,
                                     const std::vector<Index>& wanted) {
  const auto some = static_cast<Index>(wanted.size()), count = static_cast<Index>(states.size()) / (some * hidden);
  std::vector<float> all(static_cast<std::size_t>(count * rows * hidden));
  // The last steps first, as gradients are added up.
  for (Index i = count * some * hidden; i-- > 0;) {
    const Index k = i / hidden / some, row = wanted[i / hidden % some];
    all[(k * rows + row) * hidden + i % hidden] += states[i];
  }
  return all;
}

/// Rows cut at their resets: each part as a packed row, from the state that a reset or the row starts it with.
struct Parts {
  Inputs<float> packed;
  std::vector<Index> start = {};  // of each part: its state among those of state_in
  std::vector<Index> last = {};   // of each row: its last part
};

Parts cut_at_resets(const Inputs<float>& in, Index hidden) {
  Parts parts{in};
  Inputs<float>& packed = parts.packed;
  packed.reset.clear(), packed.restarts = Restarts::zeros;
  const Index positions = in.rows * in.steps;
  for (Index p = 0; p < positions; ++p) {
    const Index row = p / in.steps;
    const bool reset = in.reset[p] != 0;
    if (p % in.steps == 0 || reset) {
      const Index restart = in.restarts == Restarts::one ? 0 : in.restarts == Restarts::rows ? row : p;
      parts.start.push_back(reset ? in.rows + restart : row);
      packed.cu_seqlens.push_back(p);
    }
    if (p % in.steps == in.steps - 1) parts.last.push_back(static_cast<Index>(parts.start.size()) - 1);
  }
  packed.cu_seqlens.push_back(positions);
  packed.rows = static_cast<Index>(parts.start.size());
  packed.state_in = rows_of_states(in.state_in, state_rows(in.batch()), hidden, parts.start);
  packed.dstate_out = at_rows_of_states(in.dstate_out, packed.rows, hidden, parts.last);
  return parts;
}

TEST_P(CellEquivalence, RowsStartAgainAtGivenStates) {
  std::vector<Execution> all = executions(info());
  all.push_back({.threads = 3});
  if (info().scan) all.push_back({.threads = 3, .algorithm = Algorithm::scan});
  const Case cases[] = {
      {.name = "layers", .input = 7, .hidden = 17, .layers = 2, .rows = 5, .steps = 23, .reset = true},
      {.name = "clipped", .input = 3, .hidden = 34, .heads = 2, .steps = 9, .reset = true, .gradient_clip = 0.2},
      {.name = "long", .input = 3, .hidden = 9, .rows = 1, .steps = 2100, .reset = true},
  };
  for (const Case& c : cases) {
    if (!c.applies_to(info())) continue;
    Recurrent<float> network = make_network<float>(cell(), c);
    for (const Restarts restarts : {Restarts::one, Restarts::rows, Restarts::steps}) {
      SCOPED_TRACE(c.name + " " + std::to_string(static_cast<int>(restarts)));
      Inputs<float> in = make_inputs(network, c);
      Random random(5);
      in.restarts = restarts;
      in.state_in = draw_state(random, network, state_rows(in.batch()));
      const Parts parts = cut_at_resets(in, c.hidden);
      ASSERT_GT(parts.packed.rows, c.rows);
      for (const Execution& execution : all) {
        Outputs<float> want = run(network, parts.packed, execution);
        want.state_out = rows_of_states(want.state_out, parts.packed.rows, c.hidden, parts.last);
        want.dstate_in = at_rows_of_states(want.dstate_in, state_rows(in.batch()), c.hidden, parts.start);
        Outputs<float> got = run(network, in, execution);
        for (float& gradient : got.dstate_in) gradient += 0.0f;  // -0 is 0
        expect_close(network.spec(), got, want, tolerances(network, in, c));
        if (execution.exact && restarts != Restarts::one) expect_same_bits_in_rows(got, want);
      }
    }
  }
}

TEST_P(CellEquivalence, ScanIsSequential) {
  if (!info().scan) GTEST_SKIP() << "knows sequential only";
  for (const Index steps : {1, 2, 7, 17, 65, 257, 4099, 65537}) {
    SCOPED_TRACE(steps);
    Case c{.name = "scan", .input = 3, .hidden = 17, .rows = 2, .steps = steps, .bias_scale = 9.0};
    if (steps > 1000) c.rows = 1, c.hidden = 9;
    Recurrent<float> network = make_network<float>(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    const Outputs<float> sequential = run(network, in, {.algorithm = Algorithm::sequential});
    for (const int threads : {1, 2, 3}) {
      const Outputs<float> scan = run(network, in, {.threads = threads, .algorithm = Algorithm::scan});
      expect_close(network.spec(), scan, sequential, tolerances(network, in, c));
    }
  }
}

TEST_P(CellEquivalence, TheSameCallGivesTheSameBits) {
  const Case c = everything();
  Recurrent<float> network = make_network<float>(cell(), c), twin = make_network<float>(cell(), c);
  const Inputs<float> in = make_inputs(network, c);
  for (const Execution& execution : executions(info())) {
    const Outputs<float> first = run(network, in, execution);
    expect_same_bits(run(network, in, execution), first);
    expect_same_bits(run(twin, in, execution), first);
  }
}

TEST_P(CellEquivalence, ThreadsChangeRoundingOnly) {
  const Case cases[] = {
      {.name = "many_rows", .input = 7, .hidden = 33, .layers = 2, .rows = 5, .steps = 65, .reset = true},
      {.name = "uneven_rows", .input = 7, .hidden = 33, .rows = 7, .steps = 33, .form = RowForm::lengths},
      {.name = "shared_units", .input = 7, .hidden = 301, .rows = 1, .steps = 9, .reset = true},
      {.name = "shared_units_of_uneven_rows", .input = 3, .hidden = 301, .rows = 2, .form = RowForm::lengths},
      {.name = "shared_heads", .input = 3, .hidden = 602, .heads = 2, .rows = 1, .steps = 3},
      {.name = "whole_heads", .input = 3, .hidden = 602, .heads = 14, .rows = 1, .steps = 3},
      {.name = "narrow_heads", .input = 3, .hidden = 602, .heads = 301, .rows = 3, .form = RowForm::lengths},
  };
  for (const Case& c : cases) {
    if (!c.applies_to(info())) continue;
    Recurrent<float> network = make_network<float>(cell(), c);
    const Inputs<float> in = make_inputs(network, c);
    for (Execution execution : executions(info())) {
      execution.threads = 1;
      const Outputs<float> one = run(network, in, execution);
      for (const int threads : {2, 3, 4}) {
        SCOPED_TRACE(testing::Message() << c.name << ", " << threads << " threads, " << to_string(execution.algorithm));
        execution.threads = threads;
        const Outputs<float> several = run(network, in, execution);
        expect_close(network.spec(), several, one, tolerances(network, in, c));
        // As on a busy machine, where a plan's threads are not granted (base/team_limit.h).
        omp_set_max_active_levels(0);
        const Outputs<float> alone = run(network, in, execution);
        omp_set_max_active_levels(1);
        expect_same_bits(alone, several);
        if (execution.exact) expect_same_bits_in_rows(several, one);
      }
    }
  }
}

/// Whatever belongs to one head is to the bit what a network of that head alone gives; the gradient of x is the sum.
template <class Real>
void expect_heads_to_be_networks(const CellInfo& info, Index heads, Index d) {
  const std::string cell(info.name);
  const Case whole_case{.name = "heads", .hidden = heads * d, .heads = heads};
  const Case head_case{.name = "head", .hidden = d};
  Recurrent<Real> whole = make_network<Real>(cell, whole_case);
  const Inputs<Real> in = make_inputs(whole, whole_case);
  const Outputs<Real> out = run(whole, in);
  const auto allowed = tolerances(whole, in, whole_case);
  std::vector<Real> dx(out.dx.size(), Real(0));
  for (Index head = 0; head < heads; ++head) {
    SCOPED_TRACE(testing::Message() << "head " << head);
    Recurrent<Real> one = make_network<Real>(cell, head_case);
    // Rows of a parameter: one after the other within the head for weight_hh, head * D + j of every gate otherwise.
    const auto row = [&](const std::string& name, Index gate, Index j) {
      return name.starts_with("weight_hh") ? (head * info.gates + gate) * d + j : (gate * heads + head) * d + j;
    };
    const auto part_of = [&](const std::string& name, std::span<const Real> values) {
      const Index width = static_cast<Index>(values.size()) / (info.gates * heads * d);
      std::vector<Real> part;
      for (Index i = 0; i < info.gates * d; ++i) {
        const auto from = values.begin() + row(name, i / d, i % d) * width;
        part.insert(part.end(), from, from + width);
      }
      return part;
    };
    for (std::size_t p = 0; p < one.parameters().size(); ++p) {
      std::ranges::copy(part_of(whole.parameters()[p].name, whole.parameters()[p].value),
                        one.parameters()[p].value.begin());
    }
    one.weights_changed();
    const auto units = [&](const std::vector<Real>& values) {  // this head's channels of [.., heads * D]
      return cut_steps(values, static_cast<Index>(values.size()) / (heads * d), heads, head, 1);
    };
    Inputs<Real> head_in = in;
    head_in.dy = units(in.dy);
    head_in.state_in = units(in.state_in);
    head_in.dstate_out = units(in.dstate_out);
    const Outputs<Real> alone = run(one, head_in);
    std::ranges::transform(dx, alone.dx, dx.begin(), std::plus<>());
    EXPECT_TRUE(same_bits(alone.y, units(out.y))) << "y";
    EXPECT_TRUE(same_bits(alone.state_out, units(out.state_out))) << "state out";
    EXPECT_TRUE(same_bits(alone.dstate_in, units(out.dstate_in))) << "gradient of state in";
    for (std::size_t p = 0; p < out.gradients.size(); ++p) {
      const auto& [name, gradient] = out.gradients[p];
      const std::vector<Real>& of_one = alone.gradients[p].second;
      const std::vector<Real> of_whole = part_of(name, gradient);
      // How AMX splits an fp32 GEMM depends on its size.
      EXPECT_TRUE(cpu::has_bf16_tiles() ? close(of_one, of_whole, allowed.backward, backward_terms)
                                        : same_bits(of_one, of_whole))
          << "gradient of " << name;
    }
  }
  EXPECT_TRUE(close(out.dx, dx, allowed.backward, backward_terms));
}

TEST_P(CellEquivalence, HeadsAreSeparateNetworks) {
  if (info().scan) GTEST_SKIP() << "has no recurrent weights";
  expect_heads_to_be_networks<double>(info(), 3, 5);
  expect_heads_to_be_networks<float>(info(), 3, 5);
  expect_heads_to_be_networks<float>(info(), 2, 33);
  for (const Index narrow : {1, 2, 4, 8}) expect_heads_to_be_networks<float>(info(), 37 / narrow, narrow);
}

INSTANTIATE_TEST_SUITE_P(Each, CellEquivalence, testing::ValuesIn(cell_names()), test_name);

}  // namespace
}  // namespace penstock::test
