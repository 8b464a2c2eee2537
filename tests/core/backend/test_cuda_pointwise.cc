// The ops between matrix products on a GPU against plain loops in double. Skipped where there is no GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/driver/graph.h"
#include "backend/cuda/pointwise/changes.h"
#include "backend/cuda/pointwise/convolution.h"
#include "backend/cuda/pointwise/copy.h"
#include "backend/cuda/pointwise/embedding.h"
#include "backend/cuda/pointwise/rms_norm.h"
#include "backend/cuda/pointwise/silu_gate.h"
#include "base/counter_random.h"
#include "support/gpu.h"

namespace penstock::cuda {
namespace {

using plan::Storage;
using test::backward_terms;
using test::close;
using test::Doubles;
using test::forward_terms;

class Pointwise : public test::GpuTest {
 protected:
  /// Rows of every length, one of them empty.
  std::vector<std::int64_t> some_lengths(Index rows, Index steps) {
    std::vector<std::int64_t> lengths;
    for (Index b = 0; b < rows; ++b) lengths.push_back(b == 0 ? steps : b == 1 ? 0 : 1 + 5 * b % steps);
    return lengths;
  }
  std::vector<std::uint8_t> some_resets(Index count) {
    std::vector<std::uint8_t> reset;
    for (Index i = 0; i < count; ++i) reset.push_back(random.uniform() < 0.1 ? 1 : 0);
    return reset;
  }
};

TEST_P(Pointwise, EmbeddingLooksUpAndSums) {
  struct Sizes {
    Index rows, steps, width, vocabulary;
    bool lengths, add;
  };
  for (const auto& [rows, steps, width, vocabulary, with_lengths, add] :
       {Sizes{3, 9, 7, 5, true, false}, Sizes{1, 1, 1, 1, false, false}, Sizes{4, 700, 512, 256, true, true},
        Sizes{2, 1500, 40, 300, false, false}, Sizes{1, 3001, 8, 70'000, false, true},
        Sizes{3, 64, 4100, 2, true, false}, Sizes{0, 5, 8, 3, false, false}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << steps << " x " << width << ", vocabulary " << vocabulary);
    const Index count = rows * steps;
    std::vector<std::int32_t> tokens;
    // Some tokens are far more frequent than others.
    for (Index i = 0; i < count; ++i) {
      tokens.push_back(random.uniform() < 0.3 ? 0 : static_cast<std::int32_t>(random.below(vocabulary)));
    }
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(rows), steps);
    if (with_lengths) lengths = some_lengths(rows, steps);
    const Doubles table = numbers(vocabulary * width, 1, storage), dy = numbers(count * width, 1, storage);
    Doubles gradient = numbers(vocabulary * width, 1, Storage::f32);
    const Buffer tokens_gpu = put(tokens), lengths_gpu = put(lengths), table_gpu = put(table, storage);
    const Buffer dy_gpu = put(dy, storage);
    Buffer y = room(count * width, storage), gradient_gpu = put(gradient, Storage::f32);
    Embedding spec{{rows, steps, with_lengths}, vocabulary, width, storage, storage, add};
    const DeviceAddress given = with_lengths ? lengths_gpu.address() : 0;
    EmbeddingForwardExecutable(device(), spec)
        .run({tokens_gpu.address(), given, table_gpu.address(), y.address()}, stream->handle());
    Doubles want(static_cast<std::size_t>(count * width), 0.0);
    if (!add) std::fill(gradient.begin(), gradient.end(), 0.0);
    const Doubles start = gradient;
    for (Index p = 0; p < count; ++p) {
      if (p % steps >= lengths[p / steps]) continue;
      for (Index c = 0; c < width; ++c) {
        want[p * width + c] = table[tokens[p] * width + c];
        gradient[tokens[p] * width + c] += dy[p * width + c];
      }
    }
    EXPECT_EQ(get(y, storage), want);
    const EmbeddingBackwardExecutable backward(device(), spec);
    Buffer workspace = bytes(backward.workspace_bytes());
    repeat(
        [&] {
          if (add) gradient_gpu = put(start, Storage::f32);
          backward.run({tokens_gpu.address(), given, dy_gpu.address(), gradient_gpu.address()}, workspace.address(),
                       stream->handle());
        },
        [&] { return get(gradient_gpu, Storage::f32); });
    EXPECT_TRUE(close(get(gradient_gpu, Storage::f32), gradient, allowed(std::max<Index>(count, 1), 0), 1.0));
  }
}

TEST_P(Pointwise, TokensOutsideOfTheVocabularyAreLoud) {
  const Buffer tokens = put(std::vector<std::int32_t>{1, -1, 3}), table = put(numbers(6, 1, storage), storage);
  Buffer y = room(6, storage);
  EmbeddingForwardExecutable(device(), {{1, 3}, 3, 2, storage, storage})
      .run({tokens.address(), 0, table.address(), y.address()}, stream->handle());
  const Doubles got = get(y, storage);
  EXPECT_FALSE(std::isnan(got[0]) || std::isnan(got[1]));
  for (std::size_t i = 2; i < 6; ++i) EXPECT_TRUE(std::isnan(got[i])) << i;
}

/// Effect of dropout on a value.
struct Mask {
  counter_random::Word key;
  double probability;

