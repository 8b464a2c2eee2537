// A stream of a recurrent model. A step runs the instructions of the model in turn. Each has the arithmetic of its op
// in src/core/ops, one position at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "base/denormals.h"
#include "runtime/recurrent_model.h"
#include "runtime/session.h"

namespace penstock::runtime {

namespace {

/// A stream of a recurrent model: this object, the jobs of its layers, then its floats.
class RecurrentSession final : public Session {
 public:
  using Job = cpu::CustomStep<float>;

  RecurrentSession(RecurrentModel& model, Job* jobs, float* floats, void* own);

 protected:
  void step(const float* features, std::int32_t token, float* outputs) override;
  void return_to_start() override;
  void read_state(void* bytes) const override;
  void write_state(const void* bytes) override;
  void take_state(const Session& other) override;

 private:
  void prepare(std::size_t layer);
  void run(const Instruction& instruction, std::int32_t token);
  void embedding(const Instruction& instruction, std::int32_t token);
  void linear(const Instruction& instruction);
  void int8_linear(const Instruction& instruction);
  void int8_recurrence(const Layer& layer, const Job& job);
  void norm(const Instruction& instruction);
  void convolution(const Instruction& instruction);
  void recurrence(const Instruction& instruction);
  void read_changes(const Instruction& instruction);
  void add_last(const Instruction& instruction);
  float* at(Place place) const { return floats_ + place; }

