// Stacks of layers on a GPU against the same stack in double on the CPU, through the public interface alone; skipped
// where there is no GPU. What is refused is tested everywhere.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"
#include "ops/cuda_types.h"
#include "penstock/cuda.h"
#include "penstock/system.h"
#include "support/expect_error.h"
#include "support/half.h"
#include "support/tolerance.h"

namespace penstock {
namespace {

using Doubles = std::vector<double>;

struct Case {
  std::string name;
  std::string cell = "mingru";
  Index layers = 2;
  Direction direction = Direction::forward;
  Bias bias = Bias::single;
  CudaType type = CudaType::f32;
  CudaRegime regime = CudaRegime::automatic;
  bool lengths = false, packed = false, reset = false;
  Index rows = 3, steps = 21, input = 8, hidden = 12;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class CudaStack : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_info().missing; !missing.empty()) GTEST_SKIP() << missing;
    queue.emplace();
    make_batch();
    make_weights();
    x = numbers(places() * c.input, 1, c.type);
    dy = numbers(places() * width(), 1, c.type);
    state_in = numbers(states(), 1, CudaType::f32);
    dstate = numbers(states(), 1, CudaType::f32);
  }

  Case c = GetParam();
  RecurrentSpec layers{.cell = c.cell,
                       .input_size = c.input,
                       .hidden_size = c.hidden,
                       .layers = c.layers,
                       .direction = c.direction,
                       .bias = c.bias};
  plan::Storage storage = ops::storage_of(c.type);
  std::optional<CudaQueue> queue;
  Random random{5};
  std::vector<Index> lengths, bounds;
  std::vector<std::uint8_t> reset;
  Batch batch;
  Recurrent<float> single{layers, 3};
  Recurrent<double> exact{layers, 3};
  Doubles x, dy, state_in, dstate;
  CudaBuffer lengths_gpu, reset_gpu;

  Index places() const { return c.packed ? c.steps : c.rows * c.steps; }
  Index width() const { return layers.output_size(); }
  Index states() const { return c.layers * layers.directions() * c.rows * c.hidden; }

  Doubles numbers(Index count, double size, CudaType of) {
    Doubles values;
    for (Index i = 0; i < count; ++i) {
      values.push_back(test::rounded(size * (2 * random.uniform() - 1), ops::storage_of(of)));
    }
    return values;
  }

  void make_batch() {
    for (Index b = 0; b < c.rows; ++b) lengths.push_back(b == 0 ? c.steps : 1 + 7 * b % c.steps);
    for (Index b = 0; b <= c.rows; ++b) bounds.push_back(b * c.steps / c.rows);
    reset.resize(static_cast<std::size_t>(places()));
    for (std::uint8_t& r : reset) r = c.reset && random.uniform() < 0.1 ? 1 : 0;
    batch = {.rows = c.rows, .steps = c.steps};
    if (c.lengths) batch.lengths = lengths.data();
    if (c.packed) batch.cu_seqlens = bounds.data();
    if (c.packed) batch.steps = (c.steps + c.rows - 1) / c.rows;
    batch.reset = reset.data();
  }

