#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/failure.h"
#include "runtime/model.h"

namespace penstock::runtime {

/// How many steps a call has, and where it begins.
enum class Span {
  step,      ///< One, where the session is.
  chunk,     ///< Any number, likewise.
  sequence,  ///< Any number, from the start of a sequence.
};

/// A stream of a model, one step at a time, in one piece of memory: this object, the jobs of its layers, then its
/// floats. A step allocates nothing, locks nothing and makes no system call.
class Session {
 public:
  /// Bytes of a session wherever its memory begins.
  static std::size_t bytes_of(const Model& model);
  /// Bytes that save() writes.
  static std::size_t saved_size(const Model& model);

  /// Opens a session in the caller's memory, or, if `memory` is null, in its own. Null after a failure.
  static Session* open(Model& model, void* memory, std::size_t size, Failure& failure);
  Session* clone(void* memory, std::size_t size, Failure& failure) const;
  void close();

  const Model& model() const { return *model_; }
  void set_policy(penstock_nan_policy policy) { policy_ = policy; }

  /// Reads rows of features, or tokens, one step after the other, and writes the outputs of each. All inputs are
  /// checked before the first step.
  bool run(const float* features, std::size_t count, float* outputs, std::size_t size, Span span, Failure& failure);
  bool run(const std::int32_t* tokens, std::size_t count, float* outputs, std::size_t size, Span span,
           Failure& failure);
  void reset();

  bool get_state(float* state, std::size_t count, Failure& failure) const;
  bool set_state(const float* state, std::size_t count, Failure& failure);
  bool save(void* bytes, std::size_t size, Failure& failure) const;
  bool restore(const void* bytes, std::size_t size, Failure& failure);

 private:
  using Job = cpu::CustomStep<float>;

  Session(Model& model, Job* jobs, float* floats, void* own);
  void prepare(std::size_t layer);
  bool check_steps(std::size_t rows, std::size_t size, Span span, Failure& failure) const;
  bool answer(std::size_t step, std::int32_t token, float* outputs, Failure& failure);
  void step(std::int32_t token);
  void run(const Instruction& instruction, std::int32_t token);
  void embedding(const Instruction& instruction, std::int32_t token);
  void linear(const Instruction& instruction);
  void norm(const Instruction& instruction);
  void convolution(const Instruction& instruction);
  void recurrence(const Instruction& instruction);
  void read_changes(const Instruction& instruction);
  void add_last(const Instruction& instruction);
  float* at(Place place) const { return floats_ + place; }

  Model* model_;
  Job* jobs_;      // [layers]
  float* floats_;  // [Model::floats], the state first
  void* own_;      // what is to be freed, or null
  penstock_nan_policy policy_ = PENSTOCK_NAN_ERROR;
};

}  // namespace penstock::runtime
