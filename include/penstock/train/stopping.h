#pragma once

#include <optional>

#include "penstock/train/train.h"

/// The decisions about validations that train() and the PyTorch trainer share.
namespace penstock {

/// Results of the validations of a run so far. Part of a checkpoint.
struct ValidationHistory {
  bool known = false;          ///< There has been a validation whose loss was finite.
  double best_loss = 0.0;      ///< The lowest loss of any of them ...
  Index best_step = 0;         ///< ... and the step after which it was measured.
  Index without_gain = 0;      ///< Validations by steps since then.
  Index cooldown_begin = 0;    ///< The step at which the run was brought to its end; 0: it was not.
  double cooldown_from = 0.0;  ///< How much of the run's schedule was over then.
};

/// The factor of the learning rate with Schedule::plateau, by PyTorch's ReduceLROnPlateau with its usual threshold:
/// halved after more than 3 validations by steps in a row without a lower loss. Part of a checkpoint.
struct Plateau {
  std::optional<double> best_loss;  ///< The lowest finite loss of a validation.
  Index without_gain = 0;
  double factor = 1.0;

  bool operator==(const Plateau&) const = default;

  /// Takes a validation. Returns whether the factor is lower now.
  bool note(double loss);
};

/// Decides which validation is the best and when a run that has stopped to gain ends: it goes back to the best weights,
/// and from there the learning rate falls to its end within a few steps, rather than stopping at a high rate.
class Stopping {
 public:
  Stopping(const TrainOptions& options, ValidationHistory history)
      : validate_steps_(options.validate_steps),
        patience_(options.patience),
        warmup_(options.warmup),
        history_(history) {}

  /// Returns whether a validation is due after a step.
  bool due(Index step) const { return validate_steps_ > 0 && step % validate_steps_ == 0; }

  /// Takes a validation after `step`; true if no earlier one was as good.
  bool note(double loss, Index step, bool by_steps);
  /// Returns whether to begin the cooldown now.
  bool exhausted() const;
  void begin_cooldown(Index step, double fraction);
  bool cooling() const { return history_.cooldown_begin > 0; }
  /// How much of the schedule is over at a step of the cooldown, 1 at its end; 0 before.
  double fraction(Index step) const;

  const ValidationHistory& history() const { return history_; }

 private:
  Index cooldown_steps() const;

  Index validate_steps_, patience_;
  double warmup_;
  ValidationHistory history_;
};

}  // namespace penstock