  /// The same numbers on both sides, as the GPU's type can hold them.
  void make_weights() {
    for (std::size_t p = 0; p < single.parameters().size(); ++p) {
      auto values = single.parameters()[p].value;
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(test::rounded(values[i], storage));
        exact.parameters()[p].value[i] = values[i];
      }
    }
    exact.weights_changed();
  }

  CudaRecurrentSpec spec() const { return {.layers = layers, .type = c.type, .regime = c.regime}; }

  CudaBuffer on_device(const Doubles& values, CudaType of) {
    return on_device(test::to_storage(values, ops::storage_of(of)));
  }
  template <class T>
  CudaBuffer on_device(const std::vector<T>& values) {
    CudaBuffer buffer(*queue, values.size() * sizeof(T));
    buffer.upload(values.data(), buffer.bytes());
    return buffer;
  }
  CudaBuffer room(Index count, CudaType of) {
    return {*queue, static_cast<std::size_t>(count * plan::size_of(ops::storage_of(of)))};
  }
  Doubles host(const CudaBuffer& buffer, CudaType of) {
    std::vector<std::uint8_t> bytes(buffer.bytes());
    buffer.download(bytes.data(), bytes.size());
    return test::from_storage(bytes, ops::storage_of(of));
  }

  CudaBatch cuda_batch() {
    CudaBatch of{.rows = c.rows, .steps = c.steps};
    lengths_gpu = on_device(c.packed ? bounds : lengths);
    reset_gpu = on_device(reset);
    if (c.lengths) of.lengths = lengths_gpu.address();
    if (c.packed) of.cu_seqlens = lengths_gpu.address();
    if (c.reset) of.reset = reset_gpu.address();
    return of;
  }

  /// Roundings of the type stand between each layer and the next.
  double allowed(bool backward) const {
    const Index summed = std::max(places(), c.input + 3 * c.hidden);
    const double roundings = static_cast<double>(c.layers) * (backward ? 8 : 4);
    return test::tolerance<float>({.summed = summed, .steps = c.steps, .backward = backward}) *
               static_cast<double>(c.layers) +
           (c.type == CudaType::f32 ? 0 : roundings * test::half_unit(storage));
  }
};

TEST_P(CudaStack, EqualsTheStackInDouble) {
  Doubles y(static_cast<std::size_t>(places() * width())), last(state_in.size()), dx(x.size()), dfirst(last.size());
  const auto view = [&](auto& values, Index channels) {
    return SequenceView<double>::batch_first(values.data(), c.steps, channels);
  };
  RecurrentTape<double> tape;
  exact.forward(batch, view(x, c.input), view(y, width()), state_in.data(), last.data(), &tape);
  exact.backward(batch, view(x, c.input), view(dy, width()), dstate.data(), view(dx, c.input), dfirst.data(), tape);

  CudaRecurrent stack(spec());
  CudaBuffer weights(*queue, stack.weight_bytes()), gradients(*queue, stack.gradient_bytes());
  stack.upload(single, weights.address(), queue->stream());
  const CudaBuffer x_gpu = on_device(x, c.type), dy_gpu = on_device(dy, c.type);
  const CudaBuffer first_gpu = on_device(state_in, CudaType::f32), dlast_gpu = on_device(dstate, CudaType::f32);
  CudaBuffer y_gpu = room(places() * width(), c.type), dx_gpu = room(places() * c.input, c.type);
  CudaBuffer last_gpu = room(states(), CudaType::f32), dfirst_gpu = room(states(), CudaType::f32);

  CudaRecurrent::Forward forward;
  forward.batch = cuda_batch();
  forward.x = CudaSequence::batch_first(x_gpu.address(), c.steps, c.input);
  forward.y = CudaSequence::batch_first(y_gpu.address(), c.steps, width());
  forward.weights = weights.address();
  forward.state_in = first_gpu.address(), forward.state_out = last_gpu.address();
  CudaRecurrent::Forward trained = forward;
  CudaBuffer tape_gpu(*queue, stack.tape_bytes(forward.batch));
  trained.tape = tape_gpu.address();
  CudaRecurrent::Backward backward;
  backward.batch = forward.batch, backward.x = forward.x, backward.y = forward.y;
  backward.dy = CudaSequence::batch_first(dy_gpu.address(), c.steps, width());
  backward.dx = CudaSequence::batch_first(dx_gpu.address(), c.steps, c.input);
  backward.weights = weights.address(), backward.gradients = gradients.address();
  backward.state_in = first_gpu.address(), backward.dstate_out = dlast_gpu.address();
  backward.dstate_in = dfirst_gpu.address();
  backward.tape = trained.tape;
  stack.prepare(forward);
  stack.prepare(trained);
  stack.prepare(backward);
  SCOPED_TRACE(stack.explain());
  CudaBuffer workspace(*queue, stack.workspace_bytes());
  workspace.clear();

  const auto expect_forward = [&](const char* what) {
    EXPECT_TRUE(test::close(host(y_gpu, c.type), y, allowed(false), test::forward_terms)) << what;
    EXPECT_TRUE(test::close(host(last_gpu, CudaType::f32), last, allowed(false), test::forward_terms)) << what;
    y_gpu.clear(), last_gpu.clear();
  };
  stack.forward(forward, workspace.address(), queue->stream());
  expect_forward("inference");
  const CudaGraph graph(*queue, [&] {
    stack.forward(trained, workspace.address(), queue->stream());
    stack.backward(backward, workspace.address(), queue->stream());
  });
  for (int replay = 0; replay < 2; ++replay) {
    graph.launch(queue->stream());
    expect_forward("recorded");
    EXPECT_TRUE(test::close(host(dx_gpu, c.type), dx, allowed(true), test::backward_terms));
    EXPECT_TRUE(test::close(host(dfirst_gpu, CudaType::f32), dfirst, allowed(true), test::backward_terms));
    const Doubles all = host(gradients, CudaType::f32);
    for (std::size_t p = 0; p < stack.parameters().size(); ++p) {
      const auto& wanted = exact.parameters()[p].gradient;
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(stack.parameters()[p].gradient_offset / 4);
      const Doubles got(from, from + static_cast<std::ptrdiff_t>(wanted.size()));
      EXPECT_TRUE(test::close(got, Doubles(wanted.begin(), wanted.end()), allowed(true), test::backward_terms))
          << stack.parameters()[p].name;
    }
  }
}

