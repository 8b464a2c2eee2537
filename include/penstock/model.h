#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "penstock/data_description.h"
#include "penstock/recurrent.h"

namespace penstock {

/// A sequence model: embedding or linear input -> N blocks of (norm, recurrent layer, residual) -> norm, linear head.
/// The first norm and the last one may be absent.
struct ModelSpec {
  std::string cell = "mingru";
  Index width = 256;      ///< Channels between the blocks.
  Index blocks = 2;       ///< 0: no layers, beside filters alone.
  Index hidden_size = 0;  ///< H of the recurrent layer in a block; 0: width. Projected back to width if they differ.
  Index heads = 1;        ///< Of the recurrent matrix, for cells that have one.
  Index convolution = 0;  ///< Taps of a causal depthwise convolution before the recurrent layer; 0: none.
  double feed_forward = 0.0;  ///< Inner size of a gated feed-forward after it, as a multiple of width; 0: none.
  double dropout = 0.0;       ///< On the output of every sub-layer, in training only; [0, 1).
  /// Norms stand before the first recurrent layer and before the head too; false: between layers alone. A norm takes
  /// the size of a row of values away, and where numbers are read and forecast the size is what counts.
  bool end_norms = true;
  /// Forecasts of columns that are inputs too start from their last value: the layers say the change from the row that
  /// was read, and read the change from the row before. Goes with SeriesOptions::from_last.
  bool from_last = false;
  /// Rows of the past that a linear forecast reads, which the layers then correct; 0: there is none. Goes with
  /// from_last. Its weights are fitted (fit_autoregression), not trained.
  Index lags = 0;
  /// The linear forecast also counts the effects of what is known in advance (Autoregression::effects). Goes with lags
  /// and data that read later rows.
  bool known_effects = false;
  /// Labelled sequences: convolution filters of each of `dilations` dilations (1, 2, 4, ...), beside the layers, half
  /// of which read values and half differences; 0: none. A classifier reads their means over the sequence. All of it is
  /// fitted (add_filters), not trained.
  Index filters = 0;
  Index dilations = 0;
  /// Models of this form whose outputs are averaged, each with weights and a state of its own: an ensemble. More than
  /// one are trained one by one and brought together by combine().
  Index members = 1;
};

/// What a model takes in the memory of a device, in bytes: as planned, which is what is allocated.
struct ModelMemory {
  std::size_t weights = 0;  ///< Parameters, in float
  std::size_t state = 0;    ///< Of all rows
  std::size_t forward = 0;  ///< Of a forward pass: the workspace of its program, without weights, inputs and outputs
  std::size_t forward_peak = 0;   ///< The most of it that is in use at one moment
  std::size_t training = 0;       ///< Of a training step: the workspace of its program
  std::size_t training_peak = 0;  ///< The most of it that is in use at one moment
  std::size_t optimizer = 0;      ///< Gradients and the moments of AdamW, which training holds besides
};

/// The state of every row of a model between two calls: allocated by Model::state(), zero means "start".
struct ModelState {
  Index rows = 0;
  std::vector<float> values;  ///< [rows-major blocks as the model lays them out]
};

struct History;

/// A model with its weights and the description of its data. Cheap to move; not safe for concurrent writers.
class Model {
 public:
  /// Fresh weights. Throws Error(invalid_argument) naming the field that is impossible.
  Model(const ModelSpec& spec, const DataDescription& data, std::uint64_t seed = 0);
  /// Reads a .safetensors model or a checkpoint. Throws Error(io_failure | bad_input | incompatible).
  static Model load(const std::string& path);
  /// The same, and where the model comes from, if the file says so (penstock/model_file.h).
  static Model load(const std::string& path, std::optional<History>& history);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelSpec& spec() const;
  const DataDescription& data() const;
  Index parameter_count() const;

  /// Writes a .safetensors file with the architecture in its metadata: to a temporary file, synced, then renamed.
  void save(const std::string& path) const;

  ModelState state(Index rows) const;

  /// What calls of that shape would take on that device. Plans and prepares them, as a call would, but runs nothing.
  /// Throws Error as the calls would: invalid_argument, unsupported without the device.
  ModelMemory memory(Index rows, Index steps, const Execution& execution = {}) const;

  /// outputs [B, T, O] for tokens [B, T] (token models) or features [B, T, I]; the state is carried in and out.
  void forward(Index rows, Index steps, std::span<const std::int32_t> tokens, std::span<float> outputs,
               ModelState& state, const Execution& execution = {}) const;
  void forward(Index rows, Index steps, std::span<const float> features, std::span<float> outputs, ModelState& state,
               const Execution& execution = {}) const;

  /// One model whose outputs are the mean of those of several, which are equal but for their weights. Their linear
  /// forecast is that of the first. Throws Error(invalid_argument | incompatible).
  static Model combine(std::span<const Model> members);
  /// Throws Error(invalid_argument) unless so many models of this form can be combined.
  void check_members(Index count) const;

  struct Impl;
  /// Throws Error(invalid_argument) after the model was moved from, as do all calls.
  Impl& impl() { return impl_ ? *impl_ : refuse_moved_from(); }
  const Impl& impl() const { return impl_ ? *impl_ : refuse_moved_from(); }

 private:
  [[noreturn]] static Impl& refuse_moved_from();

  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
