#pragma once

#include <concepts>
#include <type_traits>

#include "penstock/model.h"
#include "penstock/model_file.h"

/// The fields of public structs under their names in files and in Python.
namespace penstock {

template <class T, class Struct>
concept FieldsOf = std::same_as<std::remove_const_t<T>, Struct>;

/// Calls visit(name, field) for each field of a ModelSpec but the cell.
void visit_fields(FieldsOf<ModelSpec> auto& spec, const auto& visit) {
  visit("width", spec.width);
  visit("blocks", spec.blocks);
  visit("hidden_size", spec.hidden_size);
  visit("heads", spec.heads);
  visit("convolution", spec.convolution);
  visit("feed_forward", spec.feed_forward);
  visit("dropout", spec.dropout);
  visit("end_norms", spec.end_norms);
  visit("from_last", spec.from_last);
  ClosedFormBranchFields branch = spec.branch_fields();
  visit("lags", branch.lags);
  visit("known_effects", branch.known_effects);
  visit("filters", branch.filters);
  visit("dilations", branch.dilations);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(spec)>>) spec.branch = closed_form_branch(branch);
  visit("members", spec.members);
}

/// Calls visit(name, field) for each field of a History.
void visit_fields(FieldsOf<History> auto& history, const auto& visit) {
  visit("trained", history.trained);
  visit("data", history.data);
  visit("score", history.score);
  visit("version", history.version);
  visit("steps", history.steps);
  visit("origin", history.origin);
  visit("weight", history.weight);
  visit("options", history.options);
  visit("scores", history.scores);
}

}  // namespace penstock
