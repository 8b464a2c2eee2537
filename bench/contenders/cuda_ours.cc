// Penstock's layers and scans on a GPU as contenders, through the public interface, and what the GPU can do at most.

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>

#include "backend/cuda/driver/blas.h"
#include "bench/contenders/contender.h"
#include "bench/contenders/on_gpu.h"
#include "bench/suite/limits.h"
#include "bench/suite/scan.h"
#include "penstock/error.h"
#include "penstock/scan_program.h"

namespace penstock::bench {
namespace {

/// "penstock-direct" and "penstock-scan" name how a recurrence runs over T.
Algorithm algorithm_of(const std::string& name) {
  if (name == "penstock-direct") return Algorithm::sequential;
  return name == "penstock-scan" ? Algorithm::scan : Algorithm::automatic;
}

/// Whole sequences, forward or training.
class GpuLayer : public OnGpu {
 public:
  GpuLayer(const std::string& name, const Problem& problem)
      : OnGpu(problem),
        layer_(make_layer(problem, problem.weights_for(name))),
        context_(context(algorithm_of(name))),
        program_(RecurrentProgram::get(layer_.spec(), form(), context_.execution)),
        weights_(parameters(layer_, type(), false, held_)),
        x_(on_gpu(problem.x)),
        y_(room_for(positions() * shape().hidden)),
        workspace_(room(program_->workspace_bytes())) {
    if (!training()) return;
    gradients_ = parameters(layer_, DType::f32, true, held_gradients_);
    tape_ = room(program_->tape_bytes());
    dy_ = on_gpu(problem.dy);
    dx_ = room_for(positions() * shape().inputs);
  }

  Answers<float> last() override {
    Answers<float> answers{.y = rows_of(y_, shape().hidden), .dx = {}, .gradients = {}};
    if (training()) answers.dx = rows_of(dx_, shape().inputs);
    return answers;
  }

 private:
  RecurrentForm form() const {
    RecurrentForm form;
    form.dtype = form.weights = type();
    form.rows = shape().rows, form.steps = shape().steps;
    form.flags.set(CallFlag::training, training());
    const Index width = static_cast<Index>(size_of(type()));
    while (shape().inputs * width % form.alignment != 0 || shape().hidden * width % form.alignment != 0) {
      form.alignment /= 2;
    }
    return form;
  }
  void run(const Buffer& dy) override {
    RecurrentProgram::Forward forward;
    forward.weights = weights_;
    forward.batch = batch();
    forward.x = sequence(x_, shape().inputs), forward.y = sequence(y_, shape().hidden);
    forward.workspace = memory(workspace_), forward.tape = memory(tape_);
    program_->forward(context_, forward);
    if (!training()) return;
    RecurrentProgram::Backward backward;
    backward.weights = weights_, backward.gradients = gradients_;
    backward.batch = batch();
    backward.x = forward.x, backward.y = forward.y;
    backward.dy = sequence(dy, shape().hidden), backward.dx = sequence(dx_, shape().inputs);
    backward.workspace = memory(workspace_), backward.tape = memory(tape_);
    program_->backward(context_, backward);
  }
  void add_gradients(Answers<float>& answers) override {
    for (std::size_t i = 0; i < held_gradients_.size(); ++i) {
      const auto& parameter = layer_.parameters()[i];
      answers.gradients.emplace_back(
          parameter.name, host(held_gradients_[i], 0, static_cast<Index>(parameter.value.size()), Storage::f32));
    }
  }

  Recurrent<float> layer_;
  Context context_;
  std::shared_ptr<const RecurrentProgram> program_;
  std::vector<Buffer> held_, held_gradients_;
  std::vector<Tensor> weights_, gradients_;
  Buffer x_, y_, tape_, dx_, workspace_;
};

/// A call for every step, sequences time first.
class GpuLoop : public OnGpu {
 public:
  GpuLoop(const std::string& name, const Problem& problem)
      : OnGpu(problem),
        layer_(make_layer(problem, problem.weights_for(name))),
        context_(context()),
        program_(RecurrentProgram::get(layer_.spec(), form(), context_.execution)),
        weights_(parameters(layer_, type(), false, held_)),
        x_(on_gpu(time_first(shape(), problem.x, shape().inputs))),
        y_(room_for(positions() * shape().hidden)),
        states_{state(room_of_states_[0]), state(room_of_states_[1])},
        workspace_(room(program_->workspace_bytes())) {}

  Answers<float> last() override { return {.y = rows_of(y_, shape().hidden, true), .dx = {}, .gradients = {}}; }

