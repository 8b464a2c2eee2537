#pragma once

namespace penstock::plan {

/// Estimated microseconds on one thread from which a call uses several. Starting a thread takes 1 us if it spins, 8 us
/// and more if it sleeps, and milliseconds if another program uses its core. Tests set 0 to share small problems.
inline double team_microseconds = 20;

inline bool pays_for_team(double microseconds) { return microseconds >= team_microseconds; }

}  // namespace penstock::plan
