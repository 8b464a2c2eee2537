#include "penstock/train/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/plural.h"

namespace penstock {

namespace {

// Recent steps that a loss or a norm is compared with.
constexpr std::size_t window = 100;
// Steps whose mean loss shows divergence. With fewer steps before it, only a larger spike counts.
constexpr std::size_t enough = 20;
// A spike is this many times the largest recent loss. Series with rare outliers stay below.
constexpr double spike = 10.0, early_spike = 50.0;
// An untrained model may have this many times the loss of guessing on a hard batch.
constexpr double worse_than_untrained = 3.0;
// A gradient that explodes is this many times the largest recent norm, and this many times those of the first steps.
constexpr double exploding = 100.0, exploding_from_start = 10.0;
// Above this multiple of its limit, clipping leaves little more than the direction of the last steps of a sequence.
constexpr double hopelessly_clipped = 100.0;
constexpr double saturated_share = 0.9;
// Steps in a row before a warning.
constexpr Index lasting = 20;
// Steps in a row that are not finite before the weights rather than the data are suspected.
constexpr Index many_skips = 3;
// Steps between two states, and those after which a state counts as good. Copying a state takes about as long as an
// optimiser's update of all weights, so that 100 steps keep its cost below 1 % for the smallest batches.
constexpr Index state_steps = 100, confirming_steps = 10;
// A second rollback within so many steps lowers the learning rate.
constexpr Index close_rollbacks = 200;
constexpr double lowered = 0.25, raised = 2.0;
constexpr Index raise_after = 100;  // steps, times the number of rollbacks
constexpr double usual_rate = 0.003, high_rate = 0.01;

void push(std::vector<double>& values, double value) {
  if (values.size() >= window) values.erase(values.begin());
  values.push_back(value);
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end());
}

double latest_mean(const std::vector<double>& losses, double last) {
  const auto begin = losses.end() - static_cast<std::ptrdiff_t>(std::min(losses.size(), enough - 1));
  const double sum = std::accumulate(begin, losses.end(), last);
  return sum / static_cast<double>(losses.end() - begin + 1);
}

}  // namespace

Guard::Guard(GuardOptions options, GuardState state) : options_(std::move(options)), state_(std::move(state)) {}

std::optional<Trouble> Guard::find(const StepSeen& step) const {
  const GuardMemory& memory = state_.memory;
  if (memory.losses.empty()) return std::nullopt;
  const double untrained = std::max(memory.first_loss, options_.untrained_loss);
  const bool settled = memory.losses.size() >= enough;
  const double usual = largest(memory.losses);
  if (step.loss > worse_than_untrained * untrained && step.loss > (settled ? spike : early_spike) * usual) {
    return Trouble{Trouble::Kind::spike, step.step, step.loss, usual};
  }
  const double mean = latest_mean(memory.losses, step.loss);
  if (settled && mean > worse_than_untrained * untrained) {
    return Trouble{Trouble::Kind::divergence, step.step, mean, untrained};
  }
  const double usual_norm = largest(memory.norms);
  if (options_.clip == 0.0 && settled && step.gradient_norm > exploding * usual_norm &&
      step.gradient_norm > exploding_from_start * memory.first_norm) {
    return Trouble{Trouble::Kind::explosion, step.step, step.gradient_norm, usual_norm};
  }
  return std::nullopt;
}

std::optional<Trouble> Guard::note(const StepSeen& step) {
  if (!active()) return std::nullopt;
  if (!step.finite) {
    if (step.skipped_in_a_row % many_skips != 0) return std::nullopt;
    return Trouble{Trouble::Kind::skips, step.step, static_cast<double>(step.skipped_in_a_row), 0.0};
  }
  std::optional<Trouble> trouble = find(step);
  if (!trouble) accept(step);
  return trouble;
}

void Guard::accept(const StepSeen& step) {
  GuardMemory& memory = state_.memory;
  if (memory.accepted == 0) memory.first_loss = step.loss;
  if (memory.accepted < static_cast<Index>(enough)) memory.first_norm = std::max(memory.first_norm, step.gradient_norm);
  push(memory.losses, step.loss);
  push(memory.norms, step.gradient_norm);
  ++memory.accepted;
}

