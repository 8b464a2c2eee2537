#include "runtime/recurrent_session.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace penstock::runtime {

namespace {

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

}  // namespace penstock::runtime
