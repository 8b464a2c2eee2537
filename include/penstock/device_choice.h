#pragma once

#include "penstock/plan.h"
#include "penstock/recurrent.h"

/// The choice between CPU and GPU for recurrent layers.
namespace penstock {

/// Returns the device with the smaller estimated time for calls of a Recurrent<float> with host memory, including the
/// copies of inputs and outputs. Throws Error as choose_device() of plan.h.
DeviceChoice choose_device(const RecurrentSpec& spec, const DeviceQuestion& question);

}  // namespace penstock
