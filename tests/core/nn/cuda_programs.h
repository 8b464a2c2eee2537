#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "nn/check_cell.h"
#include "ops/cuda/common.h"
#include "penstock/recurrent_program.h"
#include "penstock/system.h"
#include "plan/cell_table.h"
#include "support/expect_error.h"
#include "support/half.h"

/// Programs of recurrent stacks on a GPU against the oracle, or a CPU's double precision where a program defined the
/// cell, and to the bit with themselves; skipped where there is none.
namespace penstock::test {

using Doubles = std::vector<double>;

struct GpuCase {
  Case c;
  bool master = false;         ///< Weights are f32 whatever the activations are.
  bool add_gradients = false;  ///< Backward twice over one tape, into the same gradients.
  bool chunks = false;         ///< Layers run as a wavefront.
  bool aligned = false;        ///< All sequences begin at multiples of 16 bytes, and so do their positions.
  bool projected = false;      ///< x is W x, and W the identity.
  double factor = 1;           ///< Of the tolerances, for equations that magnify errors.
  Restarts restarts = Restarts::zeros;
  std::string on_hopper = {};  ///< How plans of both passes on a chip of sm_90 begin; empty: in any way.
};

inline std::vector<GpuCase> gpu_cases() {
  return {
      {.c = {.name = "aligned", .input = 24, .hidden = 32, .layers = 2, .rows = 3, .steps = 21}, .aligned = true},
      {.c = everything()},
      {.c = {.name = "packed",
             .input = 5,
             .hidden = 8,
             .layers = 2,
             .direction = Direction::bidirectional,
             .bias = Bias::single,
             .rows = 5,
             .form = RowForm::packed,
             .reset = true},
       .master = true},
      // So many units that rows that go on are given what others leave.
      {.c = {.name = "sorted",
             .input = 8,
             .hidden = 264,
             .direction = Direction::reverse,
             .rows = 64,
             .steps = 160,
             .form = RowForm::sorted,
             .reset = true},
       .aligned = true},
      {.c = {.name = "sorted_states",
             .input = 3,
             .hidden = 257,
             .rows = 64,
             .steps = 130,
             .form = RowForm::sorted,
             .state = false,
             .every_state = true},
       .master = true},
      {.c = {.name = "time_first",
             .input = 16,
             .hidden = 16,
             .heads = 2,
             .layers = 2,
             .bias = Bias::none,
             .rows = 4,
             .steps = 9,
             .form = RowForm::lengths,
             .layout = Layout::time_first,
             .state = false},
       .master = true,
       .add_gradients = true,
       .aligned = true},
      // Rows of units and of gates that no product reads in place.
      {.c = {.name = "narrow", .input = 20, .hidden = 458, .rows = 33, .steps = 4}},
      // So long that layers run as a wavefront, in chunks of which the last is shorter.
      {.c = {.name = "chunks", .input = 24, .hidden = 32, .layers = 4, .rows = 3, .steps = 601},
       .chunks = true,
       .aligned = true},
      {.c = {.name = "chunks_odd", .input = 5, .hidden = 33, .layers = 3, .rows = 1, .steps = 603},
       .master = true,
       .chunks = true},
      {.c = {.name = "chunks_many_layers", .input = 16, .hidden = 16, .layers = 10, .rows = 2, .steps = 512},
       .chunks = true},
      {.c = {.name = "chunks_states",
             .input = 7,
             .hidden = 24,
             .layers = 3,
             .rows = 5,
             .steps = 604,
             .mixed = true,
             .every_state = true},
       .chunks = true},
      {.c = {.name = "chunks_reverse",
             .input = 9,
             .hidden = 32,
             .layers = 3,
             .direction = Direction::reverse,
             .rows = 2,
             .steps = 555,
             .layout = Layout::time_first,
             .reset = true},
       .master = true,
       .chunks = true,
       .aligned = true},
  };
}

/// Returns cases that scan cells have nothing of: limits of gradients, states besides the output.
inline std::vector<GpuCase> gradient_gpu_cases() {
  std::vector<GpuCase> cases;
  for (const Case& c : gradient_cases()) cases.push_back({.c = c});
  return cases;
}

/// Returns cases of layers over W x: in any strides, and with a dx that the pass over the steps makes or a copy of
/// that.
inline std::vector<GpuCase> projected_gpu_cases() {
  std::vector<GpuCase> cases = {
      {.c = {.name = "projected", .hidden = 32, .rows = 3, .steps = 21}, .aligned = true},
      {.c = everything(), .master = true},
      {.c = {.name = "projected_packed",
             .hidden = 8,
             .bias = Bias::single,
             .rows = 5,
             .form = RowForm::packed,
             .reset = true},
       .add_gradients = true},
      {.c = {.name = "projected_heads",
             .hidden = 34,
             .heads = 2,
             .direction = Direction::reverse,
             .layout = Layout::time_first,
             .gradient_clip = 0.2}},
      {.c = {.name = "projected_sorted", .hidden = 264, .rows = 64, .steps = 160, .form = RowForm::sorted},
       .aligned = true},
      {.c = {.name = "projected_states",
             .hidden = 17,
             .rows = 5,
             .form = RowForm::lengths,
             .layout = Layout::batch_first_slice,
             .every_state = true}},
  };
  for (GpuCase& of : cases) {
    of.projected = true, of.c.layers = 1;
    if (of.c.direction == Direction::bidirectional) of.c.direction = Direction::forward;
  }
  return cases;
}

/// A sequence on the GPU; whatever belongs to no step is no number.
class GpuSequence {
 public:
  GpuSequence(Stream& stream, const Batch& batch, Index channels, Layout layout, DType type)
      : batch_(batch), channels_(channels), type_(type), storage_(ops::storage_of(type)) {
    const bool slice = layout == Layout::batch_first_slice || layout == Layout::time_first_slice;
    const bool gapped = layout == Layout::batch_first_gapped || layout == Layout::time_first_gapped;
    const bool time_first =
        layout == Layout::time_first || layout == Layout::time_first_slice || layout == Layout::time_first_gapped;
    const Index inner = channels + (slice || gapped ? 3 : 0), outer = gapped ? 5 : 0;
    packed_ = batch.cu_seqlens != nullptr;
    positions_ = oracle::position_count(batch);
    strides_ = packed_      ? SequenceStrides{0, inner}
               : time_first ? SequenceStrides{inner, batch.rows * inner + outer}
                            : SequenceStrides{batch.steps * inner + outer, inner};
    const Index rows = packed_ ? 1 : batch.rows, steps = packed_ ? positions_ : batch.steps;
    size_ = (rows - 1) * strides_.row + (steps - 1) * strides_.step + channels;
    buffer_ = Buffer(stream, static_cast<std::size_t>(size_) * size_of(type));
    put(Doubles(static_cast<std::size_t>(positions_ * channels), poison), false);
  }