  double of(double value, std::size_t index) const {
    const auto threshold = static_cast<unsigned>(std::ldexp(probability, 32));
    return counter_random::keeps(key, index, threshold) ? value / (1 - probability) : 0.0;
  }
};

TEST_P(Pointwise, RmsNormWithAndWithoutABranch) {
  struct Sizes {
    Index rows, width;
    int branch;  // 1: one is added; 2: with dropout
  };
  for (const auto& [rows, width, branch] :
       {Sizes{5, 1, 0}, Sizes{3, 7, 1}, Sizes{67, 512, 2}, Sizes{1300, 96, 0}, Sizes{2, 5000, 1}, Sizes{3, 100'003, 2},
        Sizes{2, 100'000, 1}, Sizes{3000, 64, 2}, Sizes{1, 513, 0}, Sizes{0, 8, 1}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << width << ", branch " << branch);
    const Index size = rows * width;
    const Mask mask{counter_random::key_of(99, 3), 0.3};
    RmsNorm spec{.rows = rows, .width = width, .storage = storage, .branch = branch > 0};
    spec.add_dx = branch > 0;
    if (branch == 2) spec.dropout = {mask.probability, 3};
    const Doubles x = numbers(size, 1, storage), added = numbers(size, 1, storage), dy = numbers(size, 1, storage);
    const Doubles d = numbers(size, 1, storage), gain = numbers(width, 1, Storage::f32);
    const Buffer x_gpu = put(x, storage), added_gpu = put(added, storage), dy_gpu = put(dy, storage);
    const Buffer d_gpu = put(d, storage), gain_gpu = put(gain, Storage::f32);
    const Buffer seed = put(std::vector<std::uint64_t>{99});
    Buffer sum = room(size, storage), y = room(size, storage), inverse = room(rows, Storage::f32);
    RmsNormForwardCall call{.x = x_gpu.address(), .gain = gain_gpu.address(), .y = y.address()};
    call.inverse = inverse.address();
    if (branch > 0) call.branch = added_gpu.address(), call.sum = sum.address();
    if (branch == 2) call.seed = seed.address();
    RmsNormForwardExecutable(device(), spec).run(call, stream->handle());

    Doubles want_sum = x, want_y(x.size()), want_inverse(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; branch > 0 && i < x.size(); ++i) {
      want_sum[i] += branch == 2 ? mask.of(added[i], i) : added[i];
    }
    if (branch > 0) {
      EXPECT_TRUE(close(get(sum, storage), want_sum, allowed(1, 2), forward_terms));
    }
    const Doubles normalised = branch > 0 ? get(sum, storage) : x;  // as stored: rounding is no error of what follows
    for (Index r = 0; r < rows; ++r) {
      double squares = 0;
      for (Index c = 0; c < width; ++c) squares += normalised[r * width + c] * normalised[r * width + c];
      want_inverse[r] = 1 / std::sqrt(squares / static_cast<double>(width) + spec.epsilon);
      for (Index c = 0; c < width; ++c) {
        want_y[r * width + c] = gain[c] * normalised[r * width + c] * want_inverse[r];
      }
    }
    EXPECT_TRUE(close(get(y, storage), want_y, allowed(width, 2), forward_terms));
    EXPECT_TRUE(close(get(inverse, Storage::f32), want_inverse, allowed(width, 0), forward_terms));

    const RmsNormBackwardExecutable backward(device(), spec);
    Buffer dx = room(size, storage), dbranch = room(size, storage), dgain = room(width, Storage::f32);
    Buffer workspace = bytes(backward.workspace_bytes());
    const Buffer normalised_gpu = put(normalised, storage);
    RmsNormBackwardCall back{.x = normalised_gpu.address(), .dy = dy_gpu.address(), .inverse = inverse.address()};
    back.gain = gain_gpu.address(), back.dx = dx.address(), back.gain_gradient = dgain.address();
    if (branch > 0) back.d = d_gpu.address(), back.dbranch = dbranch.address(), back.seed = seed.address();
    repeat([&] { backward.run(back, workspace.address(), stream->handle()); },
           [&] { return get(dgain, Storage::f32); });
    Doubles want_dx(x.size()), want_dbranch(x.size()), want_dgain(static_cast<std::size_t>(width), 0.0);
    double largest = 1;
    for (Index r = 0; r < rows; ++r) {
      double dot = 0;
      for (Index c = 0; c < width; ++c) dot += gain[c] * dy[r * width + c] * normalised[r * width + c];
      const double pull = dot * std::pow(want_inverse[r], 3) / static_cast<double>(width);
      for (Index c = 0; c < width; ++c) {
        const std::size_t i = static_cast<std::size_t>(r * width + c);
        want_dx[i] = (branch > 0 ? d[i] : 0) + want_inverse[r] * gain[c] * dy[i] - pull * normalised[i];
        want_dbranch[i] = branch == 2 ? mask.of(want_dx[i], i) : want_dx[i];
        want_dgain[c] += dy[i] * normalised[i] * want_inverse[r];
      }
      largest = std::max(largest, want_inverse[r]);
    }
    // Terms as large as the inverse cancel where a row is nearly one direction.
    EXPECT_TRUE(close(get(dx, storage), want_dx, allowed(width, 2), largest));
    if (branch > 0) {
      EXPECT_TRUE(close(get(dbranch, storage), want_dbranch, allowed(width, 3), largest));
    }
    EXPECT_TRUE(close(get(dgain, Storage::f32), want_dgain, allowed(rows + width, 0), 1.0));

    // With sums, which are of the stored values.
    spec.sums = true;
    const RmsNormBackwardExecutable summing(device(), spec);
    Buffer same_dx = room(size, storage), same_dgain = room(width, Storage::f32), sums = room(width, Storage::f32);
    Buffer more = bytes(summing.workspace_bytes());
    const Doubles summed = get(branch > 0 ? dbranch : dx, storage);
    back.dx = same_dx.address(), back.gain_gradient = same_dgain.address(), back.sums = sums.address();
    repeat([&] { summing.run(back, more.address(), stream->handle()); }, [&] { return get(sums, Storage::f32); });
    EXPECT_EQ(get(same_dx, storage), get(dx, storage)) << "to the bit";
    EXPECT_EQ(get(same_dgain, Storage::f32), get(dgain, Storage::f32)) << "to the bit";
    Doubles want_sums(static_cast<std::size_t>(width), 0.0);
    for (std::size_t i = 0; i < summed.size(); ++i) want_sums[i % want_sums.size()] += summed[i];
    EXPECT_TRUE(close(get(sums, Storage::f32), want_sums, oracle::tolerance<float>({.summed = rows}), largest));
  }
}

/// A convolution in double: values, the state that it leaves, gradients.
struct WantedConvolution {
  Index rows, steps, width, taps;
  std::vector<std::int64_t> lengths;
  std::vector<std::uint8_t> reset;

  /// Where the input of `back` steps before (b, t) comes from: >= 0 from x, < 0 from the state, none if it is zero.
  bool source(Index b, Index t, Index back, Index& from) const {
    for (Index s = std::max<Index>(t - back + 1, 0); s <= t; ++s) {
      if (reset[static_cast<std::size_t>(b * steps + s)] != 0) return false;
    }
    from = t - back;
    return true;
  }
  template <class Visit>  // (position, tap, from)
  void visit(const Visit& each) const {
    for (Index b = 0; b < rows; ++b) {
      for (Index t = 0; t < lengths[b]; ++t) {
        for (Index j = 0; j < taps; ++j) {
          Index from = 0;
          if (source(b, t, j, from)) each(b, t, j, from);
        }
      }
    }
  }
};

TEST_P(Pointwise, ConvolutionsOfFewAndManyTaps) {
  struct Sizes {
    Index rows, steps, width, taps;
    bool ragged, states;
  };
  for (const auto& [rows, steps, width, taps, ragged, states] :
       {Sizes{3, 9, 7, 4, true, true}, Sizes{2, 1, 33, 4, false, true}, Sizes{5, 70, 512, 4, true, true},
        Sizes{2, 33, 130, 1, false, false}, Sizes{3, 50, 9, 9, true, true}, Sizes{4, 60, 5, 33, true, true},
        Sizes{3, 65, 64, 32, true, true}, Sizes{40, 200, 8, 3, false, false}, Sizes{2, 3, 16, 40, false, true},
        Sizes{0, 3, 8, 4, false, false}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << steps << " x " << width << ", taps " << taps);
    const Index size = rows * steps * width, before = taps - 1;
    WantedConvolution w{rows, steps, width, taps, {}, {}};
    w.lengths.assign(static_cast<std::size_t>(rows), steps);
    w.reset.assign(static_cast<std::size_t>(rows * steps), 0);
    if (ragged) w.lengths = some_lengths(rows, steps), w.reset = some_resets(rows * steps);
    const Doubles x = numbers(size, 1, storage), dy = numbers(size, 1, storage);
    const Doubles weight = numbers(taps * width, 1, Storage::f32), bias = numbers(width, 1, Storage::f32);
    Doubles state = numbers(rows * before * width, 1, Storage::f32);
    if (!states) std::fill(state.begin(), state.end(), 0.0);
    const auto value_of = [&](Index b, Index from, Index c) {
      return from >= 0 ? x[(b * steps + from) * width + c] : state[(b * before + before + from) * width + c];
    };
    const Buffer x_gpu = put(x, storage), dy_gpu = put(dy, storage), weight_gpu = put(weight, Storage::f32);
    const Buffer bias_gpu = put(bias, Storage::f32);
    // States lie behind those of other layers, so aligned to a value alone.
    Doubles shifted = state;
    shifted.insert(shifted.begin(), 7.0);
    const Buffer state_gpu = put(shifted, Storage::f32);
    const Buffer lengths_gpu = put(w.lengths), reset_gpu = put(w.reset);
    Buffer y = room(size, storage), state_out = room(1 + rows * before * width, Storage::f32);
    const Convolution spec{{rows, steps, ragged}, width, taps, storage};
    ConvolutionForwardCall call{.x = x_gpu.address(), .weight = weight_gpu.address(), .bias = bias_gpu.address()};
    call.y = y.address();
    if (ragged) call.lengths = lengths_gpu.address(), call.reset = reset_gpu.address();
    if (states && before > 0) {
      call.state_in = state_gpu.address() + sizeof(float), call.state_out = state_out.address() + sizeof(float);
    }
    ConvolutionForwardExecutable(device(), spec).run(call, stream->handle());

    Doubles want_y(x.size(), 0.0), want_state = state, want_dx(x.size(), 0.0);
    Doubles want_dweight(weight.size(), 0.0), want_dbias(bias.size(), 0.0);
    for (Index b = 0; b < rows; ++b) {
      for (Index t = 0; t < w.lengths[b]; ++t) {
        for (Index c = 0; c < width; ++c) {
          want_y[(b * steps + t) * width + c] = bias[c];
          want_dbias[c] += dy[(b * steps + t) * width + c];
        }
      }
      for (Index i = 0; i < before && w.lengths[b] > 0; ++i) {
        Index from = 0;
        const bool there = w.source(b, w.lengths[b] - 1, before - 1 - i, from);
        for (Index c = 0; c < width; ++c) want_state[(b * before + i) * width + c] = there ? value_of(b, from, c) : 0.0;
      }
    }
    w.visit([&](Index b, Index t, Index j, Index from) {
      for (Index c = 0; c < width; ++c) {
        const double in = value_of(b, from, c), d = dy[(b * steps + t) * width + c];
        want_y[(b * steps + t) * width + c] += weight[j * width + c] * in;
        want_dweight[j * width + c] += d * in;
        if (from >= 0) want_dx[(b * steps + from) * width + c] += weight[j * width + c] * d;
      }
    });
    EXPECT_TRUE(close(get(y, storage), want_y, allowed(taps, 2), forward_terms));
    if (call.state_out != 0) {
      const Doubles got = get(state_out, Storage::f32);
      EXPECT_EQ(Doubles(got.begin() + 1, got.end()), want_state);
    }

    const ConvolutionBackwardExecutable backward(device(), spec);
    Buffer dx = room(size, storage), dweight = room(taps * width, Storage::f32), dbias = room(width, Storage::f32);
    Buffer workspace = bytes(backward.workspace_bytes());
    ConvolutionBackwardCall back{.lengths = call.lengths, .reset = call.reset, .x = call.x, .weight = call.weight};
    back.state_in = call.state_in, back.dy = dy_gpu.address(), back.dx = dx.address();
    back.weight_gradient = dweight.address(), back.bias_gradient = dbias.address();
    repeat([&] { backward.run(back, workspace.address(), stream->handle()); },
           [&] { return get(dweight, Storage::f32); });
    const double sums = allowed(std::max<Index>(rows * steps, 1), 0);
    EXPECT_TRUE(close(get(dx, storage), want_dx, allowed(taps, 2), forward_terms));
    EXPECT_TRUE(close(get(dweight, Storage::f32), want_dweight, sums, 1.0));
    EXPECT_TRUE(close(get(dbias, Storage::f32), want_dbias, sums, 1.0));
  }
}

TEST_P(Pointwise, StepsOfAConvolutionMoveItsState) {
  constexpr Index width = 24, taps = 4, steps = 7;
  const Doubles x = numbers(steps * width, 1, storage), weight = numbers(taps * width, 1, Storage::f32);
  const Doubles bias = numbers(width, 1, Storage::f32);
  const Buffer x_gpu = put(x, storage), weight_gpu = put(weight, Storage::f32), bias_gpu = put(bias, Storage::f32);
  Buffer whole = room(steps * width, storage), by_steps = room(steps * width, storage);
  Buffer state = room((taps - 1) * width, Storage::f32);
  state.fill(0);
  ConvolutionForwardCall call{.x = x_gpu.address(), .weight = weight_gpu.address(), .bias = bias_gpu.address()};
  call.y = whole.address();
  ConvolutionForwardExecutable(device(), {{1, steps}, width, taps, storage}).run(call, stream->handle());
  const ConvolutionForwardExecutable step(device(), {{1, 1}, width, taps, storage});
  call.state_in = call.state_out = state.address();
  for (Index t = 0; t < steps; ++t) {
    const auto offset = static_cast<DeviceAddress>(t * width * plan::size_of(storage));
    call.x = x_gpu.address() + offset, call.y = by_steps.address() + offset;
    step.run(call, stream->handle());
  }
  EXPECT_EQ(get(by_steps, storage), get(whole, storage)) << "to the bit";
}

TEST_P(Pointwise, SiluGate) {
  for (const auto& [rows, width] : {std::pair<Index, Index>{3, 7}, {1, 1}, {67, 512}, {5, 9001}, {2000, 24}, {0, 4}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << width);
    const Doubles gv = numbers(rows * 2 * width, 8, storage), dy = numbers(rows * width, 1, storage);
    const Buffer gv_gpu = put(gv, storage), dy_gpu = put(dy, storage);
    Buffer y = room(rows * width, storage), back = room(2 * rows * width, storage);
    Buffer in_place = room(2 * rows * width, storage);
    SiluGateExecutable(device(), {rows, width, storage, false})
        .run({gv_gpu.address(), 0, y.address()}, 0, stream->handle());
    Doubles want(dy.size()), want_back(gv.size());
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < width; ++c) {
        const double g = gv[2 * r * width + c], v = gv[(2 * r + 1) * width + c], d = dy[r * width + c];
        const double sigmoid = 1 / (1 + std::exp(-g));
        want[r * width + c] = g * sigmoid * v;
        want_back[2 * r * width + c] = d * v * sigmoid * (1 + g * (1 - sigmoid));
        want_back[(2 * r + 1) * width + c] = d * g * sigmoid;
      }
    }
    EXPECT_TRUE(close(get(y, storage), want, allowed(1, 2), forward_terms));
    SiluGateExecutable(device(), {rows, width, storage, true})
        .run({gv_gpu.address(), dy_gpu.address(), back.address()}, 0, stream->handle());
    EXPECT_TRUE(close(get(back, storage), want_back, allowed(1, 2), forward_terms));
    const SiluGateExecutable summing(device(), {rows, width, storage, true, true});
    Buffer sums = room(2 * width, Storage::f32), workspace = bytes(summing.workspace_bytes());
    workspace.fill(0);
    repeat(
        [&] {
          summing.run({gv_gpu.address(), dy_gpu.address(), in_place.address(), sums.address()}, workspace.address(),
                      stream->handle());
        },
        [&] { return get(sums, Storage::f32); });
    EXPECT_EQ(get(in_place, storage), get(back, storage)) << "to the bit";
    const Doubles made = get(back, storage);
    Doubles want_sums(static_cast<std::size_t>(2 * width), 0.0);
    for (std::size_t i = 0; i < made.size(); ++i) want_sums[i % want_sums.size()] += made[i];
    EXPECT_TRUE(close(get(sums, Storage::f32), want_sums, oracle::tolerance<float>({.summed = rows}), forward_terms));
  }
}

TEST_P(Pointwise, ResidualsDropTheSameValuesAsTheHost) {
  for (const Index size : {1, 7, 8, 1000, 100'003}) {
    for (const double probability : {0.0, 0.25}) {
      for (const bool add : {true, false}) {
        const Mask mask{counter_random::key_of(5, 2), probability};
        const Doubles x = numbers(size, 1, storage), branch = numbers(size, 1, storage);
        const Buffer x_gpu = put(x, storage), branch_gpu = put(branch, storage);
        const Buffer seed = put(std::vector<std::uint64_t>{5});
        Buffer y = room(size, storage);
        ResidualCall call{add ? x_gpu.address() : 0, branch_gpu.address(), y.address()};
        if (probability > 0) call.seed = seed.address();
        ResidualExecutable(device(), {size, storage, add, {probability, 2}}).run(call, stream->handle());
        Doubles want(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) want[i] = mask.of(branch[i], i) + (add ? x[i] : 0);
        EXPECT_TRUE(close(get(y, storage), want, allowed(1, 2), forward_terms)) << size << " " << probability;
      }
    }
  }
}

TEST_P(Pointwise, CopiesCastFillAndLeavePaddingOut) {
  for (const Index size : {0, 1, 15, 1000, 100'003}) {
    const Doubles from = numbers(size, 1, Storage::f32);
    const Buffer from_gpu = put(from, Storage::f32), no = put(std::vector<std::int32_t>{0}),
                 yes = put(std::vector<std::int32_t>{1});
    Buffer to = room(size, storage);
    FillExecutable(device(), size, storage).run(to.address(), 0.5f, stream->handle());
    EXPECT_EQ(get(to, storage), Doubles(from.size(), 0.5));
    const CastExecutable cast(device(), size, Storage::f32, storage);
    cast.run(from_gpu.address(), to.address(), no.address(), stream->handle());
    EXPECT_EQ(get(to, storage), Doubles(from.size(), 0.5)) << "only where the condition holds";
    cast.run(from_gpu.address(), to.address(), yes.address(), stream->handle());
    Doubles want;
    for (const double value : from) want.push_back(test::rounded(value, storage));
    EXPECT_EQ(get(to, storage), want);
  }
  // Every second row of a wider matrix, and one row for all.
  for (const Index stride : {14, 0}) {
    const Doubles from = numbers(6 * 14, 1, Storage::f32);
    const Buffer from_gpu = put(from, Storage::f32), lengths = put(std::vector<std::int64_t>{2, 0});
    Buffer to = room(6 * 8, storage);
    to.fill(0);
    CopyRows rows{.positions = {2, 3, true}, .width = 7, .from_stride = stride, .to_stride = 8};
    rows.to = storage;
    rows.from = Storage::f32;
    CopyRowsExecutable(device(), rows).run({from_gpu.address(), to.address(), lengths.address()}, stream->handle());
    Doubles want(6 * 8, 0.0);
    for (Index r = 0; r < 2; ++r) {
      for (Index c = 0; c < 7; ++c) want[r * 8 + c] = test::rounded(from[r * stride + c], storage);
    }
    EXPECT_EQ(get(to, storage), want);
  }
}

TEST_P(Pointwise, ChangesOfASeries) {
  constexpr Index rows = 3, steps = 6, inputs = 3, horizon = 2, targets = 2;
  Changes spec{.positions = {rows, steps, true}, .inputs = inputs, .horizon = horizon, .targets = targets};
  spec.columns = {{2, 0, 1.5, 2.0, -0.5}, {0, 1, 0.5, 0.25, 1.0}};
  spec.features = spec.outputs = storage;
  const std::vector<std::int64_t> lengths = {6, 0, 4};
  std::vector<std::uint8_t> reset(rows * steps, 0);
  reset[3] = 1;
  const Doubles x = numbers(rows * steps * inputs, 2, Storage::f32);
  Doubles state = numbers(rows * 3, 1, Storage::f32);
  state[2] = 1, state[5] = 1, state[8] = 0;
  const Doubles outputs = numbers(rows * steps * horizon * targets, 1, storage);
  const ChangesExecutable changes(device(), spec);
  const Buffer columns = put(changes.columns()), x_gpu = put(x, Storage::f32), lengths_gpu = put(lengths);
  const Buffer reset_gpu = put(reset), state_gpu = put(state, Storage::f32);
  Buffer y = room(rows * steps * 5, storage), next = room(rows * 3, Storage::f32), outputs_gpu = put(outputs, storage);
  changes.read({columns.address(), x_gpu.address(), lengths_gpu.address(), reset_gpu.address(), state_gpu.address(),
                next.address(), y.address()},
               stream->handle());
  changes.add_last({columns.address(), x_gpu.address(), lengths_gpu.address(), outputs_gpu.address()},
                   stream->handle());
  Doubles want(rows * steps * 5, 0.0), want_next = state, want_outputs = outputs;
  for (Index b = 0; b < rows; ++b) {
    for (Index t = 0; t < lengths[b]; ++t) {
      const Index p = b * steps + t;
      for (Index c = 0; c < inputs; ++c) want[p * 5 + c] = x[p * inputs + c];
      for (Index i = 0; i < 2; ++i) {
        const auto& column = spec.columns[i];
        const double value = x[p * inputs + column.input];
        double change = t > 0 ? value - x[(p - 1) * inputs + column.input] : value - state[b * 3 + i];
        if (reset[p] != 0 || (t == 0 && state[b * 3 + 2] == 0)) change = 0;
        want[p * 5 + inputs + i] = column.change_factor * change;
        want[p * 5 + column.input] = std::tanh(value);
        want_next[b * 3 + i] = value, want_next[b * 3 + 2] = 1;
        for (Index ahead = 0; ahead < horizon; ++ahead) {
          want_outputs[(p * horizon + ahead) * targets + column.target] += column.offset + column.factor * value;
        }
      }
    }
  }
  EXPECT_TRUE(close(get(y, storage), want, allowed(1, 2), forward_terms));
  EXPECT_EQ(get(next, Storage::f32), want_next);
  EXPECT_TRUE(close(get(outputs_gpu, storage), want_outputs, allowed(1, 2), forward_terms));
}

INSTANTIATE_TEST_SUITE_P(Cuda, Pointwise, testing::Values(Storage::f32, Storage::bf16, Storage::f16),
                         [](const auto& param) { return std::string(to_string(param.param)); });

}  // namespace
}  // namespace penstock::cuda
