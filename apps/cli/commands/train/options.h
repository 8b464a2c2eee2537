#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "options/data_options.h"
#include "options/options.h"
#include "penstock/initial_weights.h"
#include "penstock/train.h"
#include "terminal/units.h"

/// The options of 'penstock train'.
namespace penstock::cli {

/// The architecture as far as it was given; the rest comes from a checkpoint, or from the kind of data.
struct ModelOptions {
  std::optional<std::string> cell, norms;
  std::string cell_file;  // that the cell was read from
  std::optional<Index> width, blocks, hidden_size, heads, convolution;
  std::optional<double> feed_forward, dropout;
  std::optional<std::string> initial_weights;
  double chrono = 0.0;
  bool no_changes = false, no_linear = false, no_filters = false;

  Initialisation initial() const {
    return {.weights = initial_weights ? parse_initial_weights(*initial_weights) : InitialWeights::standard,
            .chrono = chrono};
  }

  void apply(ModelSpec& spec) const {
    spec.cell = cell.value_or(spec.cell);
    spec.width = width.value_or(spec.width);
    spec.blocks = blocks.value_or(spec.blocks);
    spec.hidden_size = hidden_size.value_or(spec.hidden_size);
    spec.heads = heads.value_or(spec.heads);
    spec.convolution = convolution.value_or(spec.convolution);
    spec.feed_forward = feed_forward.value_or(spec.feed_forward);
    spec.dropout = dropout.value_or(spec.dropout);
    if (norms && *norms != "all" && *norms != "between") fail_choice("--norms", *norms, {"all", "between"});
    if (norms) spec.end_norms = *norms == "all";
    if (no_changes) {
      spec.from_last = false;
      spec.branch = nullptr;
    }
  }
};

/// Makes the cell of a JSON file that --cell names known, and puts its name there. Throws Error(io_failure) for a file
/// that cannot be read, Error(bad_input) for one that is no cell.
void read_custom_cell(ModelOptions& model);

struct TrainArguments {
  DataOptions data;
  ModelOptions model;
  FitRequest fit;
  std::string init;  // a model whose weights training goes on from
  std::string output = "model.safetensors";
  bool no_carry = false, keep_last = false, force = false, json = false, quiet = false;

  /// Writes to the request what options say in other words. `app`: the command.
  void complete_request(const CLI::App& app);
};

/// Returns the options of `app` that were given and say how layers are and how they are trained.
std::vector<std::string> given_for_layers(const CLI::App& app);

/// Declares them all, in groups.
void add_train_options(Options& options, TrainArguments& arguments);

}  // namespace penstock::cli
