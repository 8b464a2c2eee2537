#pragma once

#include "network/network.h"
#include "network/status.h"
#include "runtime/failure.h"
#include "runtime/tensor_file.h"

namespace penstock::runtime {

/// Reads and checks the network of a file (io/network_file.h has the format), whose constants stay in the file's
/// memory. Returns false after a failure.
bool read_network(const TensorFile& file, network::Network& network, Failure& failure);

/// Sets the failure that a Status describes. Returns whether there is none.
bool require_ok(const network::Status& status, Failure& failure);

}  // namespace penstock::runtime
