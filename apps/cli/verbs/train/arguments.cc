#include "verbs/train/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "penstock/cell.h"
#include "penstock/recurrent.h"
#include "penstock/train/fine_tune.h"
#include "terminal/input.h"

namespace penstock::cli {

namespace {

// clang-format off
constexpr const char* layer_options[] = {
    "--cell", "--width", "--blocks", "--hidden-size", "--heads", "--conv", "--ffn", "--norms", "--dropout",
    "--steps", "--seconds", "--epochs", "--patience", "--keep-last", "--batch", "--length", "--learning-rate",
    "--weight-decay", "--warmup", "--clip", "--rollbacks", "--initial-weights", "--chrono", "--optimizer",
    "--validate-every", "--validate-steps", "--seeds", "--tensorboard"};
// clang-format on

void add_model_options(Options& options, ModelOptions& model) {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  options.group("Model");
  options.add("--cell", model.cell, "NAME",
              fmt::format("Recurrent cell: {}; or FILE.json, a cell of your own [mingru; gru for labelled sequences]",
                          fmt::join(names, ", ")));
  options.add("--width", model.width, "N",
              "Width of the model: number of values between layers [128 for a text, on a GPU 256 from 1 MB and 512 "
              "from 16 MB; 48 for a series with mingru or minlstm; 16 for sound; 64 otherwise]");
  options.add(
      "--blocks", model.blocks, "N",
      "Number of blocks: a norm and a recurrent layer with a residual connection, and --conv and --ffn if given [3 for "
      "a text, on a GPU 4 from 1 MB and 6 from 16 MB; 4 for a series with mingru or minlstm; 2 otherwise]");
  options.add("--norms", model.norms, "WHERE",
              "all: a norm before each layer and the head; between: only between layers, so the input's magnitude is "
              "kept [all; between for a series without a linear forecast]");
  options.add("--hidden-size", model.hidden_size, "N", "Hidden size of the recurrent layers [the width]");
  options.add("--heads", model.heads, "N", "Heads of the recurrent matrix, for cells that have one [1]");
  options.add(
      "--conv", model.convolution, "N",
      "Taps of a causal convolution before each recurrent layer; 0: none [4 for texts, labelled or not; 0 otherwise]");
  options.add(
      "--ffn", model.feed_forward, "X",
      "Gated feed-forward of X times the width after each recurrent layer; 0: none [2 for a text, 0 otherwise]");
  options.add("--dropout", model.dropout, "P",
              "Dropout probability on the output of every sub-layer, in training only [0.2; 0 for a text from 1 MB on "
              "a CPU; 0.1 for a text from 16 MB on a GPU; 0 for sound and tasks]");
  options.add("--initial-weights", model.initial_weights, "NAME",
              "Initial weights of the recurrent layers: standard, uniform, orthogonal (recurrent matrices) or identity "
              "(for elman-relu) [standard]");
  options.add("--chrono", model.chrono, "T",
              "Draw biases of gates so that units remember over 1 to T steps at first; 0: standard biases");
  options.flag("--no-changes", model.no_changes,
               "A series: read and forecast values instead of their changes from row to row");
  options.flag("--no-linear", model.no_linear, "A series: use no linear forecast next to the recurrent layers");
  options.flag("--no-filters", model.no_filters,
               "Labelled sequences: use no convolution filters next to the recurrent layers");
}

void add_training_options(Options& options, TrainArguments& arguments) {
  FitRequest& fit = arguments.fit;
  TrainOptions& train = fit.train;
  options.group("How long (the first limit that is reached)");
  options.add("--steps", fit.max_steps, "N",
              "Optimiser steps [2000 for a task; for a series or labelled sequences by their size]");
  options.add("--seconds", fit.max_seconds, "S", "Seconds [60 for a text or sound]");
  options.add("--epochs", fit.max_epochs, "E", "Passes over the data");
  options.add("--patience", fit.patience, "N",
              "Early stopping: end after N validations in a row without improvement, not counting those of "
              "--validate-every; 0: never [10; 0 for sound, tasks and fewer than 30 held-out sequences]");
  options.flag("--keep-last", arguments.keep_last,
               "Keep the model of the last step instead of the best one on the hold-out set");
  options.group("Training");
  options.add("--init", arguments.init, "FILE",
              "Start from the weights of this model, with its columns, scaling and labels");
  options.add("--batch", fit.batch, "B",
              "Batch size: sequences per optimiser step [32; 16 for a text or a series; 64 for a task, and on a GPU "
              "for a text from 1 MB]");
  options.add("--length", fit.length, "T",
              "Bytes or rows per sequence of a batch: how far back gradients reach [256; 64 for a series; 1024 for "
              "sound; 512 on a GPU for a text from 16 MB]");
  options.add("--learning-rate", fit.learning_rate, "X",
              fmt::format("Highest learning rate of the schedule [{}; {} with --init]", TrainOptions().learning_rate,
                          fine_tuning_rate));
  options.add("--weight-decay", train.weight_decay, "X", "Weight decay of matrices");
  options.add("--warmup", train.warmup, "P", "Fraction of the run in which the learning rate rises");
  options.add("--clip", train.clip, "X", "Clip the gradient to this norm; 0: no clipping");
  options.add("--rollbacks", train.rollbacks, "N",
              "Return an unstable run to its last good state at most N times, then end it; 0: never return");
  options.choice("--optimizer", train.optimizer, {{"adamw", Optimizer::adamw}, {"sgd", Optimizer::sgd}},
                 "The optimiser [adamw]");
  options.choice("--loss", train.loss, {{"cross-entropy", Loss::cross_entropy}, {"mse", Loss::mse}, {"mae", Loss::mae}},
                 "The loss [cross-entropy; mse for a series]");
  options.flag("--no-carry", arguments.no_carry,
               "Start every sequence of a text or series from a zero state instead of carrying it");
  options.add("--validate-every", fit.validate_every, "S", "Seconds between validations; 0: none by time [30]");
  options.add("--validate-steps", fit.validate_steps, "N",
              "Steps between validations; 0: none by steps [a fortieth of the run; half a pass for a text]");
  options.add("--seed", train.seed, "N", "Seed of the initial weights and the order of the data");
  options.add("--seeds", fit.seeds, "N",
              "Train an ensemble of N models with the seeds --seed, --seed + 1, ...; the file holds all of them, and "
              "answers are their mean");
  options.add("--threads", train.execution.threads, "N", "CPU threads; 0: all");
  options.device(train.execution, &fit.automatic, "f32; bf16 for a text on a GPU");
  options.flag("--exact", train.execution.exact,
               "Compute equal bits for any batch and any split of a sequence; slower");
}

void add_output_options(Options& options, TrainArguments& arguments) {
  options.group("Files and reports");
  options.add("-o,--output", arguments.output, "FILE", "File of the trained model");
  options.add("--checkpoint", arguments.fit.train.checkpoint_path, "FILE",
              "File for --resume [OUTPUT.checkpoint, removed at the end]");
  options.add("--checkpoint-every", arguments.fit.train.checkpoint_every, "S", "Seconds between checkpoints");
  options.flag("--resume", arguments.fit.resume, "Continue from the checkpoint; give the options of the first run");
  options.flag("--force", arguments.force, "Overwrite an existing model or checkpoint");
  options.add("--metrics", arguments.fit.train.metrics_path, "FILE",
              "Write all measurements as JSON lines, for 'penstock report'");
  options.add("--tensorboard", arguments.fit.train.tensorboard_path, "FOLDER",
              "Write all measurements as TensorBoard events");
  options.flag("--json", arguments.json, "Print the result as one JSON object");
  options.flag("-q,--quiet", arguments.quiet, "Print only warnings and errors");
}

}  // namespace

void read_custom_cell(ModelOptions& model) {
  if (!model.cell || !model.cell->ends_with(".json")) return;
  const std::string& path = model.cell_file = *model.cell;
  constexpr std::size_t longest = 1 << 24;
  model.cell = define_cell_json(read_option_file("--cell", path, longest), printable(path)).name;
}

void TrainArguments::complete_request(const CLI::App& app) {
  fit.train.carry_state = !no_carry;
  if (keep_last) fit.keep_best = false;
  if (app.count("--precision") > 0) fit.precision = fit.train.execution.precision;
  fit.filters = !model.no_filters;
  fit.layers = !given_for_layers(app).empty();
  fit.continues = !init.empty();
  fit.initial = model.initial();
  if (fit.train.checkpoint_path.empty()) fit.train.checkpoint_path = output + ".checkpoint";
}

std::vector<std::string> given_for_layers(const CLI::App& app) {
  std::vector<std::string> given;
  std::ranges::copy_if(layer_options, std::back_inserter(given), [&](const char* name) { return app.count(name) > 0; });
  return given;
}

void add_train_options(Options& options, TrainArguments& arguments) {
  add_training_options(options, arguments);
  add_model_options(options, arguments.model);
  add_data_options(options, arguments.data);
  add_output_options(options, arguments);
}

}  // namespace penstock::cli
