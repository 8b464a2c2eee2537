#include "runtime/session.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace penstock::runtime {

namespace {

/// Largest magnitude of a feature that models read (Column::furthest).
constexpr float kFurthest = 1e12f;

bool is_finite(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7f800000u) != 0x7f800000u;
}

bool all_finite(const float* values, std::size_t count) { return std::all_of(values, values + count, is_finite); }

bool is_near(float value) { return value >= -kFurthest && value <= kFurthest; }

constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

/// The header of a saved state.
struct SavedHeader {
  char magic[8];
  std::uint64_t model;  ///< Checksum of its file.
  std::uint64_t count;  ///< Floats.
  std::uint64_t sum;    ///< Checksum of the bits of these floats.
};
constexpr char kMagic[9] = "pnstckS1";

std::uint64_t sum_of(const void* values, std::size_t count) {
  std::uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a over words
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(values) + i * sizeof(bits), sizeof(bits));
    sum = (sum ^ bits) * 0x100000001b3u;
  }
  return sum;
}

}  // namespace

std::size_t Session::bytes_of(const Model& model) {
  return Buffer::kAlignment + whole_lines(sizeof(Session)) + whole_lines(model.layers.size() * sizeof(Job)) +
         static_cast<std::size_t>(model.floats) * sizeof(float);
}

std::size_t Session::saved_size(const Model& model) {
  return sizeof(SavedHeader) + static_cast<std::size_t>(model.state_size) * sizeof(float);
}

Session* Session::open(Model& model, void* memory, std::size_t size, Failure& failure) {
  const std::size_t bytes = bytes_of(model);
  void* own = nullptr;
  if (memory == nullptr && size == 0) {
    memory = own = std::malloc(bytes);
    if (own == nullptr) {
      failure.set(PENSTOCK_OUT_OF_MEMORY, "no memory for a session of %zu bytes", bytes);
      return nullptr;
    }
  } else if (memory == nullptr || size < bytes) {
    failure.set(PENSTOCK_INVALID_ARGUMENT, "memory must be %zu bytes (session_bytes), not %zu%s", bytes, size,
                memory == nullptr ? " at null" : "");
    return nullptr;
  }
  std::byte* const begin = Buffer::aligned(memory);
  std::byte* const jobs = begin + whole_lines(sizeof(Session));
  std::byte* const floats = jobs + whole_lines(model.layers.size() * sizeof(Job));
  model.keep();
  return new (begin) Session(model, reinterpret_cast<Job*>(jobs), reinterpret_cast<float*>(floats), own);
}

Session* Session::clone(void* memory, std::size_t size, Failure& failure) const {
  Session* const copy = open(*model_, memory, size, failure);
  if (copy == nullptr) return nullptr;
  std::copy_n(floats_, model_->state_size, copy->floats_);
  copy->policy_ = policy_;
  return copy;
}

Session::Session(Model& model, Job* jobs, float* floats, void* own)
    : model_(&model), jobs_(jobs), floats_(floats), own_(own) {
  std::fill_n(floats_, model.floats, 0.0f);
  for (std::size_t i = 0; i < model.layers.size(); ++i) prepare(i);
}

/// What a layer's steps look up is looked up once.
void Session::prepare(std::size_t i) {
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

void Session::close() {
  Model* const model = model_;
  std::free(own_);  // with this object in it, which has nothing to destroy
  model->release();
}

void Session::reset() { std::fill_n(floats_, model_->state_size, 0.0f); }

bool Session::check_steps(std::size_t rows, std::size_t size, Span span, Failure& failure) const {
  const auto outputs = static_cast<std::size_t>(model_->description.output_size());
  if (span == Span::step && rows != 1) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "features must hold %zu values, not %zu",
                       static_cast<std::size_t>(model_->description.input_size()),
                       rows * static_cast<std::size_t>(model_->description.input_size()));
  }
  if (size / outputs == rows && size % outputs == 0) return true;
  return failure.set(PENSTOCK_INVALID_ARGUMENT, "outputs must hold %zu values for each of %zu steps, not %zu", outputs,
                     rows, size);
}

bool Session::run(const float* features, std::size_t count, float* outputs, std::size_t size, Span span,
                  Failure& failure) {
  const Description& description = model_->description;
  if (description.vocabulary > 0) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "this model reads tokens, not features");
  }
  const auto width = static_cast<std::size_t>(description.input_size());
  if (count % width != 0) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "features must hold %s%zu values, not %zu",
                       span == Span::step ? "" : "rows of ", width, count);
  }
  const std::size_t steps = count / width;
  if (!check_steps(steps, size, span, failure)) return false;
  if (policy_ == PENSTOCK_NAN_ERROR) {
    const float* const far = std::find_if_not(features, features + count, is_near);
    if (far != features + count) {
      const auto place = static_cast<std::size_t>(far - features);
      return failure.set(PENSTOCK_INVALID_ARGUMENT, "step %zu: feature %zu must be a number of at most 1e12, not %g",
                         place / width, place % width, static_cast<double>(*far));
    }
  }
  if (span == Span::sequence) reset();
  const std::size_t row = static_cast<std::size_t>(description.output_size());
  for (std::size_t t = 0; t < steps; ++t) {
    float* const read = at(model_->features);
    std::memcpy(read, features + t * width, width * sizeof(float));
    if (policy_ == PENSTOCK_NAN_ZERO) {
      std::replace_if(
          read, read + width, [](float value) { return !is_near(value); }, 0.0f);
    }
    if (!answer(t, 0, outputs + t * row, failure)) return false;
  }
  return true;
}

