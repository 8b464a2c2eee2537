#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>

#include "penstock/device.h"
#include "penstock/learning_rules.h"
#include "penstock/types.h"

/// The options of training, and one declaration of each: the program's options, the arguments of Python's train(), the
/// checks and the identity of checkpoints come from it.
namespace penstock {

/// A value of an option that has a list of them.
struct Choice {
  const char* name;
  const char* title = name;                  ///< In sentences.
  std::array<const char*, 3> settings = {};  ///< Settings that this value reads and some others do not.

  constexpr operator const char*() const { return name; }  // NOLINT(google-explicit-constructor): as a list of names
};

#define PENSTOCK_VALUE(value, ...) value,
#define PENSTOCK_CHOICE(value, rule, ...) Choice{#value __VA_OPT__(, ) __VA_ARGS__},
#define PENSTOCK_NAME(value, ...) Choice{#value},

/// Training loss. automatic: cross_entropy for language and classify, mse for forecast.
enum class Loss {
  automatic,
  cross_entropy,
  PENSTOCK_REGRESSION_LOSSES(PENSTOCK_VALUE) PENSTOCK_SOUND_LOSSES(PENSTOCK_VALUE)
};
/// Rule by which a step updates the weights.
enum class Optimizer { PENSTOCK_OPTIMIZERS(PENSTOCK_VALUE) };
/// Course of the learning rate over a run.
enum class Schedule { PENSTOCK_SCHEDULES(PENSTOCK_VALUE) };

/// The names of each list in their order.
constexpr std::array loss_names = {Choice{"auto"}, Choice{"cross_entropy"},
                                   PENSTOCK_REGRESSION_LOSSES(PENSTOCK_CHOICE) PENSTOCK_SOUND_LOSSES(PENSTOCK_NAME)};
constexpr std::array optimizer_names = {PENSTOCK_OPTIMIZERS(PENSTOCK_CHOICE)};
constexpr std::array schedule_names = {PENSTOCK_SCHEDULES(PENSTOCK_CHOICE)};

#undef PENSTOCK_VALUE
#undef PENSTOCK_CHOICE
#undef PENSTOCK_NAME

/// Returns the names of a list by one of its values.
constexpr const auto& names_of(Loss) { return loss_names; }
constexpr const auto& names_of(Optimizer) { return optimizer_names; }
constexpr const auto& names_of(Schedule) { return schedule_names; }
/// Returns the entry of a value.
constexpr const Choice& choice_of(auto value) { return names_of(value)[static_cast<std::size_t>(value)]; }

/// Options of a training run.
struct TrainOptions {
  // Length of the run: the first limit that is reached ends it.
  Index max_steps = 0;       ///< Optimiser steps, including skipped ones; 0: no limit.
  double max_seconds = 0.0;  ///< Wall time of training, without the final validation; 0: no limit.
  double max_epochs = 0.0;   ///< Passes over the data; 0: no limit. Without any limit the run has 10 epochs.

  Index batch = 32;         ///< Rows B of a batch.
  Index length = 256;       ///< Steps T of a window of truncated back-propagation.
  bool carry_state = true;  ///< Passes the state to the window that continues a sequence; gradients do not flow back.

  Loss loss = Loss::automatic;
  Optimizer optimizer = Optimizer::adamw;
  Schedule schedule = Schedule::cosine;
  double learning_rate = 3e-3;                       ///< Peak learning rate, above 0.
  double weight_decay = 0.01;                        ///< Applies to matrices only.
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;  ///< AdamW, Lion, RMSprop.
  double momentum = 0.9;                             ///< SGD.
  double warmup = 0.05;                              ///< Fraction of the run in which the learning rate rises.
  double final_rate = 0.05;                          ///< Fraction of `learning_rate` at which the cosine schedule ends.
  double clip = 1.0;                                 ///< Limit of the global gradient norm; 0: no clipping.
  /// Weight of the past in a moving average of the weights, which becomes the model; 0: none. In step n it is at most
  /// (1 + n) / (10 + n).
  double average = 0.0;
  Index give_up_after = 10;  ///< Consecutive skipped (non-finite) steps after which train() throws Error(numerical).
  /// Times that an unstable run may return to its last good state and pass over the batches since. After some returns
  /// the learning rate is lower for a while. One more ends the run (TrainResult::gave_up). 0: never.
  Index rollbacks = 10;

