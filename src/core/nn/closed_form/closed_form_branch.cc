#include "penstock/closed_form_branch.h"

#include "nn/closed_form/filter_branch.h"
#include "nn/closed_form/linear_branch.h"

namespace penstock {

std::shared_ptr<const ClosedFormBranch> closed_form_branch(const ClosedFormBranchFields& fields) {
  if (fields.lags != 0 || fields.known_effects) return std::make_shared<nn::LinearBranch>(fields);
  if (fields.filters != 0 || fields.dilations != 0) return std::make_shared<nn::FilterBranch>(fields);
  return nullptr;
}

}  // namespace penstock