TEST_P(CudaStack, StepsEqualTheSequence) {
  if (c.direction != Direction::forward || c.lengths || c.packed || c.reset) GTEST_SKIP() << "streams run forwards";
  Doubles y(static_cast<std::size_t>(places() * width())), last(state_in.size());
  exact.forward(batch, SequenceView<double>::time_first(x.data(), c.rows, c.input),
                SequenceView<double>::time_first(y.data(), c.rows, width()), state_in.data(), last.data());
  CudaRecurrent stack(spec());
  CudaBuffer weights(*queue, stack.weight_bytes());
  stack.upload(single, weights.address(), queue->stream());
  const CudaBuffer x_gpu = on_device(x, c.type), state = on_device(state_in, CudaType::f32);
  CudaBuffer y_gpu = room(places() * width(), c.type);
  const auto size = static_cast<CudaAddress>(plan::size_of(storage));
  const auto step = [&](Index t) {
    CudaRecurrent::Step call;
    call.rows = c.rows;
    call.x = x_gpu.address() + static_cast<CudaAddress>(t * c.rows * c.input) * size;
    call.y = y_gpu.address() + static_cast<CudaAddress>(t * c.rows * width()) * size;
    call.weights = weights.address(), call.state = state.address();
    return call;
  };
  stack.prepare(step(1));  // the worse aligned one
  CudaBuffer workspace(*queue, stack.workspace_bytes());
  workspace.clear();
  for (Index t = 0; t < c.steps; ++t) stack.step(step(t), workspace.address(), queue->stream());
  EXPECT_TRUE(test::close(host(y_gpu, c.type), y, allowed(false), test::forward_terms));
  EXPECT_TRUE(test::close(host(state, CudaType::f32), last, allowed(false), test::forward_terms));
}

