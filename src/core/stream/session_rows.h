#pragma once

#include <optional>
#include <vector>

#include "nn/model/model_impl.h"
#include "penstock/data_description.h"
#include "penstock/stream.h"

/// Implementation of Session and SessionBatch: rows of a model that take one step at a time.
namespace penstock::streaming {

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
  /// Computes a step from a token of each row [B], or from features [B, I]; returns outputs [B, O].
  std::span<const float> push(const std::int32_t* tokens);
  std::span<const float> push(const float* features);
  void reset() { state_.zero(); }
  void reset(Index row);
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

  void bind(graph::Workspace& workspace);
  void record();
  std::span<const float> step();
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
  std::optional<graph::Workspace> workspace_;
  std::optional<ops::Recording> recording_;  // GPUs: a recorded step

  std::optional<Generation> generation_;
  ops::Buffer draws_, history_;
  std::optional<ops::StagingBuffer> staged_history_;
  std::vector<std::uint64_t> keys_, counters_;  // [rows]
  bool seeded_ = false;                         // since the last draw
};

}  // namespace penstock::streaming
