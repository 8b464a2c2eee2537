#pragma once

namespace penstock::cli {

/// Starts the program anew with threads that wait for each other by spinning for kSpinMicroseconds at most, where
/// neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT says for how long; returns in the program that has it so.
///
/// GNU's OpenMP has them spin for a millisecond. On a quiet machine that is no quicker; on one that has other work, the
/// thread that is waited for may be one that does not run, and training took ten times as long as with a short spin.
/// How long is read when the library is loaded, which is before main().
void limit_spinning(char** arguments);

}  // namespace penstock::cli