  const RecurrentModel* model_;
  Job* jobs_;      // [layers]
  float* floats_;  // [RecurrentModel::floats], the state first
};

constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

/// Where the jobs and the floats of a session begin in its memory.
constexpr std::size_t kJobs = whole_lines(sizeof(RecurrentSession));
std::size_t floats_of(const RecurrentModel& model) {
  return kJobs + whole_lines(model.layers.size() * sizeof(RecurrentSession::Job));
}

}  // namespace

std::size_t RecurrentModel::session_bytes() const {
  return floats_of(*this) + static_cast<std::size_t>(floats) * sizeof(float);
}

Session* RecurrentModel::make_session(std::byte* memory, void* own) {
  auto* const jobs = reinterpret_cast<RecurrentSession::Job*>(memory + kJobs);
  return new (memory) RecurrentSession(*this, jobs, reinterpret_cast<float*>(memory + floats_of(*this)), own);
}

RecurrentSession::RecurrentSession(RecurrentModel& model, Job* jobs, float* floats, void* own)
    : Session(model, own), model_(&model), jobs_(jobs), floats_(floats) {
  std::fill_n(floats_, model.floats, 0.0f);
  for (std::size_t i = 0; i < model.layers.size(); ++i) prepare(i);
}

/// What a layer's steps look up is looked up once.
void RecurrentSession::prepare(std::size_t i) {
  const Layer& layer = model_->layers[i];
  Job& job = *new (&jobs_[i]) Job();
  job.input = layer.input;
  job.hidden = layer.hidden;
  job.heads = layer.heads;
  job.head_size = layer.hidden / layer.heads;
  job.packed = model_->packed.floats() + layer.packed;
  job.operand = at(layer.scratch);
  job.between = job.operand + layer.hidden;
  for (int k = 0; k < layer.states; ++k) job.state[k] = at(layer.state) + k * layer.hidden;
  if (layer.custom == nullptr) return;
  const auto learnt = static_cast<std::size_t>(layer.hidden) * layer.custom->cell.learnt.size();
  job.custom = {layer.custom, job.packed + layer.panels - learnt, layer.hidden};
  job.sums = at(layer.scratch);
  job.head = job.sums + 2 * layer.custom->cell.gates * layer.hidden;
}

void RecurrentSession::return_to_start() { std::memset(floats_, 0, model_->state_bytes); }
void RecurrentSession::read_state(void* bytes) const { std::memcpy(bytes, floats_, model_->state_bytes); }
void RecurrentSession::write_state(const void* bytes) { std::memcpy(floats_, bytes, model_->state_bytes); }
void RecurrentSession::take_state(const Session& other) {
  write_state(static_cast<const RecurrentSession&>(other).floats_);
}

void RecurrentSession::step(const float* features, std::int32_t token, float* outputs) {
  if (features != nullptr) take(features, model_->inputs, at(model_->features));
  {
    const WithDenormals as_zeros(DenormalMode::zeros());
    for (const Instruction& instruction : model_->instructions) run(instruction, token);
  }
  if (outputs != nullptr) std::memcpy(outputs, at(model_->answers), model_->outputs * sizeof(float));
}

void RecurrentSession::run(const Instruction& instruction, std::int32_t token) {
  using Kind = Instruction::Kind;
  switch (instruction.kind) {
    case Kind::embedding:
      return embedding(instruction, token);
    case Kind::linear:
      return linear(instruction);
    case Kind::int8_linear:
      return int8_linear(instruction);
    case Kind::norm:
      return norm(instruction);
    case Kind::sum: {
      float* const x = at(instruction.x);
      const float* const branch = at(instruction.z);
      for (Index i = 0; i < instruction.n; ++i) x[i] = x[i] + branch[i];
      return;
    }
    case Kind::convolution:
      return convolution(instruction);
    case Kind::recurrence:
      return recurrence(instruction);
    case Kind::silu_gate:
      return model_->kernels->silu_gate(instruction.n, at(instruction.x), at(instruction.y));
    case Kind::add: {
      const float* const x = at(instruction.x);
      float* const y = at(instruction.y);
      // Not y + x: to a zero with a sign the full library adds one without.
      for (Index i = 0; i < instruction.n; ++i) y[i] += static_cast<float>(0.0 + static_cast<double>(x[i]));
      return;
    }
    case Kind::read_changes:
      return read_changes(instruction);
    case Kind::add_last:
      return add_last(instruction);
  }
}

void RecurrentSession::embedding(const Instruction& instruction, std::int32_t token) {
  const Index n = instruction.n, row = token * n;
  float* const y = at(instruction.y);
  if (instruction.weight != nullptr) {
    std::copy_n(instruction.weight + row, n, y);
    return;
  }
  const float scale = instruction.int8.scales[token];
  for (Index i = 0; i < n; ++i) y[i] = scale * static_cast<float>(instruction.int8.values[row + i]);
}

void RecurrentSession::linear(const Instruction& instruction) {
  const StepKernels& kernels = *model_->kernels;
  const float* const x = at(instruction.x);
  float* const y = at(instruction.y);
  const Index n = instruction.n, k = instruction.k;
  std::copy_n(instruction.bias, n, y);
  if (k == 1) {  // the weights are one row as much as one column, and as a row fill whole vectors
    return kernels.rows_times_columns(0, 1, n, 1, x, 1, 1, instruction.weight, n, 1.0f, y, n);
  }
  kernels.rows_times_rows(0, 1, n, k, x, k, instruction.weight, k, 1.0f, y, n);
}

void RecurrentSession::int8_linear(const Instruction& instruction) {
  model_->int8->product(instruction.int8, instruction.n, instruction.k, at(instruction.x),
                        reinterpret_cast<std::int8_t*>(at(instruction.z)), instruction.bias, at(instruction.y));
}

/// The sums of a phase's gates, then these gates, as cpu::CellStep has them in one.
void RecurrentSession::int8_recurrence(const Layer& layer, const Job& job) {
  const auto product = model_->int8->product;
  const Int8Gates& gates = layer.int8_gates;
  auto* const operand = reinterpret_cast<std::int8_t*>(at(layer.operand));
  float* const of_input = at(layer.sums);
  float* const of_state = of_input + layer.gates * job.hidden;
  product(layer.int8_ih, layer.gates * job.hidden, job.input, job.x, operand, layer.bias, of_input);
  const Index size = job.head_size;
  for (int phase = 0; phase < 2 && gates.run[phase] != nullptr; ++phase) {
    const float* const from = phase == 0 ? job.state[0] : job.operand;
    const Index first = phase == 0 ? 0 : gates.first, count = phase == 0 ? gates.first : layer.gates - first;
    for (Index head = 0; head < job.heads && layer.int8_hh.values != nullptr; ++head) {
      const Index row = (head * layer.gates + first) * size;
      const cpu::Int8Matrix rows = {layer.int8_hh.values + row * size, layer.int8_hh.scales + row};
      product(rows, count * size, size, from + head * size, operand, nullptr, of_state + row);
    }
    gates.run[phase](job, of_input, of_state);
  }
}

void RecurrentSession::norm(const Instruction& instruction) {
  constexpr double epsilon = 1e-6;  // of ops::ResidualNorm
  float* const x = at(instruction.x);
  if (instruction.z >= 0) {
    const float* const branch = at(instruction.z);
    for (Index i = 0; i < instruction.n; ++i) x[i] = x[i] + branch[i];
  }
  model_->kernels->rms_norm(instruction.n, static_cast<float>(epsilon), x, instruction.weight, at(instruction.y));
}

void RecurrentSession::convolution(const Instruction& instruction) {
  const Index width = instruction.n, kept = instruction.k - 1;
  const float* const x = at(instruction.x);
  float* const state = at(instruction.z);
  float* const y = at(instruction.y);
  std::copy_n(instruction.bias, width, y);
  for (Index j = 0; j <= kept; ++j) {
    const float* const in = j == 0 ? x : state + (kept - j) * width;
    const float* const weight = instruction.weight + j * width;
    for (Index c = 0; c < width; ++c) y[c] += weight[c] * in[c];
  }
  if (kept == 0) return;
  std::memmove(state, state + width, static_cast<std::size_t>((kept - 1) * width) * sizeof(float));
  std::copy_n(x, width, state + (kept - 1) * width);
}

void RecurrentSession::recurrence(const Instruction& instruction) {
  Job& job = jobs_[instruction.index];
  job.backwards = !job.backwards;
  job.x = at(instruction.x);
  job.y = at(instruction.y);
  const Layer& layer = model_->layers[instruction.index];
  if (layer.kernels.step == nullptr) return int8_recurrence(layer, job);
  layer.kernels.step(job);
}

void RecurrentSession::read_changes(const Instruction& instruction) {
  const float* const x = at(instruction.x);
  float* const levels = at(instruction.y);
  float* const carried = at(instruction.z);
  const Index shared = instruction.n;
  float* change = std::copy_n(x, instruction.k, levels);
  for (Index i = 0; i < shared; ++i) {
    const SharedColumn& column = model_->shared[static_cast<std::size_t>(i)];
    const float value = x[column.input];
    const float before = carried[shared] != 0.0f ? carried[i] : value;  // nothing known: no change
    *change++ = static_cast<float>(model_->change_scale * column.factor) * (value - before);
    levels[column.input] = std::tanh(value);
  }
  for (Index i = 0; i < shared; ++i) carried[i] = x[model_->shared[static_cast<std::size_t>(i)].input];
  carried[shared] = 1.0f;
}

void RecurrentSession::add_last(const Instruction& instruction) {
  const float* const features = at(instruction.x);
  for (const SharedColumn& column : model_->shared) {
    const auto input = static_cast<double>(features[column.input]);
    const auto last = static_cast<float>(column.offset + column.factor * input);
    float* const y = at(instruction.y) + column.target;
    for (Index ahead = 0; ahead < instruction.n; ++ahead) y[ahead * instruction.k] += last;
  }
}

}  // namespace penstock::runtime
