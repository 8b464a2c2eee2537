#pragma once

#include <string>

#include "penstock/penstock.h"

namespace penstock::cli {

/// Where the model cannot be written, as on a full disk, there may be room in a while: as long as training took, it is
/// worth to wait for, up to ten minutes. Throws Error(io_failure) after that.
void save_patiently(const Model& model, const std::string& path, const History& history, double seconds_of_training);

}  // namespace penstock::cli
