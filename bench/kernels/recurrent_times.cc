// Times of whole recurrent layers on a GPU, input products and gradients of all weights included, through the public
// RecurrentProgram; each is checked in the same run against the oracle:
//   cuda_recurrent_times [CELL,DTYPE,B,T,I,H[,LAYERS[,ragged|diagonal|heads-N|reset-R]] ...]
//                       ragged: lengths uniform in 1..T; diagonal: H heads; heads-N: N heads; reset-R: 3 % of the
//                       steps reset their row to R: zeros, one state, one of its own (rows), or one a step (steps)
// DTYPE tf32 is f32 whose products may round their factors.
// CELL may be own-lstm, own-gru, own-slstm or own-mingru: the cell as a program defines it, to be compared with
// Penstock's own in the same run. own-peephole, own-norm-lstm and own-norm-peephole are checked against Penstock's
// layer on the CPU, in double precision.
// Median and, in parentheses, the middle half of the times. The error is that of y of the last row over its first
// steps, relative to the greatest value.

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "bench/kernels/measure.h"
#include "oracle/network.h"
#include "oracle/written_cells.h"
#include "penstock/error.h"
#include "penstock/recurrent.h"
#include "penstock/recurrent_program.h"

namespace {

using namespace penstock::bench::cuda;  // NOLINT(google-build-using-namespace)
using penstock::DType;
using penstock::Index;
using penstock::RecurrentProgram;
using penstock::Tensor;

struct Layers {
  std::string text;
  penstock::RecurrentSpec spec = {};
  std::string oracle_cell = {};  ///< The cell of the list with the same equations; empty: none
  DType type = DType::f16;
  Storage storage = Storage::f16;
  Index rows = 1, steps = 1;
  bool ragged = false, tf32 = false, reset = false;
  penstock::Restarts restarts = penstock::Restarts::zeros;
};

/// Defines the cell that own-lstm and others name. Returns the name of the cell of the list with the same equations.
std::string define_own(const std::string& name) {
  using Written = penstock::test::WrittenCell (*)(const std::string&);
  const std::pair<std::string, Written> cells[] = {{"lstm", penstock::test::written_lstm},
                                                   {"gru", penstock::test::written_gru},
                                                   {"slstm", penstock::test::written_slstm},
                                                   {"mingru", penstock::test::written_mingru},
                                                   {"peephole", penstock::test::written_peephole},
                                                   {"norm-lstm", penstock::test::written_norm_lstm},
                                                   {"norm-peephole", penstock::test::written_norm_peephole}};
  for (const auto& [own, written] : cells) {
    if (name != "own-" + own) continue;
    const penstock::test::WrittenCell cell = written(name);
    penstock::define_cell(cell.definition, cell.equations);
    const bool known = own != "peephole" && !own.starts_with("norm-");  // to the oracle
    return known ? own : "";
  }
  return name;
}

Layers parse(const std::string& text) {
  char cell[24] = {}, type[8] = {}, more[16] = {};
  long long rows = 0, steps = 0, input = 0, hidden = 0, layers = 1;
  if (std::sscanf(text.c_str(), "%23[^,],%7[^,],%lld,%lld,%lld,%lld,%lld,%15s", cell, type, &rows, &steps, &input,
                  &hidden, &layers, more) < 6) {
    throw penstock::Error(penstock::ErrorCode::invalid_argument,
                          "CASE must be CELL,DTYPE,B,T,I,H[,LAYERS[,ragged]], not '" + text + "'");
  }
  Layers of{.text = text, .rows = rows, .steps = steps};
  of.spec = {.cell = cell, .input_size = input, .hidden_size = hidden, .layers = layers};
  for (const auto& [dtype, storage] :
       {std::pair{DType::f32, Storage::f32}, {DType::bf16, Storage::bf16}, {DType::f16, Storage::f16}}) {
    if (to_string(dtype) == type) of.type = dtype, of.storage = storage;
  }
  if (type == std::string("tf32")) of.type = DType::f32, of.storage = Storage::f32, of.tf32 = true;
  of.oracle_cell = define_own(cell);
  of.ragged = more == std::string("ragged");
  if (more == std::string("diagonal")) of.spec.heads = hidden;
  constexpr const char* names[] = {"reset-zeros", "reset-one", "reset-rows", "reset-steps"};
  for (int i = 0; i < 4; ++i) {
    if (more == std::string(names[i])) of.reset = true, of.restarts = static_cast<penstock::Restarts>(i);
  }
  long long heads = 0;
  if (std::sscanf(more, "heads-%lld", &heads) == 1) of.spec.heads = heads;
  return of;
}

/// A stack with all that its calls need, in the GPU's memory.
class Run {
 public:
  Run(const Layers& layers, Stream& stream)
      : of_(layers), stream_(stream), x_values_(random_pattern(1, -1, 1, of_.storage)) {
    form_.dtype = form_.weights = of_.type;
    form_.rows = of_.rows, form_.steps = of_.steps;
    form_.flags.set(penstock::CallFlag::lengths, of_.ragged).set(penstock::CallFlag::reset, of_.reset);
    form_.restarts = of_.restarts;
    context_.execution.device = penstock::Device::cuda();
    if (of_.tf32) context_.execution.precision = penstock::Precision::tf32;
    context_.stream = stream.handle();
    inference_ = RecurrentProgram::get(of_.spec, form_, context_.execution);
    form_.flags.set(penstock::CallFlag::training);
    training_ = RecurrentProgram::get(of_.spec, form_, context_.execution);
    put_parameters();
    const Pattern dy_values = random_pattern(2, -1, 1, of_.storage);
    const Index inputs = of_.spec.input_size, outputs = of_.spec.output_size();
    x_ = put({of_.rows, of_.steps, inputs}, of_.type, x_values_);
    dx_ = put({of_.rows, of_.steps, inputs}, of_.type, x_values_);
    dy_ = put({of_.rows, of_.steps, outputs}, of_.type, dy_values);
    y_buffer_ = buffers_.size();
    y_ = put({of_.rows, of_.steps, outputs}, of_.type, dy_values);
    workspace_ = room(std::max(inference_->workspace_bytes(), training_->workspace_bytes()));
    tape_ = room(training_->tape_bytes());
    put_lengths();
    put_resets();
  }