  /// Values of all steps, in the oracle's order.
  void put(const Doubles& values, bool steps_only = true) {
    Doubles memory(static_cast<std::size_t>(size_), poison);
    for_each_position([&](Index position, Index at, bool valid) {
      for (Index c = 0; c < channels_ && (valid || !steps_only); ++c) {
        memory[static_cast<std::size_t>(at + c)] = values[static_cast<std::size_t>(position * channels_ + c)];
      }
    });
    const std::vector<std::uint8_t> bytes = to_storage(memory, storage_);
    buffer_.upload(bytes.data(), bytes.size());
  }

  Doubles get() const {
    std::vector<std::uint8_t> bytes(buffer_.bytes());
    buffer_.download(bytes.data(), bytes.size());
    const Doubles memory = from_storage(bytes, storage_);
    Doubles values(static_cast<std::size_t>(positions_ * channels_));
    for_each_position([&](Index position, Index at, bool) {
      for (Index c = 0; c < channels_; ++c) {
        values[static_cast<std::size_t>(position * channels_ + c)] = memory[static_cast<std::size_t>(at + c)];
      }
    });
    return values;
  }

  SequenceStrides strides() const { return strides_; }
  Tensor tensor() const {
    Tensor tensor =
        packed_ ? Tensor::contiguous(buffer_.data(), type_, {positions_, channels_}, Device::cuda())
                : Tensor::contiguous(buffer_.data(), type_, {batch_.rows, batch_.steps, channels_}, Device::cuda());
    if (packed_) {
      tensor.strides[0] = strides_.step;
    } else {
      tensor.strides = {strides_.row, strides_.step, 1};
    }
    return tensor;
  }

 private:
  static constexpr double poison = std::numeric_limits<double>::quiet_NaN();

