#include "penstock/fixed_branch.h"

#include "nn/fixed/filter_branch.h"
#include "nn/fixed/linear_branch.h"

namespace penstock {

std::shared_ptr<const FixedBranch> fixed_branch(const FixedBranchFields& fields) {
  if (fields.lags != 0 || fields.known_effects) return std::make_shared<nn::LinearBranch>(fields);
  if (fields.filters != 0 || fields.dilations != 0) return std::make_shared<nn::FilterBranch>(fields);
  return nullptr;
}

}  // namespace penstock