 private:
  RecurrentForm form() const {
    RecurrentForm form;
    form.dtype = form.weights = type();
    form.rows = shape().rows;
    form.flags.set(CallFlag::step, find_cell(layer_.spec().cell).scan);  // steps of other cells are forward calls
    // No step is aligned worse than the second.
    const Index width = shape().rows * static_cast<Index>(size_of(type()));
    while (shape().inputs * width % form.alignment != 0 || shape().hidden * width % form.alignment != 0) {
      form.alignment /= 2;
    }
    return form;
  }
  Tensor state(Buffer& memory) {
    memory = room(static_cast<std::size_t>(layer_.state_size() * shape().rows) * sizeof(float));
    return Tensor::contiguous(data(memory), DType::f32,
                              {find_cell(layer_.spec().cell).states, 1, shape().rows, shape().hidden},
                              penstock::Device::cuda());
  }
  void run(const Buffer&) override {
    room_of_states_[0].fill(0);
    for (Index t = 0; t < shape().steps; ++t) step(t);
  }
  void step(Index t) const {
    const auto at = [&](const Buffer& buffer, Index channels) {
      auto* const first = static_cast<std::byte*>(data(buffer)) + t * shape().rows * channels * size_of(storage_);
      return Tensor::contiguous(first, type(), {shape().rows, 1, channels}, penstock::Device::cuda());
    };
    RecurrentProgram::Forward call;
    call.weights = weights_;
    call.batch = {.rows = shape().rows, .steps = 1};
    call.x = at(x_, shape().inputs), call.y = at(y_, shape().hidden);
    const bool odd = t % 2 != 0;
    call.state_in = states_[odd], call.state_out = states_[!odd];
    call.workspace = memory(workspace_);
    program_->forward(context_, call);
  }

  Recurrent<float> layer_;
  Context context_;
  std::shared_ptr<const RecurrentProgram> program_;
  std::vector<Buffer> held_;
  std::vector<Tensor> weights_;
  Buffer x_, y_;
  std::array<Buffer, 2> room_of_states_;
  std::array<Tensor, 2> states_;  // before and after a step, in turns
  Buffer workspace_;
};

/// The scan by itself; its terms are its weights.
class GpuScan : public OnGpu {
 public:
  GpuScan(const std::string& name, const Problem& problem)
      : OnGpu(problem),
        context_(context(algorithm_of(name))),
        program_(ScanProgram::get(form(problem), context_.execution)),
        h_(room_for(positions() * shape().hidden)),
        workspace_(room(program_->workspace_bytes())) {
    const std::vector<Array> terms = problem.weights_for(name);
    a_ = on_gpu(terms[0].values), b_ = on_gpu(terms[1].values);
    if (!training()) return;
    dy_ = on_gpu(problem.dy);
    da_ = room_for(positions() * shape().hidden), db_ = room_for(positions() * shape().hidden);
  }

  Answers<float> last() override { return {.y = rows_of(h_, shape().hidden), .dx = {}, .gradients = {}}; }

 private:
  ScanCallForm form(const Problem& problem) const {
    ScanCallForm form;
    form.channels = shape().hidden;
    form.form = problem.test.cell == "scan-log" ? ScanForm::logarithmic : ScanForm::linear;
    form.dtype = type();
    form.rows = shape().rows, form.steps = shape().steps;
    form.flags.set(CallFlag::training, training());
    const Index width = shape().hidden * static_cast<Index>(size_of(type()));
    while (width % form.alignment != 0) form.alignment /= 2;
    return form;
  }
  void run(const Buffer& dh) override {
    const ScanProgram::Terms terms{channels(a_), channels(b_), {}};
    program_->forward(
        context_,
        {.batch = batch(), .terms = terms, .h = channels(h_), .h0 = {}, .hT = {}, .workspace = memory(workspace_)});
    if (!training()) return;
    program_->backward(context_, {.batch = batch(),
                                  .terms = terms,
                                  .h = channels(h_),
                                  .dh = channels(dh),
                                  .dterms = {channels(da_), channels(db_), {}},
                                  .h0 = {},
                                  .dhT = {},
                                  .dh0 = {},
                                  .workspace = memory(workspace_)});
  }
  void add_gradients(Answers<float>& answers) override {
    answers.gradients.emplace_back("a", rows_of(da_, shape().hidden));
    answers.gradients.emplace_back("b", rows_of(db_, shape().hidden));
  }
  Tensor channels(const Buffer& buffer) const { return sequence(buffer, shape().hidden); }

