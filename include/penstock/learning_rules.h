#pragma once

/// The optimisers, losses of regression and schedules of the learning rate: one line each. The values and names in
/// penstock/train/settings.h, the options of the program, and what CPUs and kernels compile come from these lists.

/// X(value, Rule, title, settings that it alone reads...): the rule is in src/core/base/training/optimizers.h.
#define PENSTOCK_OPTIMIZERS(X)                            \
  X(adamw, AdamW, "AdamW", {"beta1", "beta2", "epsilon"}) \
  X(sgd, Sgd, "SGD", {"momentum"})                        \
  X(lion, Lion, "Lion", {"beta1", "beta2"})               \
  X(rmsprop, RmsProp, "RMSprop", {"beta2", "epsilon"})

/// X(value, Rule): the rule is in src/core/base/training/losses.h.
#define PENSTOCK_REGRESSION_LOSSES(X) \
  X(mse, SquaredError)                \
  X(mae, AbsoluteError)

/// X(value, Rule): the rule is in src/core/base/training/schedules.h.
#define PENSTOCK_SCHEDULES(X) \
  X(cosine, CosineRate)       \
  X(onecycle, OneCycleRate)   \
  X(plateau, PlateauRate)