bool Session::run(const std::int32_t* tokens, std::size_t count, float* outputs, std::size_t size, Span span,
                  Failure& failure) {
  const Description& description = model_->description;
  if (description.vocabulary == 0) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "this model reads features, not tokens");
  }
  if (!check_steps(count, size, span, failure)) return false;
  for (std::size_t t = 0; t < count; ++t) {
    if (tokens[t] >= 0 && tokens[t] < description.vocabulary) continue;
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "step %zu: token %ld is outside 0..%ld", t,
                       static_cast<long>(tokens[t]), static_cast<long>(description.vocabulary - 1));
  }
  if (span == Span::sequence) reset();
  const std::size_t row = static_cast<std::size_t>(description.output_size());
  for (std::size_t t = 0; t < count; ++t) {
    if (!answer(t, tokens[t], outputs + t * row, failure)) return false;
  }
  return true;
}

/// One step from the features that are there. Outputs that are not finite come of a state that is not, or soon will
/// make one.
bool Session::answer(std::size_t t, std::int32_t token, float* outputs, Failure& failure) {
  const auto count = static_cast<std::size_t>(model_->description.output_size());
  step(token);
  const float* const answers = at(model_->outputs);
  if (policy_ == PENSTOCK_NAN_PASS || all_finite(answers, count)) {
    std::memcpy(outputs, answers, count * sizeof(float));
    return true;
  }
  reset();
  std::fill_n(outputs, count, 0.0f);
  if (policy_ == PENSTOCK_NAN_ZERO) return true;
  return failure.set(PENSTOCK_NUMERICAL, "step %zu: the model's answer is not finite; the session was reset", t);
}

bool Session::get_state(float* state, std::size_t count, Failure& failure) const {
  const auto size = static_cast<std::size_t>(model_->state_size);
  if (count != size) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "state must hold %zu values, not %zu", size, count);
  }
  std::memcpy(state, floats_, size * sizeof(float));
  return true;
}

bool Session::set_state(const float* state, std::size_t count, Failure& failure) {
  const auto size = static_cast<std::size_t>(model_->state_size);
  if (count != size) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "state must hold %zu values, not %zu", size, count);
  }
  if (!all_finite(state, size)) return failure.set(PENSTOCK_INVALID_ARGUMENT, "state must hold finite values");
  std::memcpy(floats_, state, size * sizeof(float));
  return true;
}

bool Session::save(void* bytes, std::size_t size, Failure& failure) const {
  if (size != saved_size(*model_)) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "bytes must be %zu (saved_size), not %zu", saved_size(*model_), size);
  }
  const auto count = static_cast<std::size_t>(model_->state_size);
  SavedHeader header = {{}, model_->checksum, count, sum_of(floats_, count)};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  std::memcpy(bytes, &header, sizeof(header));
  std::memcpy(static_cast<char*>(bytes) + sizeof(header), floats_, count * sizeof(float));
  return true;
}

bool Session::restore(const void* bytes, std::size_t size, Failure& failure) {
  SavedHeader header = {};
  if (size >= sizeof(header)) std::memcpy(&header, bytes, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    return failure.set(PENSTOCK_BAD_INPUT, "the bytes are no state that penstock_session_save() wrote");
  }
  const auto count = static_cast<std::size_t>(model_->state_size);
  if (header.model != model_->checksum || header.count != count) {
    return failure.set(PENSTOCK_INCOMPATIBLE, "the state is of another model");
  }
  const auto* const state = static_cast<const char*>(bytes) + sizeof(header);
  if (size != saved_size(*model_)) {
    return failure.set(PENSTOCK_BAD_INPUT, "the state is damaged: %zu bytes, not %zu", size, saved_size(*model_));
  }
  // Judged where it lies: a refused state changes nothing.
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, state + i * sizeof(float), sizeof(value));
    finite = finite && is_finite(value);
  }
  if (sum_of(state, count) != header.sum || !finite) return failure.set(PENSTOCK_BAD_INPUT, "the state is damaged");
  std::memcpy(floats_, state, count * sizeof(float));
  return true;
}

}  // namespace penstock::runtime
