#pragma once

#include <array>
#include <optional>
#include <vector>

#include "nn/model/model_impl.h"
#include "ops/memory/recording.h"
#include "penstock/data_description.h"
#include "penstock/stream.h"

/// Implementation of Session and SessionBatch: rows of a model that take one step at a time.
namespace penstock::streaming {

/// Throws Error(invalid_argument) unless the model reads tokens.
void require_tokens(const DataDescription& data);
/// Throws Error(invalid_argument) unless the model reads features and `given` values are `rows` rows of them.
void require_features(const DataDescription& data, Index rows, std::size_t given);
/// Throws Error(invalid_argument) unless all features are finite and at most Column::furthest in magnitude.
void require_near(std::span<const float> features);
/// Throws Error(invalid_argument) unless the state has `size` finite values.
void require_state(Index size, std::span<const float> state);

/// Rows that take one step at a time, with all memory that steps need. The constructor allocates it; generate()
/// allocates more on its first call with a Sampling.
class SessionRows {
 public:
  SessionRows(const Model::Impl& model, Index rows, const Execution& execution);
  /// Copies the states and the seeds of the rows; shares program and weights. Copies no drawn tokens.
  SessionRows(const SessionRows& other);
  SessionRows& operator=(const SessionRows&) = delete;
  ~SessionRows();

  Index rows() const { return target_.rows; }
  const DataDescription& data() const { return data_; }
  /// Where a step reads tokens [B] or features [B, I].
  void* input() { return recording_ ? staged_input_.data() : input_.data(); }
  std::size_t input_bytes() const { return input_.bytes(); }
  /// Computes a step from input(); returns outputs [B, O].
  std::span<const float> step();
  /// Computes a step from a token of each row [B], or from features [B, I]; returns outputs [B, O].
  std::span<const float> push(const std::int32_t* tokens);
  std::span<const float> push(const float* features);
  void reset() { state_.zero(); }
  void reset(Index row);
  /// On a CPU: set and copy the state of a row, in the order of a session by itself.
  void set_row(Index row, const float* state);
  void copy_row(Index row, float* state) const;
  /// On a GPU: steps read and write states of `array` [slots, state of a session by itself] from now on: of each row
  /// the one of slots(). `array` must stay where it is.
  void use_states(ops::Buffer& array);
  /// The slots of the rows [B], which all differ; negative: the row has none.
  std::span<std::int32_t> slots() {
    return {reinterpret_cast<std::int32_t*>(slots_->staged.data()), static_cast<std::size_t>(rows())};
  }
  /// Size and copy of the state of all rows, in its internal order, and back.
  Index state_size() const { return static_cast<Index>(state_.bytes() / sizeof(float)); }
  std::vector<float> state() const;
  void restore(std::span<const float> state) { state_.upload(state.data(), state.size_bytes()); }

  void seed(Index row, std::uint64_t seed);
  /// Draws tokens [rows, steps], as SessionBatch::generate().
  void generate(const Sampling& sampling, Index steps, std::int32_t* tokens);

 private:
  struct Parts {
    DataDescription data;
    ModelSpec spec;
    ops::Target target;
    std::shared_ptr<graph::Weights> weights;
    std::shared_ptr<const graph::Program> program;
    Index state_size;  // of all rows
  };
  explicit SessionRows(Parts parts);
  Parts parts() const { return {data_, spec_, target_, weights_, program_, state_size()}; }

  /// The program of a generating step, and its recordings of one step and of several.
  struct Generation {
    Sampling sampling;
    std::optional<graph::Workspace> workspace;
    std::optional<ops::Recording> one, several;
  };

  /// A state of a node, contiguous for each row.
  struct StatePart {
    Index alone;  // begin in the state of a session by itself
    Index begin;  // of row 0
    Index width;  // floats of a row; rows follow each other
  };
  /// States of slots that steps load and store.
  struct Slots {
    struct Part {
      std::array<void*, 3> operands;  // as ops::NumberedRowsOperand
      std::unique_ptr<ops::Executable> load, store;
    };
    ops::StagingBuffer staged;
    ops::Buffer numbers;
    std::vector<Part> parts;
  };
  void bind(graph::Workspace& workspace);
  void find_state_parts();
  void record();
  Generation& generation_for(const Sampling& sampling);
  void upload_draws();
  void run(const Generation& generation, Index steps);
  void read_history(Index done, Index steps, Index row_stride, std::int32_t* tokens);

  DataDescription data_;
  ModelSpec spec_;
  ops::Target target_;
  ops::Call call_{.threads = 1};
  std::shared_ptr<graph::Weights> weights_;
  std::shared_ptr<const graph::Program> program_;
  ops::Queue& queue_;
  // Each has a fixed address, so a step binds nothing again.
  ops::StagingBuffer staged_input_, staged_output_;
  ops::Buffer input_, output_, state_;
  std::vector<StatePart> state_parts_;
  std::optional<graph::Workspace> workspace_;
  std::optional<ops::Recording> recording_;  // GPUs: a recorded step

  std::optional<Slots> slots_;

  std::optional<Generation> generation_;
  ops::Buffer draws_, history_;
  std::optional<ops::StagingBuffer> staged_history_;
  std::vector<std::uint64_t> keys_, counters_;  // [rows]
  bool seeded_ = false;                         // since the last draw
};

}  // namespace penstock::streaming