  Context context_;
  std::shared_ptr<const ScanProgram> program_;
  Buffer a_, b_, h_, da_, db_, workspace_;
};

/// Additions and multiplications a second of a large product; of floats, a third of what tensor cores make of rounded
/// ones, as each is made of three.
double product_rate(const std::string& dtype) {
  static std::map<std::string, double> rates;
  if (const auto known = rates.find(dtype); known != rates.end()) return known->second;
  constexpr Index n = 4096;
  Stream stream(cuda::Device::get(0));
  Clock clock(stream);
  const Storage storage = storage_of(dtype);
  ProductShape shape{.storage = storage, .result = storage, .m = n, .n = n, .k = n};
  shape.b_transposed = true;
  shape.tf32 = storage == Storage::f32;
  shape.a_stride = shape.b_stride = shape.d_stride = n;
  const Product product(stream.device(), shape);
  const auto bytes = static_cast<std::size_t>(n * n * size_of(storage));
  Buffer a(stream, bytes), b(stream, bytes), d(stream, bytes), workspace(stream, product.workspace_bytes());
  a.fill(0), b.fill(0);
  const double ms = clock.median(
      [&] { product.run(a.address(), b.address(), d.address(), 0, workspace.address(), stream.handle()); });
  return rates[dtype] = 2.0 * n * n * n / (ms * 1e-3) / (shape.tf32 ? 3 : 1);
}

/// Bytes a second, read and written together, of a copy.
double copy_rate() {
  static const double rate = [] {
    constexpr std::size_t bytes = std::size_t{512} << 20;
    Stream stream(cuda::Device::get(0));
    Clock clock(stream);
    Buffer from(stream, bytes), to(stream, bytes);
    from.fill(1);
    const double ms = clock.median(
        [&] { check(driver().copy_on_device(to.address(), from.address(), bytes, stream.handle()), "copying"); });
    return 2.0 * static_cast<double>(bytes) / (ms * 1e-3);
  }();
  return rate;
}

}  // namespace

std::unique_ptr<Contender> make_ours_on_gpu(const std::string& name, const Problem& problem) {
  if (name == "penstock-copied" || name.starts_with("penstock-cpu")) return make_ours(name, problem);
  if (is_bare_scan(problem.test.cell)) return std::make_unique<GpuScan>(name, problem);
  if (name == "penstock-loop") return std::make_unique<GpuLoop>(name, problem);
  if (name == "penstock-recurrence") return make_recurrence_on_gpu(problem);
  try {
    return std::make_unique<GpuLayer>(name, problem);
  } catch (const Error& error) {
    // A algorithm by name may be impossible; what the planner chooses may not.
    if (error.code() == ErrorCode::unsupported && name != "penstock") throw NotOffered{error.what()};
    throw;
  }
}

Limit limit_on_gpu(const Case& test) {
  const auto& [rows, steps, inputs, hidden, heads] = test.shape;
  const double positions = static_cast<double>(rows) * static_cast<double>(steps);
  const double size = static_cast<double>(size_of(storage_of(test.dtype)));
  const bool training = test.pass == Pass::training;
  Limit limit;
  if (is_bare_scan(test.cell)) {
    // Forward: a, b, h. Backward: a, h, dh, da, db, and b as a logarithm.
    const double arrays = !training ? 3.0 : test.cell == "scan" ? 8.0 : 9.0;
    limit.bytes = arrays * size * positions * static_cast<double>(hidden);
    limit.seconds = limit.recurrent = limit.bytes / copy_rate();
    limit.bound = "memory";
    return limit;
  }
  const CellInfo& cell = find_cell(test.cell);
  const double outputs = static_cast<double>(cell.gates * hidden), passes = training ? 3.0 : 1.0;
  const double of_input = 2.0 * passes * positions * outputs * static_cast<double>(inputs);
  const double of_recurrence =
      cell.scan ? 0.0 : 2.0 * passes * positions * outputs * static_cast<double>(hidden / heads);
  limit.flops = of_input + of_recurrence;
  limit.input = of_input / product_rate(test.dtype);
  limit.recurrent = of_recurrence / product_rate(test.dtype);
  limit.seconds = limit.input + limit.recurrent;
  limit.bound = "products";
  const double moving = (training ? 2.0 : 1.0) * size * positions * static_cast<double>(inputs + hidden) / copy_rate();
  if (moving > limit.seconds) limit.seconds = moving, limit.bound = "memory";
  return limit;
}

}  // namespace penstock::bench
