#include "nn/model/gate_bias.h"

#include <algorithm>
#include <cmath>

#include "custom/cell.h"
#include "plan/cell_table.h"

namespace penstock::nn {

namespace {

// Time constants in steps. The shortest holds little but the present; the longest is well within a window of
// truncated back-propagation, whose gradient must reach that far for the channel to learn anything.
constexpr double shortest = 1.1, longest = 32.0;

/// The logit of `keep` of channel i, where 1 / (1 - keep) is its time constant.
double spread_bias(Index i, Index channels) {
  const double place = channels > 1 ? static_cast<double>(i) / static_cast<double>(channels - 1) : 0.5;
  return std::log(shortest * std::pow(longest / shortest, place) - 1.0);
}

/// For gates that see the state: it fades over some four steps (Gers et al. 2000, Jozefowicz et al. 2015), and the
/// recurrent weights can open or close the gate by what the state holds, so that one value fits all channels. Gates
/// that do not see it, and exponential ones, get time constants evenly spread on a logarithmic scale ("chrono"
/// initialisation, Tallec and Ollivier 2018): which channel is to remember for long must be there from the start.
double keep_bias(const plan::CellTraits& cell, Index i, Index channels) {
  return cell.spread_memory ? spread_bias(i, channels) : 1.0;
}

}  // namespace

template <class Real>
void set_learnt_vectors(std::string_view cell, Index hidden_size, Real* bias) {
  const plan::CellTraits& traits = plan::cell_traits(cell);
  for (int k = 0; k < traits.learnt; ++k) {
    const double initial = traits.custom->cell.learnt[static_cast<std::size_t>(k)].initial;
    std::fill_n(bias + (traits.info.gates + k) * hidden_size, hidden_size, static_cast<Real>(initial));
  }
}

template void set_learnt_vectors<float>(std::string_view, Index, float*);
template void set_learnt_vectors<double>(std::string_view, Index, double*);

template <class Real>
void add_gate_bias(std::string_view cell, Index hidden_size, Real* bias) {
  const plan::CellTraits& traits = plan::cell_traits(cell);
  for (Index i = 0; i < hidden_size; ++i) {
    const Real value = static_cast<Real>(keep_bias(traits, i, hidden_size));
    if (traits.keep_gate >= 0) bias[traits.keep_gate * hidden_size + i] += value;
    if (traits.overwrite_gate >= 0) bias[traits.overwrite_gate * hidden_size + i] -= value;
  }
  set_learnt_vectors(cell, hidden_size, bias);
}

template void add_gate_bias<float>(std::string_view, Index, float*);
template void add_gate_bias<double>(std::string_view, Index, double*);

}  // namespace penstock::nn