Message Guard::warning(const StepSeen& step, double saturated) {
  const bool explodes = options_.clip > 0.0 && step.gradient_norm > hopelessly_clipped * options_.clip;
  exploding_steps_ = step.finite && explodes ? exploding_steps_ + 1 : 0;
  saturated_steps_ = options_.bounded && saturated > saturated_share ? saturated_steps_ + 1 : 0;
  if (exploding_steps_ >= lasting && !std::exchange(warned_exploding_, true)) {
    return fmt::format("step {}: the gradient explodes: its norm is {:.3g} before clipping to {:g}; try ", step.step,
                       step.gradient_norm, options_.clip) +
           remedy();
  }
  if (saturated_steps_ >= lasting && !std::exchange(warned_saturated_, true)) {
    return fmt::format(
               "step {}: {:.0f} % of the recurrent outputs are saturated (above 0.99), so their gradients vanish; try ",
               step.step, 100.0 * saturated) +
           remedy(true);
  }
  return {};
}

bool Guard::state_due(Index submitted) const { return active() && (!state_.good || submitted % state_steps == 0); }

bool Guard::keep(Index submitted) {
  const bool first = !state_.good;
  (first ? state_.good : state_.pending) = {submitted, state_.memory};
  return first;
}

bool Guard::confirm(Index submitted) {
  if (!state_.pending || submitted < state_.pending.step + confirming_steps) return false;
  state_.good = std::exchange(state_.pending, {});
  return true;
}

void Guard::rolled_back(const Trouble& trouble, Index submitted) {
  const bool again = state_.rollbacks > 0 && submitted - state_.last_rollback <= close_rollbacks;
  ++state_.rollbacks;
  state_.last_rollback = submitted;
  state_.memory = state_.good.memory;
  state_.pending = {};
  // A single bad batch says nothing about the rate.
  if (again || trouble.kind == Trouble::Kind::divergence || trouble.kind == Trouble::Kind::skips) {
    state_.rate_factor *= lowered;
  }
  state_.rate_changed = submitted;
}

bool Guard::raise_rate(Index submitted) {
  if (state_.rate_factor == 1.0 || submitted - state_.rate_changed < raise_after * state_.rollbacks) return false;
  state_.rate_factor = std::min(1.0, state_.rate_factor * raised);
  state_.rate_changed = submitted;
  return true;
}

std::string Guard::seen(const Trouble& trouble) const {
  switch (trouble.kind) {
    case Trouble::Kind::spike:
      return fmt::format("the loss of a batch is {:.3g}, that of recent ones at most {:.3g}", trouble.seen,
                         trouble.usual);
    case Trouble::Kind::divergence:
      return fmt::format("the mean loss of {} is {:.3g}, that of an untrained model {:.3g}", counted(enough, "step"),
                         trouble.seen, trouble.usual);
    case Trouble::Kind::explosion:
      return fmt::format("the norm of the gradient is {:.3g}, that of recent ones at most {:.3g}", trouble.seen,
                         trouble.usual);
    case Trouble::Kind::skips:
      break;
  }
  return fmt::format("{:.0f} steps in a row were not finite", trouble.seen);
}

std::string Guard::describe(const Trouble& trouble) const {
  const std::string rate = state_.rate_factor < 1.0 ? fmt::format(", with a learning rate of at most {:.3g}",
                                                                  options_.learning_rate * state_.rate_factor)
                                                    : "";
  return fmt::format("step {}: {}; the run returns to its state after step {} and passes over the batch{} ({} of {})",
                     trouble.step, seen(trouble), state_.good.step, rate, state_.rollbacks, options_.rollbacks);
}

Message Guard::describe_end(const Trouble& trouble) const {
  return fmt::format("training is unstable: at step {} {}, after {}; the model has its last good weights; try ",
                     trouble.step, seen(trouble), counted(options_.rollbacks, "rollback")) +
         remedy();
}

Message Guard::remedy(bool vanishing) const {
  if (options_.clip == 0.0 && !vanishing) return {"clipping: ", the_option("clip", "1")};
  const auto lower = [&](double rate) { return the_option("learning_rate", fmt::format("{:.3g}", rate)); };
  const double tenth = options_.learning_rate / 10.0;
  if (options_.learning_rate > high_rate) return {"a lower learning rate: ", lower(std::min(usual_rate, tenth))};
  if (!options_.network_remedy.empty()) return options_.network_remedy;
  return {"a lower learning rate (", lower(tenth), ") and check the data for outliers"};
}

}  // namespace penstock
