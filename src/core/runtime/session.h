#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/failure.h"
#include "runtime/finite.h"
#include "runtime/model.h"

namespace penstock::runtime {

/// How many steps a call has, and where it begins.
enum class Span {
  step,      ///< One, where the session is.
  chunk,     ///< Any number, likewise.
  sequence,  ///< Any number, from the start of a sequence.
};

/// A stream of a model, one step at a time, in one piece of memory that begins with this object. A step allocates
/// nothing, locks nothing and makes no system call.
///
/// Another session may take its place while it runs. From then on calls go to that one, which it keeps.
class Session {
 public:
  virtual ~Session() = default;  // close() calls it: the memory may be the caller's
  /// Bytes of a session wherever its memory begins.
  static std::size_t bytes_of(const Model& model);
  /// Bytes that save() writes.
  static std::size_t saved_size(const Model& model);

  /// Opens a session in the caller's memory, or, if `memory` is null, in its own. Null after a failure.
  static Session* open(Model& model, void* memory, std::size_t size, Failure& failure);
  Session* clone(void* memory, std::size_t size, Failure& failure);
  void close();

  void set_policy(penstock_nan_policy policy);

  /// Reads rows of features, or tokens, one step after the other, and writes the outputs of each. All inputs are
  /// checked before the first step.
  bool run(const float* features, std::size_t count, float* outputs, std::size_t size, Span span, Failure& failure);
  /// One step of features that needs nothing beside it: arguments are right, and no other session comes. A single
  /// sample takes no more time than the checks it needs.
  enum class Quick {
    no,      ///< run() has to do it, or to say what is wrong. Nothing has changed.
    done,    ///< It is done.
    failed,  ///< It is done, and its outputs are not finite: call reject().
  };
  [[gnu::always_inline]] Quick quick_step(const float* features, std::size_t count, float* outputs, std::size_t size) {
    const bool is_alone = fade_ == nullptr && coming_.load(std::memory_order_relaxed) == nullptr;
    if (!is_alone || count != model_->inputs || size != model_->outputs || model_->description.vocabulary > 0) {
      return Quick::no;
    }
    if (policy_ == PENSTOCK_NAN_ERROR && !all_near(features, count)) return Quick::no;
    if (playing_ == this) {  // without a load of the pointer, for which the step's first instructions would wait
      step(features, 0, outputs);
    } else {
      playing_->step(features, 0, outputs);
    }
    return policy_ == PENSTOCK_NAN_PASS || all_finite(outputs, size) ? Quick::done : Quick::failed;
  }
  bool reject(std::size_t t, float* outputs, Failure& failure);
  bool run(const std::int32_t* tokens, std::size_t count, float* outputs, std::size_t size, Span span,
           Failure& failure);
  /// Runs so many steps on a row of features, or on zeros if it is null.
  bool prewarm(const float* features, std::size_t count, std::size_t steps, Failure& failure);
  void reset();
  /// Lets `next` take this session's place: its share grows from step to step, and is all at the last of `steps`. The
  /// only call that may come while another thread runs steps. On success `next` is this session's.
  bool replace(Session* next, std::size_t steps, Failure& failure);

  bool get_state(float* state, std::size_t count, Failure& failure);
  bool set_state(const float* state, std::size_t count, Failure& failure);
  bool save(void* bytes, std::size_t size, Failure& failure);
  bool restore(const void* bytes, std::size_t size, Failure& failure);

 protected:
  /// Holds `model`. `own` is what close() frees, or null.
  Session(Model& model, void* own) : model_(&model), own_(own) { model.keep(); }

  /// One step: from a row of features, or from a token if that is null. `outputs` may be null.
  virtual void step(const float* features, std::int32_t token, float* outputs) = 0;
  virtual void return_to_start() = 0;
  /// Copies Model::state_bytes from or to the state.
  virtual void read_state(void* bytes) const = 0;
  virtual void write_state(const void* bytes) = 0;
  /// Copies that of a session of the same model.
  virtual void take_state(const Session& other) = 0;
  /// Copies features; those that are no numbers become zeros where the policy says so.
  void take(const float* features, std::size_t count, float* to) const {
    if (count == 1 && policy_ != PENSTOCK_NAN_ZERO) {
      *to = *features;
    } else {
      take_all(features, count, to);
    }
  }

 private:
  /// A session that takes another one's place.
  struct Fade {
    Session* to;
    float* outputs;  // [Model::outputs]
    std::size_t steps, done;
  };

  void take_all(const float* features, std::size_t count, float* to) const;
  bool check_steps(std::size_t rows, std::size_t size, Span span, Failure& failure) const;
  bool answer(std::size_t t, const float* features, std::int32_t token, float* outputs, Failure& failure);
  bool check_state(std::size_t count, Failure& failure) const;
  std::size_t state_size() const { return model_->state_bytes / sizeof(float); }
  void play(const float* features, std::int32_t token, float* outputs);
  void fade(const float* features, std::int32_t token, float* outputs);
  void forget_last_fade();
  /// The session that calls go to: the newest.
  Session& newest();

  Model* model_;
  void* own_;
  penstock_nan_policy policy_ = PENSTOCK_NAN_ERROR;
  Session* playing_ = this;
  Fade* fade_ = nullptr;                  // under way
  std::atomic<Fade*> coming_{nullptr};    // from replace(), until the next step
  std::atomic<bool> is_replaced_{false};  // from replace() until the last step of its fade
  Fade* last_ = nullptr;                  // of replace(): to be freed once it is over
  Session* left_ = nullptr;               // by the last fade, likewise
};

}  // namespace penstock::runtime
