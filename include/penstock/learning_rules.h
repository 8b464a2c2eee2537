#pragma once

/// The optimisers, losses of regression and schedules of the learning rate: one line each. The values and names in
/// penstock/train/settings.h, the options of the program, and what CPUs and kernels compile come from these lists.

/// X(value, Rule, title, settings that it alone reads...): the rule is in src/core/base/training/optimizers.h. Muon
/// updates the matrices of blocks by src/core/ops/training/muon.cc, and the rest by its rule.
#define PENSTOCK_OPTIMIZERS(X)                            \
  X(adamw, AdamW, "AdamW", {"beta1", "beta2", "epsilon"}) \
  X(sgd, Sgd, "SGD", {"momentum"})                        \
  X(lion, Lion, "Lion", {"beta1", "beta2"})               \
  X(rmsprop, RmsProp, "RMSprop", {"beta2", "epsilon"})    \
  X(muon, AdamW, "Muon", {"beta1", "beta2", "epsilon"})

/// X(value, Rule): the rule is in src/core/base/training/losses.h.
#define PENSTOCK_REGRESSION_LOSSES(X) \
  X(mse, SquaredError)                \
  X(mae, AbsoluteError)

namespace penstock {
/// Coefficient p of the pre-emphasis filter x_t - p x_{t-1}, by which errors count as they are heard (Wright and
/// Valimaki 2020).
constexpr double pre_emphasis = 0.85;
}  // namespace penstock

/// X(value, p, ESR, DC, STFT): the losses of sound, sums of three parts with these weights, after the filter with p for
/// the ESR. The parts are in src/core/ops/training/sound_loss.h.
#define PENSTOCK_SOUND_LOSSES(X)                   \
  X(esr, 0.0, 1.0, 0.0, 0.0)                       \
  X(esr_dc, penstock::pre_emphasis, 1.0, 1.0, 0.0) \
  X(stft, 0.0, 0.0, 0.0, 1.0)                      \
  X(esr_stft, penstock::pre_emphasis, 1.0, 1.0, 1.0)

/// X(value, Rule): the rule is in src/core/base/training/schedules.h.
#define PENSTOCK_SCHEDULES(X) \
  X(cosine, CosineRate)       \
  X(onecycle, OneCycleRate)   \
  X(plateau, PlateauRate)
