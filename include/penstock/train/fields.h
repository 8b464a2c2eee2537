#pragma once

#include "penstock/fields.h"
#include "penstock/train/fit.h"
#include "penstock/train/guard.h"
#include "penstock/train/stopping.h"
#include "penstock/train/train.h"

/// The fields of structs of training under their names in Python and in metrics.
namespace penstock {

/// Calls visit(name, fields...) for each option of training that a FitRequest may leave open, with its field in each of
/// some FitRequests and TrainOptions.
void visit_open_options(const auto& visit, auto&... structs) {
  visit("max_steps", structs.max_steps...);
  visit("max_seconds", structs.max_seconds...);
  visit("max_epochs", structs.max_epochs...);
  visit("batch", structs.batch...);
  visit("length", structs.length...);
  visit("learning_rate", structs.learning_rate...);
  visit("validate_every", structs.validate_every...);
  visit("validate_steps", structs.validate_steps...);
  visit("patience", structs.patience...);
  visit("keep_best", structs.keep_best...);
}

/// Calls visit(name, field) for each field of a FitRequest but the options, the precision, the choice of a device and
/// the initial weights.
void visit_fields(FieldsOf<FitRequest> auto& request, const auto& visit) {
  visit_open_options(visit, request);
  visit("seeds", request.seeds);
  visit("resume", request.resume);
  visit("filters", request.filters);
  visit("layers", request.layers);
  visit("continues", request.continues);
}

/// Calls visit(name, field) for each field of a Progress.
void visit_fields(FieldsOf<Progress> auto& progress, const auto& visit) {
  visit("step", progress.step);
  visit("seconds", progress.seconds);
  visit("fraction", progress.fraction);
  visit("seconds_left", progress.seconds_left);
  visit("epoch", progress.epoch);
  visit("loss", progress.loss);
  visit("accuracy", progress.accuracy);
  visit("learning_rate", progress.learning_rate);
  visit("gradient_norm", progress.gradient_norm);
  visit("clipped_norm", progress.clipped_norm);
  visit("steps_per_second", progress.steps_per_second);
  visit("positions_per_second", progress.positions_per_second);
  visit("saturated", progress.saturated);
  visit("first_gradient_ratio", progress.first_gradient_ratio);
  visit("skipped", progress.skipped);
  visit("rollbacks", progress.rollbacks);
  visit("warning", progress.warning);
}

/// Calls visit(name, field) for each field of an Evaluation.
void visit_fields(FieldsOf<Evaluation> auto& evaluation, const auto& visit) {
  visit("loss", evaluation.loss);
  visit("bits_per_step", evaluation.bits_per_step);
  visit("accuracy", evaluation.accuracy);
  visit("scored", evaluation.scored);
}

/// Calls visit(name, field) for each field of a ValidationHistory.
void visit_fields(FieldsOf<ValidationHistory> auto& history, const auto& visit) {
  visit("known", history.known);
  visit("best_loss", history.best_loss);
  visit("best_step", history.best_step);
  visit("without_gain", history.without_gain);
  visit("cooldown_begin", history.cooldown_begin);
  visit("cooldown_from", history.cooldown_from);
}

/// Calls visit(name, field) for each field of a Plateau.
void visit_fields(FieldsOf<Plateau> auto& plateau, const auto& visit) {
  visit("best_loss", plateau.best_loss);
  visit("without_gain", plateau.without_gain);
  visit("factor", plateau.factor);
}

/// Calls visit(name, field) for each field of a GuardMemory.
void visit_fields(FieldsOf<GuardMemory> auto& memory, const auto& visit) {
  visit("losses", memory.losses);
  visit("norms", memory.norms);
  visit("first_loss", memory.first_loss);
  visit("first_norm", memory.first_norm);
  visit("accepted", memory.accepted);
}

/// Calls visit(name, field) for each field of a GuardPoint.
void visit_fields(FieldsOf<GuardPoint> auto& point, const auto& visit) {
  visit("step", point.step);
  visit("memory", point.memory);
}

/// Calls visit(name, field) for each field of a GuardState.
void visit_fields(FieldsOf<GuardState> auto& state, const auto& visit) {
  visit("memory", state.memory);
  visit("rollbacks", state.rollbacks);
  visit("last_rollback", state.last_rollback);
  visit("rate_changed", state.rate_changed);
  visit("rate_factor", state.rate_factor);
  visit("good", state.good);
  visit("pending", state.pending);
}

}  // namespace penstock
