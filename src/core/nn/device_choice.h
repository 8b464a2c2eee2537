#pragma once

#include <string>

#include "penstock/data_description.h"
#include "penstock/device_choice.h"
#include "penstock/model.h"
#include "plan/machine.h"

/// The choice between CPU and GPU on a given machine.
namespace penstock::nn {

/// Returns the device with the smaller estimated time on `machine`. `missing`: why the machine has no GPU; empty: it
/// has one. Throws Error as the public choose_device().
DeviceChoice choose_device(const ModelSpec& spec, const DataDescription& data, const DeviceQuestion& question,
                           const plan::Machine& machine, const std::string& missing);
DeviceChoice choose_device(const RecurrentSpec& spec, const DeviceQuestion& question, const plan::Machine& machine,
                           const std::string& missing);

}  // namespace penstock::nn
