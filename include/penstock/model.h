#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/closed_form_branch.h"
#include "penstock/data_description.h"
#include "penstock/recurrent.h"

/// Sequence models: architecture, weights, files, and forward passes over whole sequences.
namespace penstock {

/// Describes the architecture of a sequence model: embedding or linear input -> N blocks of (norm, recurrent layer,
/// residual) -> norm, linear head. The first and the last norm may be absent (`end_norms`).
struct ModelSpec {
  std::string cell = "mingru";  ///< Name of a cell, as cells() lists them.
  Index width = 256;            ///< Channels between the blocks, at least 1.
  Index blocks = 2;             ///< Number of blocks. 0: filters alone, as `branch`.
  Index hidden_size = 0;        ///< H of each recurrent layer; 0: width. If H differs from width, a projection follows.
  Index heads = 1;              ///< Heads of the recurrent matrix: divides H. 1 for cells without recurrent weights.
  Index convolution = 0;        ///< Taps of a causal depthwise convolution before each recurrent layer; 0: none.
  /// Inner size of a gated feed-forward layer after each recurrent layer, as a multiple of width: 0 to 64; 0: none.
  double feed_forward = 0.0;
  double dropout = 0.0;  ///< Dropout probability on the output of every sub-layer, in training only: [0, 1).
  /// Places norms before the first recurrent layer and before the head too. false: only between recurrent layers. A
  /// norm removes the magnitude of its input row, which carries the information when numbers are read and forecast.
  bool end_norms = true;
  /// Forecasts of columns that are also inputs start from the last value: the layers output the change from the row
  /// that was read, and read the change from the row before. Requires SeriesOptions::from_last.
  bool from_last = false;
  /// Part that is fitted and not trained (penstock/closed_form_branch.h); null: none.
  std::shared_ptr<const ClosedFormBranch> branch = nullptr;
  /// Models of this architecture whose outputs are averaged: an ensemble. Each has its own weights and state. Ensembles
  /// are not trained as one: train the members one by one and call Model::combine().
  Index members = 1;
  /// Names of the layers whose matrices are int8 (penstock/quantize.h): "blocks.0.recurrent". Such models run on CPUs
  /// and cannot be trained; quantize() makes them.
  std::vector<std::string> int8 = {};

  /// Returns whether the layers are trained to correct a branch that was fitted before.
  bool corrects_branch() const { return branch != nullptr && branch->precedes_layers(); }
  /// Returns the fields of the branch; without one, all are 0.
  ClosedFormBranchFields branch_fields() const {
    return branch != nullptr ? branch->fields() : ClosedFormBranchFields();
  }
};

/// Bytes of device memory that a model takes. Planned sizes are exactly the sizes that are allocated.
struct ModelMemory {
  std::size_t weights = 0;        ///< All parameters, in f32 or, of int8 layers, in int8.
  std::size_t state = 0;          ///< State of all rows.
  std::size_t forward = 0;        ///< Workspace of a forward pass, without weights, inputs and outputs.
  std::size_t forward_peak = 0;   ///< Largest part of it that is in use at one moment.
  std::size_t training = 0;       ///< Workspace of a training step of one ensemble member; 0 with int8 layers.
  std::size_t training_peak = 0;  ///< Largest part of it that is in use at one moment.
  std::size_t optimizer = 0;      ///< Gradients and AdamW moments, which training needs in addition.
};

/// State of all rows of a model between two forward calls. Model::state() allocates it with zeros, which mean the start
/// of a sequence.
struct ModelState {
  Index rows = 0;             ///< B
  std::vector<float> values;  ///< One block of rows for each layer, in the model's internal order.
};

struct History;

/// A sequence model with its weights and the description of its data.
///
/// Moving a model is cheap. Any number of threads may read one model, each with its own ModelState. While one thread
/// changes a model, no other may use it. All calls throw Error(invalid_argument) if the model was moved from.
class Model {
 public:
  /// Makes a model with initial weights from `seed`. Throws Error(invalid_argument) that names the impossible field.
  Model(const ModelSpec& spec, const DataDescription& data, std::uint64_t seed = 0);
  /// Reads a .safetensors model or a checkpoint. Throws Error: io_failure if the file cannot be read; bad_input for a
  /// damaged file; incompatible for a sound file with other contents or of a later format version.
  static Model load(const std::string& path);
  /// Reads a model and its training history (penstock/model_file.h). `history` is empty if the file has none.
  static Model load(const std::string& path, std::optional<History>& history);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelSpec& spec() const;
  const DataDescription& data() const;
  /// Returns the model of a series that has a forecast of its own (SeriesDescription::own). `series` is what
  /// DataDescription::of_group() returns for it. Empty: this model forecasts the series.
  std::optional<Model> of_series(const DataDescription& series) const;
  /// Lets forecasts be negative that are otherwise at least 0 (Column::non_negative).
  void allow_negative();
  /// Returns the number of trained and fitted values.
  Index parameter_count() const;

  /// Writes a .safetensors file with architecture and data description in its metadata. Writes a temporary file, syncs
  /// it and renames it, so `path` is replaced whole or not at all. Throws Error(io_failure).
  void save(const std::string& path) const;

  /// Returns the state of `rows` rows at the start of a sequence: zeros.
  ModelState state(Index rows) const;

  /// Returns the memory that calls with B = `rows` and T = `steps` take on a device. Plans and compiles them as a call
  /// would, but runs nothing. Throws Error as the calls would: invalid_argument for impossible sizes; unsupported
  /// without the device.
  ModelMemory memory(Index rows, Index steps, const Execution& execution = {}) const;

  /// Computes outputs [B, T, O] from tokens [B, T] and updates `state`. All arrays are in host memory.
  ///
  /// Throws Error: invalid_argument for a model of features, wrong sizes or tokens beyond the vocabulary; unsupported
  /// without the device or precision; out_of_memory, with the bytes that are needed.
  void forward(Index rows, Index steps, std::span<const std::int32_t> tokens, std::span<float> outputs,
               ModelState& state, const Execution& execution = {}) const;
  /// Computes outputs [B, T, O] from normalised features [B, T, I] and updates `state`.
  void forward(Index rows, Index steps, std::span<const float> features, std::span<float> outputs, ModelState& state,
               const Execution& execution = {}) const;

  /// Returns an ensemble: a model whose outputs are the mean of the outputs of `members`. The members may differ in
  /// their weights alone. The ensemble keeps the linear forecast of the first member. Throws Error: invalid_argument
  /// for no members, ensembles or filters; incompatible for members of different architectures.
  static Model combine(std::span<const Model> members);
  /// Returns a model in which the matrices of `layers` are int8, with one scale for each output, and all else is as it
  /// was. Inputs of these products are rounded to int8 too, with one scale a row and step. Layers that are int8 stay
  /// so. Throws Error(invalid_argument) for a layer that int8_layers() does not name.
  Model with_int8(std::span<const std::string> layers) const;
  /// Throws Error(invalid_argument) if an ensemble of `count` models of this architecture is not possible.
  void check_members(Index count) const;

  /// Internal.
  struct Impl;
  Impl& impl() { return impl_ ? *impl_ : refuse_moved_from(); }
  const Impl& impl() const { return impl_ ? *impl_ : refuse_moved_from(); }

 private:
  [[noreturn]] static Impl& refuse_moved_from();

  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
