#pragma once

namespace penstock {

/// Threads of an Execution that asks for 0: OMP_NUM_THREADS, else all cores or their quota. Throws as
/// resolve_threads().
int default_threads();

/// `requested` if positive (at most 1024), default_threads() for 0. Throws Error(invalid_argument) otherwise.
int resolve_threads(int requested);

}  // namespace penstock