  void infer() const { inference_->forward(context_, forward_call()); }
  void train() const {
    training_->forward(context_, forward_call());
    RecurrentProgram::Backward call;
    call.weights = weights_;
    call.batch = batch_;
    call.x = x_, call.y = y_, call.dy = dy_, call.dx = dx_;
    call.state_in = states_, call.dstate_in = dstates_;
    call.gradients = gradients_;
    call.workspace = workspace_;
    call.tape = tape_;
    training_->backward(context_, call);
  }
  std::string explain() const { return inference_->explain(); }

  /// Returns the error of y of the last row, over its first steps.
  double error() const {
    const Index row = of_.rows - 1, inputs = of_.spec.input_size, outputs = of_.spec.output_size();
    const Index steps = std::min<Index>(of_.ragged ? lengths_.back() : of_.steps, 16);
    oracle::Arguments<double> all;
    for (Index layer = 0; layer < of_.spec.layers; ++layer) {
      oracle::Weights<double> weights;
      const std::pair<const char*, std::vector<double>*> named[] = {{"weight_ih", &weights.weight_ih},
                                                                    {"weight_hh", &weights.weight_hh},
                                                                    {"bias_ih", &weights.bias_ih},
                                                                    {"bias_hh", &weights.bias_hh}};
      for (const auto& [name, values] : named) {
        for (const Parameter& parameter : parameters_) {
          if (parameter.name != fmt::format("{}_l{}", name, layer)) continue;
          for (Index i = 0; i < parameter.count; ++i) values->push_back(parameter.values.at(i));
        }
      }
      all.weights.push_back(weights);
    }
    for (Index i = 0; i < steps * inputs; ++i) all.x.push_back(x_values_.at(row * of_.steps * inputs + i));
    const std::vector<double> want = wanted(all, steps);
    const std::vector<double> got =
        elements(buffers_[y_buffer_], row * of_.steps * outputs, steps * outputs, of_.storage, stream_);
    double worst = 0, scale = 1e-30;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double off = std::abs(got[i] - want[i]);
      scale = std::max(scale, std::abs(want[i]));
      worst = std::isnan(off) ? 1e30 : std::max(worst, off);
    }
    return worst / scale;
  }

