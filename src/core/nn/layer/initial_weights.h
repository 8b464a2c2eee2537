#pragma once

#include <span>
#include <string_view>

#include "base/random.h"
#include "penstock/initial_weights.h"

namespace penstock::nn {

/// The parameters of one recurrent layer. Those that it lacks are empty.
template <class Real>
struct LayerWeights {
  std::string_view cell;
  Index hidden = 0, heads = 1;
  std::span<Real> weight_ih;  ///< [G*H, I]
  std::span<Real> weight_hh;  ///< [heads, G, D, D]
  std::span<Real> bias_ih;    ///< [(G + K)*H]
  std::span<Real> bias_hh;    ///< [G*H]
};

/// Throws Error(invalid_argument) if a cell cannot start so.
void check_initialisation(const Initialisation& options, std::string_view cell);

/// Draws the weights of a layer. The options must have been checked.
template <class Real>
void initialise_layer(const Initialisation& options, const LayerWeights<Real>& layer, Random& random);

extern template void initialise_layer<float>(const Initialisation&, const LayerWeights<float>&, Random&);
extern template void initialise_layer<double>(const Initialisation&, const LayerWeights<double>&, Random&);

}  // namespace penstock::nn
