// Networks on streams of the CPU, and of a GPU where there is one: against the oracle, and calls of every kind against
// each other.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "backend/cpu/instruction_sets.h"
#include "backend/cuda/driver/kernel.h"
#include "nn/check_cell.h"
#include "ops/cuda/common.h"
#include "penstock/cuda.h"
#include "penstock/scan.h"
#include "penstock/system.h"
#include "support/expect_error.h"
#include "support/half.h"

namespace penstock::test {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

class OnStream : public testing::TestWithParam<Device::Kind> {
 protected:
  void SetUp() override {
    if (!device.is_cuda()) return;
    if (const std::string missing = cuda_info().missing; !missing.empty()) GTEST_SKIP() << missing;
  }

  Stream& stream() {
    if (!stream_) stream_.emplace(device);
    return *stream_;
  }
  /// In the device's memory as long as the test runs.
  template <class T>
  T* put(const std::vector<T>& values) {
    kept.emplace_back(stream(), values.size() * sizeof(T));
    kept.back().upload(values.data(), values.size() * sizeof(T));
    return static_cast<T*>(kept.back().data());
  }
  Tensor tensor(const Floats& values, std::initializer_list<Index> shape) {
    return Tensor::contiguous(put(values), DType::f32, shape, device);
  }
  Floats get(const Tensor& of) const {
    for (const Buffer& buffer : kept) {
      if (buffer.data() != of.data) continue;
      Floats values(buffer.bytes() / sizeof(float));
      buffer.download(values.data(), buffer.bytes());
      return values;
    }
    return {};
  }
  /// A network of the same weights on the stream.
  Recurrent<float> moved(const Recurrent<float>& network) {
    Recurrent<float> there(network.spec(), stream());
    for (const auto& parameter : network.parameters()) there.write(parameter.name, parameter.value);
    return there;
  }

