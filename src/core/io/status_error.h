#pragma once

#include <string>

#include "network/status.h"

namespace penstock::io {

/// Throws the Error that a Status describes. `place` begins the message.
void require_ok(const network::Status& status, const std::string& place);

}  // namespace penstock::io