 private:
  struct Parameter {
    std::string name;
    Index count = 1;
    Pattern values;
  };

  /// Returns y of one row: the oracle's, or the layer's on a CPU.
  std::vector<double> wanted(const oracle::Arguments<double>& all, Index steps) const {
    penstock::RecurrentSpec spec = of_.spec;
    if (!of_.oracle_cell.empty()) {
      spec.cell = of_.oracle_cell;
      return oracle::forward(spec, {.rows = 1, .steps = steps}, all).y;
    }
    penstock::Recurrent<double> layer(spec);
    for (const Parameter& parameter : parameters_) {
      std::vector<double> values;
      for (Index i = 0; i < parameter.count; ++i) values.push_back(parameter.values.at(i));
      layer.write(parameter.name, values);
    }
    std::vector<double> y(static_cast<std::size_t>(steps * spec.output_size()));
    layer.forward({.rows = 1, .steps = steps}, {all.x.data(), 0, spec.input_size}, {y.data(), 0, spec.output_size()},
                  nullptr, nullptr);
    return y;
  }

  RecurrentProgram::Forward forward_call() const {
    RecurrentProgram::Forward call;
    call.weights = weights_;
    call.batch = batch_;
    call.x = x_, call.y = y_;
    call.state_in = states_;
    call.workspace = workspace_;
    call.tape = tape_;
    return call;
  }

  Tensor put(const std::vector<Index>& shape, DType type, const Pattern& values) {
    Tensor tensor;
    tensor.dtype = type, tensor.device = penstock::Device::cuda();
    tensor.rank = static_cast<int>(shape.size());
    Index count = 1;
    for (std::size_t axis = shape.size(); axis-- > 0; count *= shape[axis]) {
      tensor.shape[axis] = shape[axis], tensor.strides[axis] = count;
    }
    const Storage storage = type == DType::f32 ? Storage::f32 : of_.storage;
    buffers_.push_back(penstock::bench::cuda::tensor(stream_, count, values, storage));
    tensor.data = device_pointer<void>(buffers_.back().address());
    return tensor;
  }
  void put_parameters() {
    const double bound = 1 / std::sqrt(static_cast<double>(of_.spec.hidden_size));
    const Pattern zeros = random_pattern(1, 0, 0, Storage::f32);
    for (const auto& [name, shape] : training_->parameters()) {
      Parameter parameter{.name = name, .values = random_pattern(10 + parameters_.size(), -bound, bound, of_.storage)};
      for (const Index extent : shape) parameter.count *= extent;
      weights_.push_back(put(shape, of_.type, parameter.values));
      gradients_.push_back(put(shape, DType::f32, zeros));
      parameters_.push_back(std::move(parameter));
    }
  }
  void put_lengths() {
    penstock::Random random(3);
    for (Index b = 0; b < of_.rows; ++b) {
      lengths_.push_back(1 + static_cast<Index>(random.uniform() * static_cast<double>(of_.steps - 1)));
    }
    const penstock::Memory lengths = room(lengths_.size() * sizeof(Index));
    buffers_.back().upload(lengths_.data(), lengths.bytes);
    batch_ = {.rows = of_.rows, .steps = of_.steps};
    if (of_.ragged) batch_.lengths = static_cast<const Index*>(lengths.data);
  }
  /// States of resets are random, those before the first step zeros. The last row, which the oracle runs, has none.
  void put_resets() {
    if (!of_.reset) return;
    penstock::Random random(4);
    std::vector<std::uint8_t> resets;
    for (Index i = 0; i < of_.rows * of_.steps; ++i) {
      resets.push_back(random.uniform() < 0.03 && i / of_.steps + 1 < of_.rows ? 1 : 0);
    }
    const penstock::Memory mask = room(resets.size());
    buffers_.back().upload(resets.data(), mask.bytes);
    batch_.reset = static_cast<const std::uint8_t*>(mask.data), batch_.restarts = of_.restarts;
    if (of_.restarts == penstock::Restarts::zeros) return;
    const Index count = penstock::find_cell(of_.spec.cell).states * of_.spec.layers, hidden = of_.spec.hidden_size;
    const Index rows = state_rows(batch_);
    std::vector<float> values;
    for (Index i = 0; i < count * rows * hidden; ++i) {
      values.push_back(i / hidden % rows < of_.rows ? 0.0f : static_cast<float>(random.uniform(-1, 1)));
    }
    states_ = put({1, count, rows, hidden}, DType::f32, random_pattern(5, 0, 0, Storage::f32));
    states_.shape = {penstock::find_cell(of_.spec.cell).states, of_.spec.layers, rows, hidden};
    states_.strides = {of_.spec.layers * rows * hidden, rows * hidden, hidden, 1};
    buffers_.back().upload(values.data(), values.size() * sizeof(float));
    dstates_ = states_;
    dstates_.data = room(values.size() * sizeof(float)).data;
  }
  penstock::Memory room(std::size_t bytes) {
    buffers_.emplace_back(stream_, bytes);
    return {device_pointer<void>(buffers_.back().address()), bytes};
  }