  double validate_every = 0.0;  ///< Seconds between validations; 0: at the end only.
  Index validate_steps = 0;     ///< Steps between further validations; 0: none.
  /// Early stopping: ends the run after this many validations by `validate_steps` without a lower loss. The run returns
  /// to the best weights and decays the learning rate in a few last steps. 0: off.
  Index patience = 0;
  bool keep_best = false;  ///< The model ends with the weights of the best validation; the checkpoint keeps the last.
  Index validation_batches = 32;  ///< Most batches of a validation during the run; 0: all. The last one uses all.
  /// Seconds between progress reports; 0: after every step. Skipped steps are always reported. With metrics, every
  /// hundredth of the run is reported too.
  double log_every = 0.5;
  std::string metrics_path;        ///< File for metrics, as JSON lines; empty: none.
  std::string metrics_note;        ///< JSON object with further fields for the first record of the metrics.
  std::string tensorboard_path;    ///< Folder for TensorBoard events; empty: none.
  std::string checkpoint_path;     ///< File for checkpoints; empty: none.
  double checkpoint_every = 30.0;  ///< Seconds between checkpoints; 0: after every step. The end always writes one.
  std::uint64_t seed = 0;          ///< Decides the dropout masks.
  Execution execution;
};

/// Allowed values of a number, which has to be finite.
struct SettingRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  ///< `least` itself is not allowed.
  bool below_most = false;   ///< `most` itself is not allowed.

  bool contains(double value) const;
  /// Returns the range in words: "greater than 0", "at least 0 and below 1".
  std::string text() const;
};

/// Whether a run resumes from a checkpoint only with the same value: never, always, if either value is not the default,
/// where validations end the run or lower its rate, with an optimiser that reads it.
enum class SettingIdentity { free, fixed, if_changed, with_validations, with_optimizer };

/// The heading under which `penstock train --help` lists a setting. hidden: it is no option of the program.
enum class SettingGroup { hidden, duration, training, files };

/// The declaration of an option of training. Its default is that of the member.
template <class T>
struct Setting {
  const char* name;  ///< Name in C++, in messages and in files.
  T TrainOptions::*member;
  SettingRange range;
  SettingIdentity identity;
  SettingGroup group = SettingGroup::hidden;
  const char* placeholder = "";  ///< The value in the help: a letter, or a unit such as "S" for seconds.
  const char* help = "";         ///< One line. The text in the docstring of Python's train() begins with it.
  const char* usual = "";        ///< The default in words, if it depends on the data.
  const char* argument = name;   ///< Name in Python; with hyphens, that of the program's option.
  bool of_any_model = false;     ///< It also applies where filters or a linear forecast answer alone.

  /// Returns whether who gives this option wants layers to be trained.
  constexpr bool of_layers() const { return group != SettingGroup::hidden && !of_any_model; }
};