  const Device device{GetParam(), 0};
  std::optional<Stream> stream_;
  std::vector<Buffer> kept;
};

std::vector<Case> cases() {
  return {everything(),
          {.name = "aligned", .input = 24, .hidden = 32, .layers = 2, .rows = 3, .steps = 21},
          {.name = "one", .input = 1, .hidden = 1, .rows = 1, .steps = 1},
          {.name = "packed", .input = 5, .hidden = 17, .layers = 2, .rows = 5, .form = RowForm::packed, .reset = true},
          {.name = "time_first", .hidden = 12, .heads = 2, .bias = Bias::none, .layout = Layout::time_first}};
}

TEST_P(OnStream, CallsFromTheHostAgreeWithTheOracle) {
  for (const CellInfo& cell : cells()) {
    for (const Case& c : cases()) {
      if (!c.applies_to(cell)) continue;
      SCOPED_TRACE(testing::Message() << cell.name << ", " << c.name);
      Recurrent<float> network = make_network<float>(std::string(cell.name), c);
      const Inputs<float> in = make_inputs(network, c);
      const Outputs<double> want = expected(network, in);
      Recurrent<float> there = moved(network);
      const Outputs<float> once = run(there, in);
      expect_close(network.spec(), once, want, tolerances(network, in, c));
      expect_same_bits(run(there, in), once);
    }
  }
}

/// More units than a grid of any kernel has threads at once.
TEST_P(OnStream, AHundredThousandUnitsAgreeWithTheOracle) {
  const Case c{.name = "wide", .input = 2, .hidden = 100'000, .rows = 2, .steps = 3};
  for (const char* const cell : {"mingru", "minlstm-log"}) {
    SCOPED_TRACE(cell);
    Recurrent<float> network = make_network<float>(cell, c);
    const Inputs<float> in = make_inputs(network, c);
    Recurrent<float> there = moved(network), same = moved(network);
    const Outputs<float> got = run(there, in);
    expect_close(network.spec(), got, expected(network, in), tolerances(network, in, c));
    expect_same_bits(run(same, in), got);
  }
}

TEST_P(OnStream, CallsWithTensorsAreThoseFromTheHost) {
  const Case c{.name = "tensors", .input = 7, .hidden = 20, .layers = 2, .rows = 3, .steps = 11};
  for (const char* const cell : {"lstm", "mingru", "slstm"}) {
    SCOPED_TRACE(cell);
    const Recurrent<float> network = make_network<float>(cell, c);
    Inputs<float> in = make_inputs(network, c);
    in.lengths = {4, 11, 0};
    Recurrent<float> there = moved(network);
    const Outputs<float> want = run(there, in);

    const Index states = find_cell(cell).states;
    Batch batch = in.batch();
    batch.lengths = put(in.lengths);
    const auto state = [&](const Floats& values) { return tensor(values, {states, 2, c.rows, c.hidden}); };
    const auto sequence = [&](const Floats& values, Index channels) {
      return tensor(values, {c.rows, c.steps, channels});
    };
    const Floats no_state(in.state_in.size(), -1.0F);
    const Tensor x = sequence(in.x, c.input), dy = sequence(in.dy, c.hidden);
    const Tensor y = sequence(Floats(in.dy.size(), NAN), c.hidden), dx = sequence(Floats(in.x.size(), NAN), c.input);
    const Tensor state_out = state(no_state), dstate_in = state(no_state);
    RecurrentTape<float> tape;
    there.zero_gradients();
    there.forward(batch, x, y, state(in.state_in), state_out, &tape);
    there.backward(batch, x, dy, state(in.dstate_out), dx, dstate_in, tape);
    Outputs<float> got{.y = get(y), .state_out = get(state_out), .dx = get(dx), .dstate_in = get(dstate_in)};
    for (const auto& parameter : there.parameters()) {
      got.gradients.emplace_back(parameter.name, read_gradient(there, parameter));
    }
    expect_same_bits(got, want);
  }
}

TEST_P(OnStream, AnotherInstructionSetPacksWeightsAnew) {
  constexpr Index rows = 3, steps = 7, inputs = 9, hidden = 40;
  const Recurrent<float> network = make_network<float>("lstm", {.name = "packed", .input = inputs, .hidden = hidden});
  const Recurrent<float> there = moved(network);
  const Floats x(rows * steps * inputs, 0.25f);
  const auto outputs_of = [&](const Recurrent<float>& asked) {
    Floats y(rows * steps * hidden, NAN);
    asked.forward({.rows = rows, .steps = steps}, SequenceView<const float>::batch_first(x.data(), steps, inputs),
                  SequenceView<float>::batch_first(y.data(), steps, hidden), nullptr, nullptr);
    return y;
  };
  for (const std::string_view isa : cpu::available_isas()) {
    cpu::use_isa(isa);
    EXPECT_TRUE(close(outputs_of(there), outputs_of(network), 1e-5, forward_terms)) << isa;
  }
  cpu::use_isa(cpu::available_isas().front());
}

TEST_P(OnStream, StepsAreTheSequence) {
  for (const char* const cell : {"lstm", "minlstm", "gru"}) {
    for (const Index rows : {1, 3}) {
      SCOPED_TRACE(testing::Message() << cell << ", " << rows << " rows");
      constexpr Index steps = 5;
      const Case c{.name = "steps",
                   .input = 9,
                   .hidden = 16,
                   .layers = 2,
                   .rows = rows,
                   .steps = steps,
                   .layout = Layout::time_first};
      const Recurrent<float> network = make_network<float>(cell, c);
      const Inputs<float> in = make_inputs(network, c);
      const Recurrent<float> there = moved(network);
      Floats y(static_cast<std::size_t>(rows * steps * c.hidden)), last(in.state_in.size());
      const Batch batch{.rows = rows, .steps = steps};
      there.forward(batch, SequenceView<const float>::time_first(in.x.data(), rows, c.input),
                    SequenceView<float>::time_first(y.data(), rows, c.hidden), in.state_in.data(), last.data());
      Floats state = in.state_in, all;
      const Tensor carried = tensor(in.state_in, {find_cell(cell).states, 2, rows, c.hidden});
      for (Index t = 0; t < steps; ++t) {
        const auto first = in.x.begin() + t * rows * c.input;
        const Floats x(first, first + rows * c.input);
        Floats one(static_cast<std::size_t>(rows * c.hidden));
        there.step(rows, x.data(), one.data(), state.data());
        all.insert(all.end(), one.begin(), one.end());
        const Tensor out = tensor(Floats(one.size(), NAN), {rows, c.hidden});
        there.step(tensor(x, {rows, c.input}), out, carried);
        EXPECT_TRUE(same_bits(get(out), one)) << "step " << t << " with tensors";
      }
      const double allowed = 2 * tolerances<float>(network.spec(), rows * steps, steps, 2 * c.bias_scale).forward;
      EXPECT_TRUE(close(all, y, allowed, forward_terms));
      EXPECT_TRUE(close(state, last, allowed, forward_terms));
      EXPECT_TRUE(same_bits(get(carried), state));
    }
  }
}

/// From the host and with tensors, forwards and backwards, with lengths and factors.
TEST_P(OnStream, ScansAreThoseOfDoubles) {
  constexpr Index rows = 3, steps = 1037, channels = 20;
  Random random(9);
  const auto numbers = [&](Index count, double low) { return draw<float>(random, count, low); };
  const Index count = rows * steps * channels;
  const Floats a = numbers(count, -2.0), b = numbers(count, -1.0), s = numbers(count, -1.0), dh = numbers(count, -1.0);
  const Floats h0 = numbers(rows * channels, -1.0);
  const std::vector<Index> lengths = {700, steps, 0};
  Batch batch{.rows = rows, .steps = steps, .lengths = lengths.data()};
  struct Results {
    Doubles h, hT, da, db, ds, dh0;
  };
  const auto from_host = [&]<class Real>(const Scan<Real>& scan) {
    using Reals = std::vector<Real>;
    const auto as = [](const Floats& values) { return Reals(values.begin(), values.end()); };
    const auto view = [](auto& values) {
      return SequenceView<std::remove_reference_t<decltype(values[0])>>::batch_first(values.data(), steps, channels);
    };
    const Reals a_(as(a)), b_(as(b)), s_(as(s)), dh_(as(dh)), h0_(as(h0));
    Reals h(a.size()), hT(h0.size()), da(a.size()), db(a.size()), ds(a.size()), dh0(h0.size());
    scan.forward(batch, {view(a_), view(b_), view(s_)}, view(h), h0_.data(), hT.data());
    const Reals h_(h);
    scan.backward(batch, {view(a_), view(b_), view(s_)}, view(h_), h0_.data(), view(dh_), nullptr,
                  {view(da), view(db), view(ds)}, dh0.data());
    return Results{widen(h), widen(hT), widen(da), widen(db), widen(ds), widen(dh0)};
  };
  const auto expect = [](const Results& got, const Results& want) {
    const double forward = tolerance<float>({.summed = 2, .steps = steps, .logit = 2});
    const double backward = tolerance<float>({.summed = 2, .steps = steps, .backward = true, .logit = 2});
    EXPECT_TRUE(close(got.h, want.h, forward, forward_terms)) << "h";
    EXPECT_TRUE(close(got.hT, want.hT, forward, forward_terms)) << "hT";
    EXPECT_TRUE(close(got.da, want.da, backward, backward_terms)) << "da";
    EXPECT_TRUE(close(got.db, want.db, backward, backward_terms)) << "db";
    EXPECT_TRUE(close(got.ds, want.ds, backward, backward_terms)) << "ds";
    EXPECT_TRUE(close(got.dh0, want.dh0, backward, backward_terms)) << "dh0";
  };
  const Results want = from_host(Scan<double>(channels, ScanForm::logarithmic));
  const Scan<float> scan(channels, stream(), ScanForm::logarithmic);
  EXPECT_EQ(scan.device(), device);
  const Results got = from_host(scan);
  expect(got, want);

  batch.lengths = put(lengths);
  const auto sequence = [&](const Floats& values) { return tensor(values, {rows, steps, channels}); };
  const auto room = [&] { return sequence(Floats(a.size(), NAN)); };
  const auto state = [&](const Floats& values) { return tensor(values, {rows, channels}); };
  const Tensor h = room(), da = room(), db = room(), ds = room(), hT = state(h0), dh0 = state(h0), first = state(h0);
  const Scan<float>::TensorTerms terms{sequence(a), sequence(b), sequence(s)};
  scan.forward(batch, terms, h, first, hT);
  scan.backward(batch, terms, h, first, sequence(dh), {}, {da, db, ds}, dh0);
  expect({widen(get(h)), widen(get(hT)), widen(get(da)), widen(get(db)), widen(get(ds)), widen(get(dh0))}, want);
  EXPECT_EQ(widen(get(h)), got.h) << "the same kernels, the same bits";

  expect_error(ErrorCode::invalid_argument, "terms.a must have 3 axes, not 2", [&] {
    scan.forward(batch, {first, first, {}}, h);
  });
  if (!device.is_cuda()) return;
  expect_error(ErrorCode::unsupported, "a scan of doubles runs on the CPU, not on cuda:0",
               [&] { const Scan<double> doubles(channels, stream()); });
}

TEST_P(OnStream, WeightsMove) {
  const RecurrentSpec spec{.cell = "gru", .input_size = 3, .hidden_size = 5, .layers = 2};
  Recurrent<float> network(spec, stream(), 7), home(spec, 7);
  EXPECT_EQ(network.device(), device);
  const auto expect_home = [&](const Recurrent<float>& there) {
    for (const auto& parameter : home.parameters()) {
      Floats value(parameter.value.size());
      there.read(parameter.name, value);
      EXPECT_EQ(value, Floats(parameter.value.begin(), parameter.value.end())) << parameter.name;
    }
  };
  expect_home(network);
  Floats x(2 * 4 * 3, 0.5F), y(2 * 4 * 5), want(y.size());
  const Batch batch{.rows = 2, .steps = 4};
  const auto forward = [&](const Recurrent<float>& of, Floats& to) {
    of.forward(batch, SequenceView<const float>::batch_first(x.data(), 4, 3),
               SequenceView<float>::batch_first(to.data(), 4, 5), nullptr, nullptr);
  };
  forward(network, y);  // weights are prepared for calls from now on
  Floats bias(15, 0.25F);
  network.write("bias_ih_l1", bias), home.write("bias_ih_l1", bias);
  Stream host;
  home.move_to(stream());
  forward(network, y), forward(home, want);
  EXPECT_TRUE(same_bits(y, want)) << "written weights take effect";
  network.move_to(host);
  EXPECT_EQ(network.device(), Device::cpu());
  EXPECT_EQ(network.parameter("bias_ih_l1").value[3], 0.25F);
}

TEST_P(OnStream, ThreadsShareANetwork) {
  const Case c{.name = "threads", .input = 6, .hidden = 24, .layers = 2, .rows = 2, .steps = 30};
  for (const char* const cell : {"lstm", "mingru"}) {
    const Recurrent<float> there = moved(make_network<float>(cell, c));
    const Batch batch{.rows = c.rows, .steps = c.steps};
    const auto forward = [&](std::uint64_t seed) {
      Random random(seed);
      const Floats x = draw<float>(random, c.rows * c.steps * c.input);
      Floats y(static_cast<std::size_t>(c.rows * c.steps * c.hidden));
      there.forward(batch, SequenceView<const float>::batch_first(x.data(), c.steps, c.input),
                    SequenceView<float>::batch_first(y.data(), c.steps, c.hidden), nullptr, nullptr);
      return y;
    };
    std::vector<Floats> want;
    for (std::uint64_t i = 0; i < 4; ++i) want.push_back(forward(i));
    std::vector<int> wrong(4, 0);
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < 4; ++i) {
      running.emplace_back([&, i] {
        for (int k = 0; k < 10; ++k) wrong[i] += forward(i) == want[i] ? 0 : 1;
      });
    }
    for (std::thread& thread : running) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4, 0)) << cell;
  }
}

