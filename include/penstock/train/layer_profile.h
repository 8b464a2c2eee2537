#pragma once

#include "penstock/recurrent.h"
#include "penstock/train/profile.h"

namespace penstock {

/// Measures passes of a recurrent stack without a model, in the type of `execution.precision` on a GPU, else in f32. A
/// training pass is forward and backward, with the gradient of x and without an optimiser. Throws Error as profile() of
/// a model does, and invalid_argument that names an impossible field of `spec`.
Profile profile(const RecurrentSpec& spec, Index rows, Index steps, ProfiledPass pass, const Execution& execution = {},
                Index passes = 20);

}  // namespace penstock