  template <class Visit>
  void for_each_position(const Visit& visit) const {
    for (Index b = 0; b < batch_.rows; ++b) {
      const oracle::Span span = oracle::row_span(batch_, b);
      for (Index t = 0; t < (packed_ ? span.length : batch_.steps); ++t) {
        const Index at = packed_ ? (span.first + t) * strides_.step : b * strides_.row + t * strides_.step;
        visit(span.first + t, at, t < span.length);
      }
    }
  }

  Batch batch_;
  Index channels_, positions_ = 0, size_ = 0;
  DType type_;
  plan::Storage storage_;
  bool packed_ = false;
  SequenceStrides strides_;
  Buffer buffer_;
};

class CudaPrograms : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_info().missing; !missing.empty()) GTEST_SKIP() << missing;
    stream.emplace(Device::cuda());
  }

  std::string cell = std::get<0>(GetParam());
  const CellInfo& info = find_cell(cell);
  DType type = std::get<1>(GetParam());
  plan::Storage storage = ops::storage_of(type);
  std::optional<Stream> stream;
  std::vector<Buffer> kept;

  Doubles round_all(Doubles values) const {
    for (double& x : values) x = rounded(x, storage);
    return values;
  }

  /// On the GPU as long as the test runs.
  void* put(const Doubles& values, DType as) {
    const std::vector<std::uint8_t> bytes = to_storage(values, ops::storage_of(as));
    return put_bytes(bytes.data(), bytes.size());
  }
  void* put_bytes(const void* from, std::size_t bytes) {
    kept.emplace_back(*stream, bytes);
    kept.back().upload(from, bytes);
    return kept.back().data();
  }
  Memory room(std::size_t bytes) {
    const std::vector<std::uint8_t> poison(bytes, 0xff);
    return {put_bytes(poison.data(), bytes), bytes};
  }
  Doubles get(const void* data, Index count) {
    for (const Buffer& buffer : kept) {
      if (buffer.data() != data) continue;
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count) * 4);
      buffer.download(bytes.data(), bytes.size());
      return from_storage(bytes, plan::Storage::f32);
    }
    return {};
  }

  void check(const GpuCase& of);
};