TEST_P(OnStream, MemoryOfAnotherStreamIsWaitedForAndCopied) {
  Floats values(1 << 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::size_t bytes = values.size() * sizeof(float), half = bytes / 2;
  Stream theirs(device);
  Buffer written(theirs, bytes);
  written.upload(values.data(), bytes);
  std::byte* const from = static_cast<std::byte*>(written.data());
  std::byte* const to = reinterpret_cast<std::byte*>(put(Floats(values.size())));
  theirs.copy(from, from + half, half);
  stream().wait_for(theirs.handle());
  stream().copy(to + half, from, half);
  Floats copied(values.size());
  stream().download(copied.data(), to, bytes);
  std::ranges::fill(values.begin(), values.begin() + (1 << 19), 0.0F);
  EXPECT_EQ(copied, values);
  synchronize(device);
  if (!device.is_cuda()) return;
  EXPECT_EQ(gpu_of(from + half), device);
  expect_error(ErrorCode::invalid_argument, "address must be in the memory of a GPU, not", [&] { gpu_of(&copied); });
}

TEST_P(OnStream, WhatDoesNotFitIsRefusedByName) {
  const RecurrentSpec spec{.cell = "gru", .input_size = 3, .hidden_size = 5};
  Recurrent<float> network(spec, stream()), other(spec, stream());
  const auto refused = [](const std::string& words, const auto& call) {
    expect_error(ErrorCode::invalid_argument, words, call);
  };
  Floats few(3);
  refused("weight_hh_l0 must have 75 values, not 3", [&] { network.read("weight_hh_l0", few); });
  refused("name must be one of weight_ih_l0,", [&] { network.write("weight", few); });
  const Batch batch{.rows = 2, .steps = 4};
  const Tensor x = tensor(Floats(24, 0.5F), {2, 4, 3}), y = tensor(Floats(40), {2, 4, 5});
  const Tensor dy = tensor(Floats(40, 1.0F), {2, 4, 5});
  Tensor wrong = x;
  wrong.dtype = DType::f64;
  refused("x must be f32", [&] { network.forward(batch, wrong, y, {}, {}); });
  refused("x must have 3 axes, [B, T, C], not 2", [&] {
    network.forward(batch, tensor(Floats(24), {8, 3}), y, {}, {});
  });
  refused("y must be [2, 4, 5], not [2, 4, 3]", [&] { network.forward(batch, x, x, {}, {}); });
  Execution elsewhere;
  elsewhere.device = Device::cuda(7);
  refused("execution.device must be " + to_string(device) + ", where the network is, not cuda:7",
          [&] { network.forward(batch, x, y, {}, {}, nullptr, elsewhere); });
  RecurrentTape<float> tape;
  refused("tape must hold a forward pass of this network", [&] { network.backward(batch, x, dy, {}, {}, {}, tape); });
  network.forward(batch, x, y, {}, {}, &tape);
  refused("tape must hold a forward pass of this network", [&] { other.backward(batch, x, dy, {}, {}, {}, tape); });
  refused("tape must hold a forward pass of this batch",
          [&] { network.backward({.rows = 2, .steps = 3}, x, dy, {}, {}, {}, tape); });
  refused("x must be that of the forward call", [&] {
    network.backward(batch, tensor(Floats(24), {2, 4, 3}), dy, {}, {}, {}, tape);
  });
  network.backward(batch, x, dy, {}, {}, {}, tape);
  if (device.is_cuda()) {
    refused("tape must hold a forward pass of this network", [&] { network.backward(batch, x, dy, {}, {}, {}, tape); });
    expect_error(ErrorCode::unsupported, "a network in double runs on the CPU, not on cuda:0",
                 [&] { const Recurrent<double> doubles(spec, stream()); });
  }
}

/// Weights are floats; what they are rounded to is made anew when they change.
TEST_P(OnStream, HalvesFollowTheWeights) {
  if (!device.is_cuda()) GTEST_SKIP() << "on a CPU tensors are of the network's type";
  const RecurrentSpec spec{.cell = "lstm", .input_size = 16, .hidden_size = 32};
  Recurrent<float> network(spec, stream(), 1), fresh(spec, stream(), 2);
  Random random(3);
  const std::vector<double> numbers = draw<double>(random, 2 * 6 * 16);
  const std::vector<std::uint8_t> stored = to_storage(numbers, ops::storage_of(DType::bf16));
  const Tensor x = Tensor::contiguous(put(stored), DType::bf16, {2, 6, 16}, device);
  const auto answer = [&](const Recurrent<float>& of) {
    const std::size_t bytes = 2 * 6 * 32 * 2;
    const Buffer y(stream(), bytes);
    of.forward({.rows = 2, .steps = 6}, x, Tensor::contiguous(y.data(), DType::bf16, {2, 6, 32}, device), {}, {});
    std::vector<std::uint8_t> got(bytes);
    y.download(got.data(), bytes);
    return got;
  };
  const std::vector<std::uint8_t> first = answer(network), want = answer(fresh);
  EXPECT_NE(first, want);
  for (const auto& parameter : fresh.parameters()) {
    Floats value(read_gradient(fresh, parameter).size());
    fresh.read(parameter.name, value);
    network.write(parameter.name, value);
  }
  EXPECT_EQ(answer(network), want);
}

/// However long a sequence is, a layer is a handful of launches: those of kernels are counted, a product by a library
/// is one more.
TEST_P(OnStream, LaunchesOfALayerDoNotGrowWithItsSteps) {
  if (!device.is_cuda()) GTEST_SKIP() << "a CPU launches nothing";
  constexpr Index inputs = 32, hidden = 64;
  for (const char* const cell : {"mingru", "minlstm-log", "lstm", "gru"}) {
    SCOPED_TRACE(cell);
    Recurrent<float> network({.cell = cell, .input_size = inputs, .hidden_size = hidden}, stream());
    std::vector<unsigned long long> forward, training;
    for (const Index steps : {1024, 4096, 16'384}) {
      const Batch batch{.rows = 2, .steps = steps};
      const auto sequence = [&](Index width) {
        return tensor(Floats(static_cast<std::size_t>(2 * steps * width), 0.25F), {2, steps, width});
      };
      const Tensor x = sequence(inputs), y = sequence(hidden), dy = sequence(hidden), dx = sequence(inputs);
      const auto launches = [](const auto& call) {
        call();  // also compiles
        const unsigned long long before = cuda::Kernel::launches();
        call();
        return cuda::Kernel::launches() - before;
      };
      forward.push_back(launches([&] { network.forward(batch, x, y, {}, {}); }));
      training.push_back(launches([&] {
        RecurrentTape<float> tape;
        network.forward(batch, x, y, {}, {}, &tape);
        network.backward(batch, x, dy, {}, dx, {}, tape);
      }));
      stream().synchronize();
    }
    EXPECT_EQ(forward, std::vector<unsigned long long>(3, forward[0]));
    EXPECT_EQ(training, std::vector<unsigned long long>(3, training[0]));
    EXPECT_GE(forward[0], 1U);
    EXPECT_LE(forward[0], 4U);
    EXPECT_LE(training[0], 20U);
    std::cout << cell << ": " << forward[0] << " forward, " << training[0] << " training\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Each, OnStream, testing::Values(Device::Kind::cpu, Device::Kind::cuda),
                         [](const auto& tested) {
                           return std::string(tested.param == Device::Kind::cpu ? "cpu" : "cuda");
                         });

}  // namespace
}  // namespace penstock::test
