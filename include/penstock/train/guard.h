#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/error.h"
#include "penstock/types.h"

/// The decisions about instability that train() and the PyTorch trainer share: when a run returns to an earlier state,
/// how the learning rate follows, and what a user should try. It holds numbers only; the caller keeps the states.
namespace penstock {

/// Settings of a run that a guard needs.
struct GuardOptions {
  Index rollbacks = 10;  ///< Times that the run may return to a good state; 0: never.
  double learning_rate = 0.0;
  double clip = 0.0;            ///< Limit of the gradient norm; 0: none.
  double untrained_loss = 0.0;  ///< Loss of a model that guesses; 0: unknown.
  bool bounded = false;         ///< Recurrent outputs lie between -1 and 1.
  Message network_remedy;       ///< Change of the network to try: "a cell with gates: ..."; empty: none.
};

/// Result of a step.
struct StepSeen {
  Index step = 0;
  bool finite = true;  ///< False: the step was skipped.
  Index skipped_in_a_row = 0;
  double loss = 0.0, gradient_norm = 0.0;  ///< If finite.
};

/// Losses and norms of the accepted steps of a run.
struct GuardMemory {
  std::vector<double> losses, norms;  ///< Values of the latest accepted steps, oldest first.
  double first_loss = 0.0;            ///< Loss of the first step, with untrained weights.
  double first_norm = 0.0;            ///< The largest gradient norm of the first steps.
  Index accepted = 0;                 ///< Steps so far.
};

/// A state that the caller keeps.
struct GuardPoint {
  Index step = -1;     ///< Steps submitted before it; -1: there is none.
  GuardMemory memory;  ///< Memory of the steps before it.

  explicit operator bool() const { return step >= 0; }
};

/// State of a guard. Part of a checkpoint.
struct GuardState {
  GuardMemory memory;
  Index rollbacks = 0;
  Index last_rollback = 0;   ///< Steps submitted when the run last returned to a good state.
  Index rate_changed = 0;    ///< Steps submitted when `rate_factor` last changed.
  double rate_factor = 1.0;  ///< Multiplies the learning rate.
  GuardPoint good;           ///< Returned to after trouble.
  GuardPoint pending;        ///< Becomes the good state once the next steps confirm it.
};

/// Why a run returns to a good state.
struct Trouble {
  enum class Kind {
    spike,       ///< The loss of one batch is far above all recent ones and above that of an untrained model.
    divergence,  ///< The mean loss of the latest steps is far above that of an untrained model.
    explosion,   ///< Without clipping: the norm of a gradient is far above all recent ones.
    skips,       ///< Several steps in a row were not finite.
  };
  Kind kind = Kind::spike;
  Index step = 0;
  double seen = 0.0, usual = 0.0;  ///< Loss, norm or number of steps; `usual`: what it is compared with.
};

/// Watches the steps of a run. "Submitted" counts all steps that were started, skipped ones too.
class Guard {
 public:
  explicit Guard(GuardOptions options, GuardState state = {});

  /// Returns whether the run returns to good states at all.
  bool active() const { return options_.rollbacks > 0; }

  /// Tells the loss of a model that guesses, where it is known only after the first step.
  void expect(double untrained_loss) { options_.untrained_loss = untrained_loss; }

  /// Takes a step. Returns the trouble, if there is any; the step is then not accepted.
  std::optional<Trouble> note(const StepSeen& seen);
  /// Returns a warning about saturated outputs, or about exploding gradients that clipping hides; each once in a run.
  /// `saturated`: fraction of recurrent outputs with |h| > 0.99.
  Message warning(const StepSeen& seen, double saturated);

  /// Returns whether the caller has to keep a copy of its state after so many submitted steps.
  bool state_due(Index submitted) const;
  /// Tells the guard about that copy. Returns whether it is the good state already, else it is the pending one.
  bool keep(Index submitted);
  /// Returns whether the pending state has just become the good one.
  bool confirm(Index submitted);
  /// Forgets both states, because the weights were replaced.
  void forget_states() { state_.good = state_.pending = {}; }

  /// Counts a rollback to the good state and decides about the learning rate. The pending state is then void.
  void rolled_back(const Trouble& trouble, Index submitted);
  /// Returns whether the run needed more rollbacks than are allowed.
  bool exhausted() const { return state_.rollbacks > options_.rollbacks; }
  /// Raises a lowered learning rate again once it is time to. Returns whether it did.
  bool raise_rate(Index submitted);

  const GuardOptions& options() const { return options_; }
  const GuardState& state() const { return state_; }

  /// Returns one line about a rollback: what was seen, and what was done.
  std::string describe(const Trouble& trouble) const;
  /// Returns one line about the end of a run: what was seen, and the likeliest remedy.
  Message describe_end(const Trouble& trouble) const;
  /// Returns the likeliest remedy of an unstable run, or of gradients that vanish.
  Message remedy(bool vanishing = false) const;

 private:
  std::optional<Trouble> find(const StepSeen& step) const;
  std::string seen(const Trouble& trouble) const;
  void accept(const StepSeen& step);

  GuardOptions options_;
  GuardState state_;
  Index saturated_steps_ = 0, exploding_steps_ = 0;  // in a row
  bool warned_saturated_ = false, warned_exploding_ = false;
};

}  // namespace penstock