  Layers of_;
  Stream& stream_;
  Pattern x_values_;
  penstock::RecurrentForm form_;
  penstock::Context context_;
  penstock::Batch batch_;
  std::shared_ptr<const RecurrentProgram> inference_, training_;
  std::vector<Parameter> parameters_;
  std::vector<Buffer> buffers_;
  std::vector<Tensor> weights_, gradients_;
  std::vector<Index> lengths_;
  Tensor x_, y_, dx_, dy_, states_, dstates_;
  penstock::Memory workspace_, tape_;
  std::size_t y_buffer_ = 0;
};

std::string milliseconds(Clock& clock, const std::function<void()>& work) {
  std::vector<double> all = clock.sample(0.02, work);
  std::sort(all.begin(), all.end());
  const std::size_t n = all.size();
  return fmt::format("{:.3f} ({:.3f}-{:.3f})", all[n / 2] * 1e3, all[n / 4] * 1e3, all[3 * n / 4] * 1e3);
}

bool measure(const std::string& text, Stream& stream, Clock& clock) {
  const Layers layers = parse(text);
  const Run run(layers, stream);
  const std::string forward = milliseconds(clock, [&] { run.infer(); });
  const double error = run.error();
  fmt::print(stderr, "{}\n{}\nkernels of a training step: {}\n", text, run.explain(),
             times_of_kernels(stream, [&] { run.train(); }));
  fmt::print("| {} | {} | {} | {:.1e} |\n", text, forward, milliseconds(clock, [&] { run.train(); }), error);
  std::fflush(stdout);
  return error < (layers.tf32                       ? 0x1p-8
                  : layers.storage == Storage::f32  ? 1e-4
                  : layers.storage == Storage::bf16 ? 0x1p-5
                                                    : 0x1p-8);
}

constexpr const char* kCases[] = {"lstm,f16,64,200,256,512", "lstm,f16,64,512,1024,1024", "lstm,bf16,64,512,1024,1024",
                                  "lstm,bf16,64,512,512,512,1,ragged"};

int run(const std::vector<std::string>& cases) {
  Stream stream(Device::get(0));
  Clock clock(stream);
  fmt::print("{}\n\n| cell, type, B, T, I, H | forward ms | forward + backward ms | error |\n|---|---|---|---|\n",
             stream.device().model().name);
  return measure_each(cases, [&](const std::string& text) { return measure(text, stream, clock); }) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return run_program("cuda_recurrent_times", argc, argv, kCases, run); }
