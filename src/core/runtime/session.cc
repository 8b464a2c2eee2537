#include "runtime/session.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace penstock::runtime {

namespace {

/// The first feature that is too far away, or the end.
const float* find_far(const float* features, std::size_t count) {
  return all_near(features, count) ? features + count : std::find_if_not(features, features + count, is_near);
}
}  // namespace

std::size_t Session::bytes_of(const Model& model) { return Buffer::kAlignment + model.session_bytes(); }

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
  return model.make_session(Buffer::aligned(memory), own);
}

Session* Session::clone(void* memory, std::size_t size, Failure& failure) {
  const Session& from = newest();
  Session* const copy = open(*from.model_, memory, size, failure);
  if (copy == nullptr) return nullptr;
  copy->take_state(from);
  copy->policy_ = policy_;
  return copy;
}

void Session::close() {
  if (fade_ != nullptr) fade_->to->close();
  if (Fade* const coming = coming_.load(std::memory_order_acquire); coming != nullptr) coming->to->close();
  if (playing_ != this) playing_->close();
  if (is_replaced_.load(std::memory_order_acquire)) left_ = nullptr;  // it plays
  forget_last_fade();
  Model* const model = model_;
  void* const own = own_;
  this->~Session();
  std::free(own);
  model->release();
}

Session& Session::newest() {
  if (fade_ != nullptr) return *fade_->to;
  Fade* const coming = coming_.load(std::memory_order_acquire);
  return coming != nullptr ? *coming->to : *playing_;
}

void Session::set_policy(penstock_nan_policy policy) { policy_ = playing_->policy_ = newest().policy_ = policy; }

void Session::reset() {
  playing_->return_to_start();
  newest().return_to_start();
}

void Session::forget_last_fade() {
  if (left_ != nullptr && left_ != this) left_->close();
  left_ = nullptr;
  std::free(std::exchange(last_, nullptr));
}

bool Session::replace(Session* next, std::size_t steps, Failure& failure) {
  if (is_replaced_.load(std::memory_order_acquire)) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "the session before has not faded out yet: run its steps first");
  }
  forget_last_fade();
  if (next == this || next->playing_ != next || next->is_replaced_.load(std::memory_order_acquire)) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "next must be another session, and none that was replaced");
  }
  const Model &ours = *model_, &theirs = *next->model_;
  if (theirs.inputs != ours.inputs || theirs.outputs != ours.outputs ||
      theirs.description.vocabulary != ours.description.vocabulary) {
    return failure.set(
        PENSTOCK_INVALID_ARGUMENT,
        "next reads %zu values and returns %zu with a vocabulary of %ld, this session %zu and %zu with %ld",
        theirs.inputs, theirs.outputs, static_cast<long>(theirs.description.vocabulary), ours.inputs, ours.outputs,
        static_cast<long>(ours.description.vocabulary));
  }
  void* const memory = std::malloc(sizeof(Fade) + ours.outputs * sizeof(float));
  if (memory == nullptr) return failure.set(PENSTOCK_OUT_OF_MEMORY, "no memory for %zu outputs", ours.outputs);
  next->policy_ = policy_;
  last_ = new (memory) Fade{next, reinterpret_cast<float*>(static_cast<std::byte*>(memory) + sizeof(Fade)),
                            std::max<std::size_t>(steps, 1), 0};
  left_ = playing_;
  is_replaced_.store(true, std::memory_order_relaxed);
  coming_.store(last_, std::memory_order_release);
  return true;
}

/// A step, with the outputs of two sessions while one takes the place of the other.
void Session::play(const float* features, std::int32_t token, float* outputs) {
  if (coming_.load(std::memory_order_relaxed) != nullptr) fade_ = coming_.exchange(nullptr, std::memory_order_acquire);
  playing_->step(features, token, outputs);
  if (fade_ != nullptr) fade(features, token, outputs);
}

void Session::fade(const float* features, std::int32_t token, float* outputs) {
  Fade& fade = *fade_;
  fade.to->step(features, token, outputs == nullptr ? nullptr : fade.outputs);
  const float share = static_cast<float>(++fade.done) / static_cast<float>(fade.steps), rest = 1.0f - share;
  for (std::size_t i = 0; outputs != nullptr && i < model_->outputs; ++i) {
    outputs[i] = rest * outputs[i] + share * fade.outputs[i];
  }
  if (fade.done < fade.steps) return;
  playing_ = fade.to;
  fade_ = nullptr;
  is_replaced_.store(false, std::memory_order_release);
}

