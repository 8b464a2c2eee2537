// Recurrent and linear layers over weights of int8: each step is that of the oracle, whose products are sums of
// integers, and sequences, batches and teams of threads compute the bits of single steps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "base/aligned.h"
#include "base/random.h"
#include "ops/pointwise/embedding.h"
#include "ops/product/linear.h"
#include "ops/recurrence/recurrence.h"
#include "oracle/cells.h"
#include "plan/cell_table.h"
#include "support/expect_error.h"
#include "support/names.h"
#include "support/run_op.h"
#include "support/tolerance.h"

namespace penstock::ops {
namespace {

using test::reads;
using test::run_op;
using test::same_bits;

struct Size {
  Index input, hidden, heads;
};

std::vector<float> normals(Random& random, Index n, double deviation) {
  std::vector<float> values;
  for (Index i = 0; i < n; ++i) values.push_back(static_cast<float>(deviation * random.normal()));
  return values;
}

/// A product of a row, rounded to int8, and a row of weights.
float sum(const float* x, Index count, const std::int8_t* weights, float scale) {
  float most = 0.0f;
  for (Index i = 0; i < count; ++i) most = std::max(most, std::abs(x[i]));
  if (most < 1e-30f) return 0.0f;
  std::int64_t total = 0;
  for (Index i = 0; i < count; ++i) total += std::lround(std::nearbyint(x[i] * (127.0f / most))) * weights[i];
  return static_cast<float>(total) * (most / 127.0f * scale);
}

/// A layer with random weights.
class Layer {
 public:
  Layer(const std::string& cell, const Size& size) : cell_(plan::cell_traits(cell)) {
    shape_ = {.cell = cell, .input = size.input, .hidden = size.hidden, .heads = size.heads, .int8 = true};
    Random random(11);
    const auto rows = static_cast<std::size_t>(gates() * size.hidden);
    const auto matrix = [&](std::size_t columns, std::vector<std::int8_t>& values, std::vector<float>& scales) {
      for (std::size_t i = 0; i < rows * columns; ++i) {
        values.push_back(static_cast<std::int8_t>(static_cast<int>(random.below(255)) - 127));
      }
      const double usual = 2.0 / (127.0 * std::sqrt(static_cast<double>(columns)));
      for (std::size_t i = 0; i < rows; ++i) scales.push_back(static_cast<float>(usual * random.uniform(0.2, 1.0)));
    };
    matrix(static_cast<std::size_t>(size.input), weight_ih_, scale_ih_);
    bias_ih_ = normals(random, gates() * size.hidden, 0.5);
    if (!scan()) {
      matrix(static_cast<std::size_t>(head_size()), weight_hh_, scale_hh_);
      bias_hh_ = normals(random, gates() * size.hidden, 0.5);
    }
  }

  bool scan() const { return cell_.info.scan; }
  Index gates() const { return cell_.info.gates; }
  Index states() const { return cell_.info.states; }
  Index head_size() const { return shape_.hidden / shape_.heads; }
  const Recurrence& shape() const { return shape_; }
  bool second_product() const { return cell_.phases == 2; }

  /// Runs rows of x [B, T, I] on; `state` [S, B, H] goes in and out. Returns y [B, T, H].
  std::vector<float> run(const Target& target, const std::vector<float>& x, std::vector<float>& state) const {
    const Panels which = forward_panels(target);
    AlignedVector<float> packed(recurrence_panels(shape_, which).prepare(target)->opaque_bytes(0) / sizeof(float));
    const Call call{.batch = {.rows = target.rows, .steps = target.steps}, .threads = target.execution.threads};
    run_op(recurrence_panels(shape_, which), target, call,
           {reads(weight_ih_), reads(weight_hh_), bias_ih(), bias_hh(), reads(scale_ih_), reads(scale_hh_),
            packed.data()});
    std::vector<float> y(static_cast<std::size_t>(target.rows * target.steps * shape_.hidden)), out(state.size());
    run_op(recurrence_forward(shape_), target, call,
           {reads(x), state.data(), nullptr, nullptr, bias_ih(), bias_hh(), packed.data(), y.data(), out.data(),
            nullptr, nullptr});
    state = out;
    return y;
  }

