#pragma once

#include <string>

namespace penstock::cli {

/// Makes sure, before any work is done, that a model can be written to `path` later. `option` is named in messages.
/// Throws Error(invalid_argument) if something else than a Penstock model stands there (unless `force`), and
/// Error(io_failure) if the system will not let us write.
void check_model_file(const std::string& option, const std::string& path, bool force);

}  // namespace penstock::cli