std::vector<Case> cases() {
  return {{.name = "two_layers"},
          {.name = "one_layer", .cell = "minlstm", .layers = 1, .input = 5, .hidden = 7},
          {.name = "three_scan", .cell = "minlstm", .layers = 3, .regime = CudaRegime::scan, .steps = 600},
          {.name = "both_ways", .layers = 2, .direction = Direction::bidirectional},
          {.name = "both_ways_direct_bf16",
           .cell = "minlstm",
           .direction = Direction::bidirectional,
           .type = CudaType::bf16,
           .regime = CudaRegime::direct,
           .input = 16,
           .hidden = 32},
          {.name = "reverse_lengths", .direction = Direction::reverse, .lengths = true, .rows = 5},
          {.name = "both_ways_packed_resets",
           .direction = Direction::bidirectional,
           .packed = true,
           .reset = true,
           .rows = 4,
           .steps = 50},
          {.name = "f16_fused", .type = CudaType::f16, .regime = CudaRegime::fused, .input = 16, .hidden = 24},
          {.name = "no_bias", .bias = Bias::none, .rows = 1, .input = 1, .hidden = 1}};
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaStack, testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

TEST(CudaRecurrentSpec, IsChecked) {
  const auto refused = [](ErrorCode code, const std::string& text, const auto& change) {
    CudaRecurrentSpec spec;
    spec.layers = {.cell = "mingru", .input_size = 3, .hidden_size = 4};
    change(spec);
    test::expect_error(code, text, [&] { const CudaRecurrent stack(spec); });
  };
  const ErrorCode invalid = ErrorCode::invalid_argument;
  refused(invalid, "cell must be one of", [](auto& spec) { spec.layers.cell = "nothing"; });
  refused(ErrorCode::unsupported, "cell lstm does not run on a GPU yet", [](auto& spec) { spec.layers.cell = "lstm"; });
  refused(invalid, "input_size must be at least 1, not 0", [](auto& spec) { spec.layers.input_size = 0; });
  refused(invalid, "hidden_size must be at least 1, not -1", [](auto& spec) { spec.layers.hidden_size = -1; });
  refused(invalid, "layers must be 1 to 1024, not 0", [](auto& spec) { spec.layers.layers = 0; });
  refused(invalid, "dropout must be 0 on a GPU, not 0.5", [](auto& spec) { spec.layers.dropout = 0.5; });
  refused(invalid, "type must be a value of its", [](auto& spec) { spec.type = CudaType{3}; });
  refused(invalid, "gradients must be a value of its", [](auto& spec) { spec.gradients = CudaType{-1}; });
  refused(invalid, "regime must be a value of its", [](auto& spec) { spec.regime = CudaRegime{4}; });
  refused(invalid, "direction must be a value of its", [](auto& spec) { spec.layers.direction = Direction{3}; });
  refused(invalid, "bias must be a value of its", [](auto& spec) { spec.layers.bias = Bias{3}; });
  refused(invalid, "tf32 is for type f32, not bf16", [](auto& spec) { spec.type = CudaType::bf16, spec.tf32 = true; });
  refused(invalid, "gradients must be f32 or f32, not f16", [](auto& spec) { spec.gradients = CudaType::f16; });
}

TEST(CudaScanSpec, IsChecked) {
  const auto refused = [](const std::string& text, const CudaScanSpec& spec) {
    test::expect_error(ErrorCode::invalid_argument, text, [&] { const CudaScan scan(spec); });
  };
  refused("channels must be at least 1, not 0", {.channels = 0});
  refused("form must be a value of its enumeration, 0 to 1, not 2", {.form = ScanForm{2}});
  refused("type must be a value of its enumeration, 0 to 2, not 3", {.type = CudaType{3}});
  refused("regime must be a value of its enumeration, 0 to 3, not 4", {.regime = CudaRegime{4}});
}

TEST(CudaRecurrentSpec, WithoutAGpuSaysWhatIsMissing) {
  const std::string missing = cuda_info().missing;
  if (missing.empty()) GTEST_SKIP() << "there is a GPU";
  CudaRecurrentSpec spec;
  spec.layers = {.cell = "mingru", .input_size = 3, .hidden_size = 4};
  test::expect_error(ErrorCode::unsupported, "no CUDA device: " + missing, [&] { const CudaRecurrent stack(spec); });
  test::expect_error(ErrorCode::unsupported, missing, [] { const CudaQueue queue; });
  test::expect_error(ErrorCode::unsupported, missing, [] { const CudaScan scan({.channels = 3}); });
  test::expect_error(ErrorCode::unsupported, missing, [] { const CudaPipeline pipeline(16, 16); });
}

/// Against the compiler's own conversion, numbers between two halves and at the ends of the range among them.
TEST(CudaTypes, RoundAsTheyShould) {
  std::vector<float> values = {0.0f, -0.0f, 1.0f, 65504.0f, 65519.0f, 65520.0f, 1e30f, 6e-8f, 2.9e-8f, 3.1e-8f};
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    values.push_back(
        static_cast<float>(std::ldexp(2 * random.uniform() - 1, static_cast<int>(40 * random.uniform()) - 28)));
  }
  for (const CudaType type : {CudaType::bf16, CudaType::f16}) {
    const std::vector<std::uint8_t> bytes = ops::stored_as(type, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, &bytes[2 * i], 2);
      const auto half = static_cast<_Float16>(values[i]);
      std::uint16_t want = 0;
      std::memcpy(&want, &half, 2);
      if (type == CudaType::bf16)
        want = test::half_bits(test::rounded(values[i], plan::Storage::bf16), plan::Storage::bf16);
      ASSERT_EQ(bits, want) << to_string(type) << " of " << values[i];
    }
  }
  EXPECT_EQ(ops::stored_as(CudaType::f16, std::vector<float>{NAN})[1] & 0x7e, 0x7e);
  EXPECT_EQ(to_string(parse_cuda_type("bf16")), "bf16");
  EXPECT_EQ(parse_cuda_regime("fused"), CudaRegime::fused);
  test::expect_error(ErrorCode::invalid_argument, "type must be one of f32, bf16, f16, not 'int8'",
                     [] { parse_cuda_type("int8"); });
}

