#pragma once

#include <cstdlib>

namespace penstock {

/// Returns a variable of the environment; null if there is none, or if the process has rights that its caller lacks
/// (setuid, file capabilities): the caller must not say which files such a process loads.
inline const char* environment(const char* name) { return ::secure_getenv(name); }

}  // namespace penstock
