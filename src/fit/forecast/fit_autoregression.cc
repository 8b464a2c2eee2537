#include "base/check.h"
#include "base/plural.h"
#include "forecast/linear_fits.h"
#include "nn/closed_form/linear_branch.h"
#include "nn/model/model_impl.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/train/train.h"

namespace penstock {

const Autoregression* linear_forecast(const Dataset& data) {
  const training::LinearFits* const fits = training::linear_fits(data);
  return fits == nullptr ? nullptr : &fits->training;
}

void use_linear_forecast(ModelSpec& spec, const Dataset& data) {
  const Autoregression* const linear = spec.from_last ? linear_forecast(data) : nullptr;
  const bool known_effects = linear != nullptr && linear->lags > 0 && data.description().reads_ahead();
  spec.branch = closed_form_branch({.lags = linear == nullptr ? 0 : linear->lags, .known_effects = known_effects});
}

void fit_autoregression(Model& model, const Dataset& data) {
  const ClosedFormBranchFields fields = model.spec().branch_fields();
  if (fields.lags == 0) return;
  const Autoregression* const linear = linear_forecast(data);
  if (linear == nullptr || linear->lags != fields.lags) {
    fail(ErrorCode::incompatible, "the model's linear forecast has {}, that of the data {}",
         counted(fields.lags, "lag"), linear == nullptr ? 0 : linear->lags);
  }
  if (!linear->effects.empty() && !fields.known_effects) {
    fail(ErrorCode::incompatible,
         "the model's linear forecast has no effects of what is known in advance, that of "
         "the data has: set ClosedFormBranchFields::known_effects");
  }
  nn::set_linear(model.impl(), *linear);
}

void refit_autoregression(Model& model, const Dataset& data) {
  const Index lags = model.spec().branch_fields().lags;
  if (lags == 0) return;
  const training::LinearFits* const fits = training::linear_fits(data);
  if (fits != nullptr && fits->all.lags == lags) nn::set_linear(model.impl(), fits->all);
}

}  // namespace penstock
