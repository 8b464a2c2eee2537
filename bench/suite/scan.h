#pragma once

#include <memory>

#include "base/random.h"
#include "bench/contenders/contender.h"

/// The scan by itself, h_t = a_t h_{t-1} + b_t over C = I = H channels. Its "weights" are its terms "a" and "b" [B, T,
/// C] (of "scan-log": their logarithms); there is no x. Gradients are those of the compared rows [R, T, C].
namespace penstock::bench {

std::vector<Array> draw_terms(const Case& test, Random& random);

/// Bytes, if `shares` times as much is kept as one contender here keeps.
double scan_memory_needed(const Case& test, double shares);

Answers<double> solve_scan(const Problem& problem);

/// "penstock", "penstock-sequential" or "penstock-scan". Throws NotOffered.
std::unique_ptr<Contender> make_our_scan(const std::string& name, const Problem& problem);

}  // namespace penstock::bench