  /// One step of one row, `state` [S, H], from sums of integers.
  std::vector<double> step(const std::vector<float>& x, const std::vector<float>& state) const {
    const Index H = shape_.hidden, D = head_size();
    oracle::Inputs<double> in;
    for (Index g = 0; g < gates(); ++g) {
      in.wx.emplace_back();
      for (Index u = 0; u < H; ++u) {
        const Index row = g * H + u;
        in.wx.back().push_back(static_cast<double>(
            bias_ih_[row] + sum(x.data(), shape_.input, weight_ih_.data() + row * shape_.input, scale_ih_[row])));
      }
    }
    in.recurrent = [&](Index gate, const std::vector<double>& v) {
      const std::vector<float> h(v.begin(), v.end());
      std::vector<double> product;
      for (Index u = 0; u < H; ++u) {
        const Index head = u / D, row = (head * gates() + gate) * D + u % D;
        product.push_back(static_cast<double>(
            bias_hh_[gate * H + u] + sum(h.data() + head * D, D, weight_hh_.data() + row * D, scale_hh_[row])));
      }
      return product;
    };
    oracle::State<double> before;
    for (Index s = 0; s < states(); ++s) before.emplace_back(state.begin() + s * H, state.begin() + (s + 1) * H);
    std::vector<double> after;
    for (const auto& values : oracle::find_cell<double>(shape_.cell).step(in, before)) {
      after.insert(after.end(), values.begin(), values.end());
    }
    return after;
  }

 private:
  void* bias_ih() const { return reads(bias_ih_); }
  void* bias_hh() const { return scan() ? nullptr : reads(bias_hh_); }

  const plan::CellTraits& cell_;
  Recurrence shape_;
  std::vector<std::int8_t> weight_ih_, weight_hh_;
  std::vector<float> scale_ih_, scale_hh_, bias_ih_, bias_hh_;
};

class Int8Layers : public testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { cpu::use_isa(cpu::available_isas().front()); }

