#pragma once

#include "penstock/plan.h"
#include "penstock/recurrent.h"

namespace penstock {

/// As for a model (plan.h), for calls of a Recurrent in float with memory of the host, to which what it writes is
/// copied back.
DeviceChoice choose_device(const RecurrentSpec& spec, const DeviceQuestion& question);

}  // namespace penstock