namespace settings {

using enum SettingIdentity;
using enum SettingGroup;
using O = TrainOptions;

constexpr SettingRange any = {}, positive = {.least = 0.0, .above_least = true}, not_negative = {.least = 0.0};
constexpr SettingRange at_least_one = {.least = 1.0}, fraction = {.least = 0.0, .most = 1.0};
constexpr SettingRange below_one = {.least = 0.0, .most = 1.0, .below_most = true};

/// The options of training but the execution, in the order of the help.
// clang-format off
constexpr std::tuple all = {
    Setting<Index>{"max_steps", &O::max_steps, not_negative, free, duration, "N",
        "Optimiser steps; 0: no such limit",
        "2000 for a task; for a series or labelled sequences by their size", "steps"},
    Setting<double>{"max_seconds", &O::max_seconds, not_negative, free, duration, "S",
        "Seconds; 0: no such limit", "60 for a text or sound", "seconds"},
    Setting<double>{"max_epochs", &O::max_epochs, not_negative, free, duration, "E",
        "Passes over the data; 0: no such limit", "", "epochs"},
    Setting<Index>{"patience", &O::patience, not_negative, with_validations, duration, "N",
        "Early stopping: end after N validations by steps in a row without improvement; 0: never",
        "10; 0 for sound, tasks and fewer than 30 held-out sequences"},
    Setting<Index>{"batch", &O::batch, at_least_one, fixed, training, "B",
        "Batch size: sequences per optimiser step",
        "32; 16 for a text or a series; 64 for a task, and on a GPU for a text from 1 MB"},
    Setting<Index>{"length", &O::length, at_least_one, fixed, training, "T",
        "Bytes or rows per sequence of a batch: how far back gradients reach",
        "256; 64 for a series; 1024 for sound; 512 on a GPU for a text from 16 MB"},
    Setting<double>{"learning_rate", &O::learning_rate, positive, fixed, training, "X",
        "Highest learning rate of the schedule", "0.003; 0.001 for a model that is trained further"},
    Setting<double>{"weight_decay", &O::weight_decay, not_negative, fixed, training, "X",
        "Weight decay of matrices"},
    Setting<double>{"beta1", &O::beta1, below_one, with_optimizer},
    Setting<double>{"beta2", &O::beta2, below_one, with_optimizer},
    Setting<double>{"epsilon", &O::epsilon, positive, with_optimizer},
    Setting<double>{"momentum", &O::momentum, below_one, with_optimizer},
    Setting<double>{"warmup", &O::warmup, fraction, fixed, training, "P",
        "Fraction of the run in which the learning rate rises"},
    Setting<double>{"final_rate", &O::final_rate, fraction, fixed},
    Setting<double>{"clip", &O::clip, not_negative, fixed, training, "X",
        "Largest norm of the gradient; 0: no clipping"},
    Setting<double>{"average", &O::average, below_one, if_changed, training, "X",
        "Weight of the past in a moving average of the weights, which becomes the model; 0: none"},
    Setting<Index>{"give_up_after", &O::give_up_after, at_least_one, free},
    Setting<Index>{"rollbacks", &O::rollbacks, not_negative, if_changed, training, "N",
        "Times that an unstable run may return to its last good state before it ends; 0: never"},
    Setting<bool>{"carry_state", &O::carry_state, any, fixed},
    Setting<double>{"validate_every", &O::validate_every, not_negative, free, training, "S",
        "Seconds between validations; 0: none by time", "30"},
    Setting<Index>{"validate_steps", &O::validate_steps, not_negative, with_validations, training, "N",
        "Steps between validations; 0: none by steps", "a fortieth of the run; half a pass for a text"},
    Setting<bool>{"keep_best", &O::keep_best, any, free},
    Setting<Index>{"validation_batches", &O::validation_batches, not_negative, free},
    Setting<double>{"log_every", &O::log_every, not_negative, free},
    Setting<std::uint64_t>{"seed", &O::seed, any, fixed, training, "N",
        "Seed of the random choices of a run", "", "seed", true},
    Setting<Optimizer>{"optimizer", &O::optimizer, any, fixed, training, "", "The optimiser"},
    Setting<Schedule>{"schedule", &O::schedule, any, if_changed, training, "", "The schedule of the learning rate"},
    Setting<Loss>{"loss", &O::loss, any, fixed, training, "",
        "The loss; the last four are for sound", "cross-entropy; mse for a series", "loss", true},
    Setting<std::string>{"checkpoint_path", &O::checkpoint_path, any, free, files, "FILE",
        "File for checkpoints, from which the run can be resumed",
        "OUTPUT.checkpoint, removed at the end", "checkpoint", true},
    Setting<double>{"checkpoint_every", &O::checkpoint_every, not_negative, free, files, "S",
        "Seconds between checkpoints", "", "checkpoint_every", true},
    Setting<std::string>{"metrics_path", &O::metrics_path, any, free, files, "FILE",
        "File for all measurements as JSON lines, for 'penstock report'", "", "metrics", true},
    Setting<std::string>{"tensorboard_path", &O::tensorboard_path, any, free, files, "FOLDER",
        "Folder for all measurements as TensorBoard events", "", "tensorboard"},
};
// clang-format on

}  // namespace settings

/// Calls visit(setting) for each declaration.
void for_each_setting(const auto& visit) {
  std::apply([&](const auto&... settings) { (visit(settings), ...); }, settings::all);
}

/// Returns the value of a setting; of one with a list of values, the name.
template <class T>
auto value_of(const Setting<T>& setting, const TrainOptions& options) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(choice_of(options.*setting.member).name);
  } else {
    return options.*setting.member;
  }
}

/// Returns the name in Python of a setting of training; any other name unchanged.
inline std::string argument_of(const std::string& name) {
  std::string found = name;
  for_each_setting([&](const auto& setting) {
    if (name == setting.name) found = setting.argument;
  });
  return found;
}

}  // namespace penstock
