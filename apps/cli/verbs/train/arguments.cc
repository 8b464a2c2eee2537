#include "verbs/train/arguments.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "penstock/recurrent.h"
#include "penstock/train/fine_tune.h"

namespace penstock::cli {

namespace {

void add_model_options(Options& options, ModelOptions& model) {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  options.group("Model");
  options.add("--cell", model.cell, "NAME",
              fmt::format("{} [mingru; gru for labelled sequences]", fmt::join(names, ", ")));
  options.add(
      "--width", model.width, "N",
      "Size of the model: values between its layers [128 for a text, by a GPU 256 from 1 MB on and 512 from 16 MB on, "
      "48 for a series with mingru or minlstm, 64 otherwise]");
  options.add(
      "--blocks", model.blocks, "N",
      "Layers: each a norm, a recurrent layer and what goes past it [3 for a text, by a GPU 4 and 6 from those sizes "
      "on, 4 for a series with mingru or minlstm, 2 otherwise]");
  options.add("--norms", model.norms, "WHERE",
              "all: before each layer and the head; between: between layers alone, which keeps the size of numbers "
              "[between for a series without a linear forecast]");
  options.add("--hidden-size", model.hidden_size, "N", "Size of the recurrent layers [the width]");
  options.add("--heads", model.heads, "N", "Parts of the recurrent matrix, for cells that have one [1]");
  options.add("--conv", model.convolution, "N",
              "Taps of a causal convolution before each recurrent layer [4 for a text, 0 otherwise]");
  options.add("--ffn", model.feed_forward, "X",
              "Gated feed-forward of X times the width after it [2 for a text, 0 otherwise]");
  options.add("--dropout", model.dropout, "P",
              "On the output of every sub-layer, in training only [0.2; 0 for a text from 1 MB on, which a GPU learns "
              "with 0.2, and with 0.1 from 16 MB on; 0 for a sound or a task]");
  options.flag("--no-changes", model.no_changes,
               "A series: read and forecast the values themselves, not their changes from one row to the next");
  options.flag("--no-linear", model.no_linear, "A series: no linear forecast beside the recurrent layers");
  options.flag("--no-filters", model.no_filters,
               "Labelled sequences: no convolution filters beside the recurrent layers");
}

void add_training_options(Options& options, TrainArguments& arguments) {
  TrainOptions& train = arguments.train;
  options.group("How long (the first limit that is reached)");
  options.add("--steps", arguments.steps, "N",
              "Optimiser steps [2000 for a task; of a series or labelled sequences as many as their size asks for]");
  options.add("--seconds", arguments.seconds, "S", "Time [60 for a text]");
  options.add("--epochs", arguments.epochs, "E", "Passes over the data");
  options.add("--patience", arguments.patience, "N",
              "End after so many validations by steps that are no better; 0: never [10 where the data have an end]");
  options.flag("--keep-last", arguments.keep_last, "Write the model of the last step, not the one that validated best");
  options.group("Training");
  options.add(
      "--search", arguments.search, "MINUTES",
      "First try cells, widths, dropouts and learning rates that are not given, by the training part alone, and "
      "train the best");
  options.add("--init", arguments.init, "FILE",
              "Go on from the weights of this model; its columns, their scaling and its labels are kept");
  options.add(
      "--batch", arguments.batch, "B",
      "Sequences learnt from at the same time [32; 16 for a text or a series, 64 for a task and by a GPU for a text of "
      "1 MB]");
  options.add(
      "--length", arguments.length, "T",
      "Bytes or rows read at once: how far back learning looks for causes [256; 64 for a series, 512 by a GPU for a "
      "text of 16 MB]");
  options.add("--learning-rate", arguments.learning_rate, "X",
              fmt::format("How far each step changes the weights, at its highest [{}; {} with --init]",
                          TrainOptions().learning_rate, fine_tuning_rate));
  options.add("--weight-decay", train.weight_decay, "X", "How strongly large weights shrink; of matrices only");
  options.add("--warmup", train.warmup, "P", "Part of the run in which the rate rises");
  options.add("--clip", train.clip, "X", "Largest norm of the gradient; 0: any");
  options.choice("--optimizer", train.optimizer, {{"adamw", Optimizer::adamw}, {"sgd", Optimizer::sgd}}, "[adamw]");
  options.choice("--loss", train.loss, {{"cross-entropy", Loss::cross_entropy}, {"mse", Loss::mse}, {"mae", Loss::mae}},
                 "[cross-entropy; mse for a series]");
  options.flag("--no-carry", arguments.no_carry, "Start every window of a text or series from a zero state");
  options.add("--validate-every", arguments.validate_every, "S", "Seconds between validations; 0: none by time [30]");
  options.add("--validate-steps", arguments.validate_steps, "N",
              "Steps between validations; 0: none by steps [a fortieth of the run]");
  options.add("--seed", train.seed, "N", "Random numbers: of the first weights and of the order of the data");
  options.add(
      "--seeds", arguments.seeds, "N",
      "Train so many models, from this seed on, each as long as is said; the file holds them all, and forecasts "
      "and labels are their mean");
  options.add("--threads", train.execution.threads, "N", "0: as many as the machine offers");
  options.device(train.execution, &arguments.automatic, "f32; bf16 for a text on a GPU");
  options.flag("--exact", train.execution.exact, "The same bits for any batch and any cut of a sequence; slower");
}

void add_output_options(Options& options, TrainArguments& arguments) {
  options.group("Files and reports");
  options.add("-o,--output", arguments.output, "FILE", "The trained model");
  options.add("--checkpoint", arguments.train.checkpoint_path, "FILE",
              "Keep what --resume needs here [the output's name + .checkpoint, removed at the end]");
  options.add("--checkpoint-every", arguments.train.checkpoint_every, "S", "Seconds between checkpoints");
  options.flag("--resume", arguments.resume, "Go on from the checkpoint; give the same options as before");
  options.flag("--force", arguments.force, "Replace a model or a checkpoint that is there already");
  options.add("--metrics", arguments.train.metrics_path, "FILE",
              "Write all measurements as JSON lines, for 'penstock report'");
  options.add("--tensorboard", arguments.train.tensorboard_path, "FOLDER", "Write them as events for TensorBoard");
  options.flag("--json", arguments.json, "Print the result as one JSON object");
  options.flag("-q,--quiet", arguments.quiet, "No reports, only warnings and errors");
}

}  // namespace

void add_train_options(Options& options, TrainArguments& arguments) {
  add_training_options(options, arguments);
  add_model_options(options, arguments.model);
  add_data_options(options, arguments.data);
  add_output_options(options, arguments);
}

}  // namespace penstock::cli