bool Session::prewarm(const float* features, std::size_t count, std::size_t steps, Failure& failure) {
  if (model_->description.vocabulary > 0) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "this model reads tokens, not features");
  }
  if (features != nullptr && count != model_->inputs) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "features must hold %zu values, not %zu", model_->inputs, count);
  }
  const float* const far = features == nullptr ? nullptr : find_far(features, count);
  if (features != nullptr && far != features + count) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "feature %zu must be a number of at most 1e12, not %g",
                       static_cast<std::size_t>(far - features), static_cast<double>(*far));
  }
  float* silence = nullptr;
  if (features == nullptr) {
    features = silence = static_cast<float*>(std::calloc(model_->inputs, sizeof(float)));
    if (silence == nullptr) return failure.set(PENSTOCK_OUT_OF_MEMORY, "no memory for %zu features", model_->inputs);
  }
  for (std::size_t t = 0; t < steps; ++t) play(features, 0, nullptr);
  std::free(silence);
  return true;
}

void Session::take_all(const float* features, std::size_t count, float* to) const {
  std::memcpy(to, features, count * sizeof(float));
  if (policy_ != PENSTOCK_NAN_ZERO) return;
  std::replace_if(
      to, to + count, [](float value) { return !is_near(value); }, 0.0f);
}

bool Session::check_steps(std::size_t rows, std::size_t size, Span span, Failure& failure) const {
  const std::size_t outputs = model_->outputs;
  if (span == Span::step && rows != 1) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "features must hold %zu values, not %zu", model_->inputs,
                       rows * model_->inputs);
  }
  if (size / outputs == rows && size % outputs == 0) return true;
  return failure.set(PENSTOCK_INVALID_ARGUMENT, "outputs must hold %zu values for each of %zu steps, not %zu", outputs,
                     rows, size);
}

bool Session::run(const float* features, std::size_t count, float* outputs, std::size_t size, Span span,
                  Failure& failure) {
  if (model_->description.vocabulary > 0) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "this model reads tokens, not features");
  }
  const std::size_t width = model_->inputs;
  if (count % width != 0) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "features must hold %s%zu values, not %zu",
                       span == Span::step ? "" : "rows of ", width, count);
  }
  const std::size_t steps = count / width;
  if (!check_steps(steps, size, span, failure)) return false;
  if (policy_ == PENSTOCK_NAN_ERROR) {
    const float* const far = find_far(features, count);
    if (far != features + count) {
      const auto place = static_cast<std::size_t>(far - features);
      return failure.set(PENSTOCK_INVALID_ARGUMENT, "step %zu: feature %zu must be a number of at most 1e12, not %g",
                         place / width, place % width, static_cast<double>(*far));
    }
  }
  if (span == Span::sequence) reset();
  for (std::size_t t = 0; t < steps; ++t) {
    if (!answer(t, features + t * width, 0, outputs + t * model_->outputs, failure)) return false;
  }
  return true;
}

bool Session::run(const std::int32_t* tokens, std::size_t count, float* outputs, std::size_t size, Span span,
                  Failure& failure) {
  const Index vocabulary = model_->description.vocabulary;
  if (vocabulary == 0) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "this model reads features, not tokens");
  }
  if (!check_steps(count, size, span, failure)) return false;
  for (std::size_t t = 0; t < count; ++t) {
    if (tokens[t] >= 0 && tokens[t] < vocabulary) continue;
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "step %zu: token %ld is outside 0..%ld", t,
                       static_cast<long>(tokens[t]), static_cast<long>(vocabulary - 1));
  }
  if (span == Span::sequence) reset();
  for (std::size_t t = 0; t < count; ++t) {
    if (!answer(t, nullptr, tokens[t], outputs + t * model_->outputs, failure)) return false;
  }
  return true;
}

bool Session::answer(std::size_t t, const float* features, std::int32_t token, float* outputs, Failure& failure) {
  play(features, token, outputs);
  return policy_ == PENSTOCK_NAN_PASS || all_finite(outputs, model_->outputs) || reject(t, outputs, failure);
}

/// Outputs that are not finite come of a state that is not, or soon will make one.
bool Session::reject(std::size_t t, float* outputs, Failure& failure) {
  reset();
  std::fill_n(outputs, model_->outputs, 0.0f);
  if (policy_ == PENSTOCK_NAN_ZERO) return true;
  return failure.set(PENSTOCK_NUMERICAL, "step %zu: the model's answer is not finite; the session was reset", t);
}

}  // namespace penstock::runtime
