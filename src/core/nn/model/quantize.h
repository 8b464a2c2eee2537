#pragma once

#include <span>
#include <string>
#include <vector>

#include "penstock/data_description.h"
#include "penstock/model.h"

namespace penstock::nn {

/// Returns the names of the layers whose matrices can be int8.
std::vector<std::string> int8_layers(ModelSpec spec, const DataDescription& data);
/// Throws Error(invalid_argument) if ModelSpec::int8 names another layer or one twice.
void check_int8(const ModelSpec& spec, const DataDescription& data);

/// Rounds a row of floats to int8, the largest to +-127. Returns its scale. Throws Error(numerical) if a float is not
/// finite.
float round_row(std::span<const float> row, std::span<std::int8_t> rounded);

}  // namespace penstock::nn