TEST(CudaPipeline, RunsChunksInTheirOrder) {
  if (const std::string missing = cuda_info().missing; !missing.empty()) GTEST_SKIP() << missing;
  constexpr Index chunk = 1000, channels = 8;
  constexpr int chunks = 7;
  CudaQueue queue;
  CudaBuffer state(queue, channels * sizeof(float)), ones(queue, chunk * channels * sizeof(float));
  state.clear();
  ones.upload(std::vector<float>(chunk * channels, 1.0f).data(), ones.bytes());
  queue.synchronize();
  CudaScan scan({.channels = channels});
  const auto call = [&](CudaAddress in, CudaAddress out) {
    const auto view = [&](CudaAddress at) { return CudaSequence::batch_first(at, chunk, channels); };
    CudaScan::Forward forward{{.rows = 1, .steps = chunk}, {view(ones.address()), view(in), {}}, view(out)};
    forward.h0 = forward.hT = state.address();
    return forward;
  };
  scan.prepare(call(ones.address(), ones.address()));
  CudaBuffer workspace(queue, scan.workspace_bytes());
  workspace.clear();
  queue.synchronize();
  CudaPipeline pipeline(ones.bytes(), ones.bytes());
  int filled = 0;
  std::vector<float> lasts;
  pipeline.run(
      [&](void* in) {
        std::fill_n(static_cast<float*>(in), chunk * channels, static_cast<float>(filled + 1));
        return filled++ < chunks;
      },
      [&](CudaAddress in, CudaAddress out, CudaStream stream) {
        scan.forward(call(in, out), workspace.address(), stream);
      },
      [&](const void* out) { lasts.push_back(static_cast<const float*>(out)[chunk * channels - 1]); });
  std::vector<float> want;  // sums of 1,000 ones, and 1,000 twos, ...
  float sum = 0;
  for (int i = 1; i <= chunks; ++i) want.push_back(sum += static_cast<float>(i * chunk));
  EXPECT_EQ(lasts, want);
  test::expect_error(ErrorCode::numerical, "no more", [&] {
    pipeline.run([](void*) { return true; }, [](auto, auto, auto) { throw Error(ErrorCode::numerical, "no more"); },
                 [](const void*) {});
  });
}

}  // namespace
}  // namespace penstock
