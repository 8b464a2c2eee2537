#include "nn/gate_bias.h"

#include <cmath>

namespace penstock::nn {

namespace {

enum class Memory {
  /// A bias of 1 (Gers et al. 2000, Jozefowicz et al. 2015): the state fades over some four steps, and the recurrent
  /// weights can open or close the gate by what the state holds, so that one value fits all channels.
  one,
  /// Every channel has a time constant of its own, 1 / (1 - keep), evenly spread on a logarithmic scale ("chrono"
  /// initialisation, Tallec and Ollivier 2018). For gates that do not see the state, and for exponential ones: which
  /// channel is to remember for long must be there from the start, as in the decays of linear recurrences.
  spread,
};

struct GateBias {
  std::string_view cell;
  Index gate;
  double sign;  // +1: the gate keeps; -1: it overwrites
  Memory memory;
};

constexpr GateBias table[] = {
    {"gru", 1, +1.0, Memory::one},
    {"gru-before", 1, +1.0, Memory::one},
    {"lstm", 1, +1.0, Memory::one},
    {"slstm", 1, +1.0, Memory::spread},
    {"mingru", 0, -1.0, Memory::spread},
    {"mingru-log", 0, -1.0, Memory::spread},
    {"minlstm", 0, +1.0, Memory::spread},
    {"minlstm", 1, -1.0, Memory::spread},
    {"minlstm-log", 0, +1.0, Memory::spread},
    {"minlstm-log", 1, -1.0, Memory::spread},
};

// Time constants in steps. The shortest holds little but the present; the longest is well within a window of
// truncated back-propagation, whose gradient must reach that far for the channel to learn anything.
constexpr double shortest = 1.1, longest = 32.0;

/// The logit of `keep` of channel i, where 1 / (1 - keep) is its time constant.
double spread_bias(Index i, Index channels) {
  const double place = channels > 1 ? static_cast<double>(i) / static_cast<double>(channels - 1) : 0.5;
  return std::log(shortest * std::pow(longest / shortest, place) - 1.0);
}

}  // namespace

template <class Real>
void add_gate_bias(std::string_view cell, Index hidden_size, Real* bias) {
  for (const GateBias& entry : table) {
    if (entry.cell != cell) continue;
    for (Index i = 0; i < hidden_size; ++i) {
      const double value = entry.memory == Memory::one ? 1.0 : spread_bias(i, hidden_size);
      bias[entry.gate * hidden_size + i] += static_cast<Real>(entry.sign * value);
    }
  }
}

template void add_gate_bias<float>(std::string_view, Index, float*);
template void add_gate_bias<double>(std::string_view, Index, double*);

}  // namespace penstock::nn