/// The numbers of a network and of its call, as the GPU's type has them.
inline void CudaPrograms::check(const GpuCase& of) {
  Case c = of.c;
  if (c.bias == Bias::none && plan::cell_traits(cell).learnt > 0) c.bias = Bias::single;  // they lie behind it
  if (of.projected) c.input = info.gates * c.hidden;
  if (!c.applies_to(info) || ((of.chunks || of.projected) && info.scan)) return;
  SCOPED_TRACE(c.name);
  kept.clear();
  Recurrent<double> network = make_network<double>(cell, c);
  for (auto& parameter : network.parameters()) {
    for (double& x : parameter.value) x = rounded(x, storage);
  }
  if (of.projected) project_by_identity(network);
  Inputs<double> in = make_inputs(network, c);
  if (of.restarts != Restarts::zeros) {
    Random random(3);
    in.restarts = of.restarts;
    in.state_in = draw_state(random, network, state_rows(in.batch()));
  }
  in.x = round_all(in.x), in.dy = round_all(in.dy), in.state_in = round_all(in.state_in);
  in.dstate_out = round_all(in.dstate_out);
  // Halves round the gates, and with them which side of sLSTM's max a gradient of the stabiliser takes: there is none
  // as long as only the output has a gradient.
  if (info.states == 4 && storage != plan::Storage::f32) {
    std::fill(in.dstate_out.begin() + static_cast<std::ptrdiff_t>(in.dstate_out.size() / 4), in.dstate_out.end(), 0.0);
    std::ranges::fill(in.dstates, 0.0);
  }
  const bool by_cpu = plan::cell_traits(cell).custom != nullptr || in.restarts != Restarts::zeros;
  Outputs<double> want = by_cpu ? test::run(network, in) : expected(network, in);
  if (of.projected) want.gradients.erase(want.gradients.begin());
  RecurrentSpec spec = network.spec();
  spec.projected_input = of.projected;
  const Batch host = in.batch();
  Batch batch = host;
  if (host.lengths) batch.lengths = static_cast<const Index*>(put_bytes(host.lengths, in.lengths.size() * 8));
  if (host.cu_seqlens)
    batch.cu_seqlens = static_cast<const Index*>(put_bytes(host.cu_seqlens, in.cu_seqlens.size() * 8));
  if (host.reset) batch.reset = static_cast<const std::uint8_t*>(put_bytes(host.reset, in.reset.size()));

  std::vector<Index> sizes;  // rows that have each step
  for (Index step = 0; c.form == RowForm::sorted && step < in.steps; ++step) {
    sizes.push_back(std::ranges::count_if(sorted_lengths(in.rows, in.steps), [&](Index n) { return n > step; }));
  }
  if (!sizes.empty()) batch.batch_sizes = sizes.data();

  const auto layout = [&](int place) { return shifted(c.layout, c.mixed ? place : 0); };
  GpuSequence x(*stream, host, spec.input_size, layout(0), type), y(*stream, host, spec.output_size(), layout(1), type);
  GpuSequence dx(*stream, host, spec.input_size, layout(2), type);
  GpuSequence dy(*stream, host, spec.output_size(), layout(3), type);
  GpuSequence every(*stream, host, other_states(spec), layout(4), DType::f32);
  GpuSequence devery(*stream, host, other_states(spec), layout(4), DType::f32);
  x.put(in.x), dy.put(in.dy);
  if (in.every_state) devery.put(in.dstates);
  RecurrentForm form{.dtype = type,
                     .weights = of.master ? DType::f32 : type,
                     .rows = in.rows,
                     .steps = in.steps,
                     .positions = in.cu_seqlens.empty() ? 0 : in.cu_seqlens.back(),
                     .flags = {CallFlag::training},
                     .restarts = in.restarts};
  form.flags.set(CallFlag::sorted, c.form == RowForm::sorted).set(CallFlag::lengths, !in.lengths.empty());
  form.flags.set(CallFlag::reset, !in.reset.empty()).set(CallFlag::add_gradients, of.add_gradients);
  form.flags.set(CallFlag::keep_tape, of.add_gradients);
  form.x = x.strides(), form.y = y.strides(), form.dx = dx.strides(), form.dy = dy.strides();
  form.flags.set(CallFlag::every_state, in.every_state), form.states = every.strides();
  form.alignment = of.aligned ? 16 : static_cast<int>(size_of(type));
  const Execution execution{.device = Device::cuda()};
  const auto program = RecurrentProgram::get(spec, form, execution);
  if (c.form == RowForm::sorted && !info.scan && plan::cell_traits(cell).phases == 1) {
    EXPECT_NE(program->explain().find("have plans of their own"), std::string::npos) << program->explain();
  }
  if (!of.on_hopper.empty() && cuda::Device::get(0).model().architecture() == 90) {
    const std::string explanation = program->explain();
    const std::size_t first = explanation.find(of.on_hopper);
    EXPECT_NE(first, std::string::npos) << explanation;
    EXPECT_NE(explanation.find(of.on_hopper, first + 1), std::string::npos) << "the backward pass: " << explanation;
  }
  if (of.chunks) {
    const std::string explanation = program->explain();
    const std::size_t first = explanation.find("wavefront: ");
    ASSERT_NE(first, std::string::npos) << explanation;
    EXPECT_NE(explanation.find("wavefront: ", first + 1), std::string::npos) << "the backward pass: " << explanation;
  }

  const auto states = [&](const Doubles& values) {
    if (values.empty()) return Tensor{};
    const Index slots = info.states * spec.layers * spec.directions();
    const Index rows = static_cast<Index>(values.size()) / (slots * spec.hidden_size);
    return Tensor::contiguous(put(values, DType::f32), DType::f32,
                              {info.states, spec.layers * spec.directions(), rows, spec.hidden_size}, Device::cuda());
  };
  std::vector<Tensor> weights, gradients;
  const auto parameters = std::span(network.parameters()).subspan(of.projected ? 1 : 0);
  for (const auto& parameter : parameters) {
    const Doubles values(parameter.value.begin(), parameter.value.end());
    Tensor tensor =
        parameter.shape.size() == 1 ? Tensor::contiguous(nullptr, form.weights, {parameter.shape[0]})
        : parameter.shape.size() == 2
            ? Tensor::contiguous(nullptr, form.weights, {parameter.shape[0], parameter.shape[1]})
            : Tensor::contiguous(nullptr, form.weights, {parameter.shape[0], parameter.shape[1], parameter.shape[2]});
    tensor.device = Device::cuda();
    tensor.data = put(values, form.weights);
    weights.push_back(tensor);
    tensor.dtype = DType::f32;
    tensor.data = put(Doubles(values.size(), of.add_gradients ? 0.0 : 1e30), DType::f32);
    gradients.push_back(tensor);
  }
  const Doubles no_states(static_cast<std::size_t>(network.state_size() * in.rows), 0.0);
  const Tensor state_in = states(in.state_in), state_out = states(no_states), dstate_out = states(in.dstate_out);
  const Tensor dstate_in = states(Doubles(in.state_in.size(), 1e30));
  const Context context{.execution = execution, .stream = stream->handle(), .seed = 0, .device_seed = nullptr};
  const Memory workspace = room(program->workspace_bytes()), tape = room(program->tape_bytes());
  Outputs<double> out;
  std::uint64_t pass = 0;
  const auto run = [&] {
    const RecurrentProgram::Forward forward{.weights = weights,
                                            .batch = batch,
                                            .x = x.tensor(),
                                            .y = y.tensor(),
                                            .state_in = state_in,
                                            .state_out = state_out,
                                            .workspace = workspace,
                                            .tape = tape,
                                            .packed = {},
                                            .states = in.every_state ? every.tensor() : Tensor{}};
    if (pass == 0 || !form.has(CallFlag::keep_tape)) pass = program->forward(context, forward);
    program->backward(context, {.weights = weights,
                                .batch = batch,
                                .x = x.tensor(),
                                .y = y.tensor(),
                                .dy = dy.tensor(),
                                .state_in = state_in,
                                .dstate_out = dstate_out,
                                .dx = dx.tensor(),
                                .dstate_in = dstate_in,
                                .gradients = gradients,
                                .workspace = workspace,
                                .tape = tape,
                                .pass = pass,
                                .packed = {},
                                .dstates = in.every_state ? devery.tensor() : Tensor{}});
    out = {.y = y.get(), .state_out = get(state_out.data, static_cast<Index>(no_states.size())), .dx = dx.get()};
    if (in.every_state) out.states = every.get();
    if (dstate_in) out.dstate_in = get(dstate_in.data, static_cast<Index>(in.state_in.size()));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const auto& parameter = parameters[i];
      out.gradients.emplace_back(parameter.name, get(gradients[i].data, static_cast<Index>(parameter.value.size())));
    }
  };
  run();
  const Outputs<double> once = out;
  run();
  EXPECT_TRUE(same_bits(out.y, once.y)) << "not the same bits again";
  EXPECT_TRUE(same_bits(out.dx, once.dx)) << "not the same bits again";
  if (!sizes.empty()) {
    const auto refuses = [&](const std::string& text, std::size_t step, Index size) {
      const Index sound = std::exchange(sizes[step], size);
      expect_error(ErrorCode::invalid_argument, text, run);
      sizes[step] = sound;
    };
    refuses("batch.batch_sizes[0] must be the", 0, in.rows - 1);
    refuses("batch.batch_sizes[1] must be 1 to the", 1, in.rows + 1);
    refuses("batch.batch_sizes[2] must be 1 to the", 2, 0);
    const auto falls = std::ranges::adjacent_find(sizes, std::ranges::greater());
    refuses("batch.batch_sizes must add up to the", static_cast<std::size_t>(falls - sizes.begin()) + 1, *falls);
  }
  if (of.add_gradients) {
    for (auto& [name, values] : out.gradients) {
      for (double& value : values) value /= 2;
    }
  }
  const Index positions = oracle::position_count(host);
  Tolerances allowed = tolerances<float>(spec, positions, in.steps, 2 * c.bias_scale);
  if (type != DType::f32) {
    // Roundings of the type stand between each layer and the next, and in each layer's gates.
    const double unit = half_unit(storage) * static_cast<double>(c.layers);
    allowed.forward += 4 * unit, allowed.backward += 8 * unit, allowed.weights += 8 * unit;
  }
  allowed.forward *= of.factor, allowed.backward *= of.factor, allowed.weights *= of.factor;
  if (type != DType::f32 && info.has_kink) {  // which side of it a rounded sum falls on decides a gradient
    EXPECT_TRUE(close(out.y, want.y, allowed.forward, forward_terms)) << "y";
    return;
  }
  expect_close(spec, out, want, allowed);
}

inline std::string program_name(const testing::TestParamInfo<std::tuple<std::string, DType>>& of) {
  std::string name = std::get<0>(of.param) + "_" + std::string(to_string(std::get<1>(of.param)));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace penstock::test