  std::vector<Layer> layers() const {
    std::vector<Layer> all;
    for (const Size& size : {Size{1, 1, 1}, Size{3, 5, 1}, Size{17, 16, 1}, Size{33, 47, 1}, Size{64, 96, 1},
                             Size{7, 18, 3}, Size{9, 136, 4}, Size{5, 24, 12}}) {
      if (size.heads == 1 || !plan::cell_traits(GetParam()).info.scan) all.emplace_back(GetParam(), size);
    }
    return all;
  }
};

Target target_of(Index rows, Index steps, int threads, bool step = false) {
  Target target{.rows = rows, .steps = steps, .execution = {.threads = threads, .exact = true}};
  target.flags.set(CallFlag::step, step);
  return target;
}

TEST_P(Int8Layers, StepsAreThoseOfTheOracle) {
  for (const std::string_view isa : cpu::available_isas()) {
    cpu::use_isa(isa);
    for (const Layer& layer : layers()) {
      Random random(5);
      std::vector<float> state(static_cast<std::size_t>(layer.states() * layer.shape().hidden), 0.0f);
      for (int t = 0; t < 8; ++t) {
        const std::vector<float> x = normals(random, layer.shape().input, 1.0), before = state;
        const std::vector<float> y = layer.run(target_of(1, 1, 1, true), x, state);
        const std::vector<double> want = layer.step(x, before);
        // An operand of the second product that rounds the other way takes a weight with it.
        EXPECT_TRUE(test::close(state, want, layer.second_product() ? 0.02 : 3e-5, 1.0))
            << isa << ", step " << t << " of " << layer.shape().hidden << " units";
        EXPECT_TRUE(same_bits(y, {state.begin(), state.begin() + layer.shape().hidden}));
      }
    }
  }
}

TEST_P(Int8Layers, SequencesAndBatchesHaveTheBitsOfSteps) {
  constexpr Index steps = 19;
  for (const std::string_view isa : cpu::available_isas()) {
    cpu::use_isa(isa);
    for (const Layer& layer : layers()) {
      const Index H = layer.shape().hidden, I = layer.shape().input;
      constexpr int most = 18;  // two tiles of AMX
      Random random(9);
      const std::vector<float> x = normals(random, most * steps * I, 1.0);
      std::vector<float> outputs;              // of all rows by themselves, [most, steps, H]
      std::vector<std::vector<float>> states;  // of each row behind its steps, [states, H]
      for (Index b = 0; b < most; ++b) {
        auto& state = states.emplace_back(static_cast<std::size_t>(layer.states() * H), 0.0f);
        for (Index t = 0; t < steps; ++t) {
          const auto from = x.begin() + (b * steps + t) * I;
          const std::vector<float> y = layer.run(target_of(1, 1, 1, true), {from, from + I}, state);
          outputs.insert(outputs.end(), y.begin(), y.end());
        }
      }
      for (const Index rows : {1, 2, 5, 7, most}) {
        const std::vector<float> given(x.begin(), x.begin() + rows * steps * I);
        const std::vector<float> wanted(outputs.begin(), outputs.begin() + rows * steps * H);
        const std::size_t size = static_cast<std::size_t>(layer.states() * rows * H);
        std::vector<float> last(size);
        for (Index b = 0; b < rows; ++b) {
          for (Index s = 0; s < layer.states(); ++s) {
            std::copy_n(states[static_cast<std::size_t>(b)].begin() + s * H, H, last.begin() + (s * rows + b) * H);
          }
        }
        for (const int threads : {1, 2, 3}) {
          std::vector<float> state(size, 0.0f);
          EXPECT_TRUE(same_bits(layer.run(target_of(rows, steps, threads), given, state), wanted))
              << isa << ", " << rows << " rows, " << H << " units, " << threads << " threads";
          EXPECT_TRUE(same_bits(state, last));
        }
      }
    }
  }
}

TEST(Int8Linear, IsThatOfTheOracleAndRestoresItsWeights) {
  Random random(21);
  for (const std::string_view isa : cpu::available_isas()) {
    cpu::use_isa(isa);
    for (const auto& [inputs, outputs] : {std::pair<Index, Index>{1, 1}, {3, 5}, {17, 16}, {64, 33}, {255, 50}}) {
      const Linear shape{inputs, outputs, true};
      std::vector<std::int8_t> weight;
      for (Index i = 0; i < inputs * outputs; ++i) {
        weight.push_back(static_cast<std::int8_t>(static_cast<int>(random.below(255)) - 127));
      }
      const std::vector<float> scales = normals(random, outputs, 0.01), bias = normals(random, outputs, 0.5);
      AlignedVector<float> panels(static_cast<std::size_t>(int8_panel_floats(shape)));
      pack_int8(shape, weight.data(), scales.data(), panels.data());
      std::vector<std::int8_t> restored(weight.size());
      unpack_int8(shape, panels.data(), restored.data());
      EXPECT_EQ(restored, weight) << isa << ", " << inputs << " x " << outputs;
      for (const Index steps : {1, 2, 13}) {
        const std::vector<float> x = normals(random, steps * inputs, 1.0);
        std::vector<float> want, y(static_cast<std::size_t>(steps * outputs));
        for (Index t = 0; t < steps; ++t) {
          for (Index u = 0; u < outputs; ++u) {
            want.push_back(bias[u] + sum(x.data() + t * inputs, inputs, weight.data() + u * inputs, scales[u]));
          }
        }
        const Call call{.batch = {.rows = 1, .steps = steps}, .threads = 2};
        run_op(linear_forward(shape), target_of(1, steps, 2), call, {reads(x), panels.data(), reads(bias), y.data()});
        EXPECT_TRUE(same_bits(y, want)) << isa << ", " << inputs << " x " << outputs << ", " << steps << " steps";
      }
    }
  }
  cpu::use_isa(cpu::available_isas().front());
}

TEST(Int8Linear, RefusesPanelsOfAnotherInstructionSet) {
  if (cpu::available_isas().size() == 1) GTEST_SKIP() << "one instruction set";
  const Linear shape{4, 4, true};
  const std::vector<std::int8_t> weight(16, 1);
  const std::vector<float> ones(4, 1.0f);
  AlignedVector<float> panels(static_cast<std::size_t>(int8_panel_floats(shape)));
  cpu::use_isa("baseline");
  pack_int8(shape, weight.data(), ones.data(), panels.data());
  cpu::use_isa(cpu::available_isas().front());
  std::vector<float> y(4);
  const auto run = [&] {
    const Call call{.batch = {.rows = 1, .steps = 1}};
    run_op(linear_forward(shape), target_of(1, 1, 1), call, {reads(ones), panels.data(), reads(ones), y.data()});
  };
  test::expect_error(ErrorCode::invalid_argument, "packed for the instruction set in use", run);
}

std::vector<std::string> built_in() {
  std::vector<std::string> names;
  for (const oracle::Cell<double>& cell : oracle::cells<double>()) names.push_back(cell.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Each, Int8Layers, testing::ValuesIn(built_in()), test::test_name);

TEST(Int8Embedding, RowsAreIntegersTimesTheirScale) {
  const Embedding shape{.vocabulary = 3, .width = 2, .int8 = true};
  const std::vector<std::int8_t> table = {1, -2, 3, 4, -127, 127};
  const std::vector<float> scales = {0.5f, 0.0f, 0.25f};
  const std::vector<std::int32_t> tokens = {2, 0, 99, 1, 2, 2};  // 99 is padding
  const Index lengths[] = {2, 3};
  std::vector<float> y(12, -1.0f);
  run_op(embedding_forward(shape), {.rows = 2, .steps = 3, .flags = {CallFlag::lengths}},
         {.batch = {.rows = 2, .steps = 3, .lengths = lengths}},
         {reads(tokens), reads(table), reads(scales), y.data()});
  EXPECT_THAT(y, testing::ElementsAre(-31.75f, 31.75f, 0.5f, -1.0f, 0, 0, 0, 0, -31.75f, 31.75f, -31.75f, 31.75f));
}

}  // namespace
}  // namespace penstock::ops
