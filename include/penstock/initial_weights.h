#pragma once

#include <cstdint>
#include <string_view>

#include "penstock/model.h"
#include "penstock/recurrent.h"

/// Initial weights of recurrent layers, to be chosen before training.
namespace penstock {

/// How the weights of recurrent layers start.
enum class InitialWeights {
  standard,    ///< Those of the constructor of Model or Recurrent.
  uniform,     ///< All weights and biases uniform in +-1/sqrt(H), as torch.nn draws them.
  orthogonal,  ///< Each head of each gate has a random orthogonal recurrent matrix R: R R^T = I (Saxe et al. 2013).
  identity,    ///< The recurrent matrix is the identity, biases are 0 (Le, Jaitly and Hinton 2015). For one gate only.
};

/// Returns the name of a value; parse_initial_weights() throws Error(invalid_argument) that lists the names.
std::string_view to_string(InitialWeights weights);
InitialWeights parse_initial_weights(std::string_view text);

/// Options of initialise().
struct Initialisation {
  InitialWeights weights = InitialWeights::standard;
  /// Longest time constant of a unit in steps; above 2; 0: biases of gates stay as they are.
  ///
  /// Draws u uniformly from 1 to `chrono` - 1 for each unit ("chrono initialisation", Tallec and Ollivier 2018). The
  /// gate that keeps the state gets the bias log u, the gate that overwrites it -log u. The unit then forgets over
  /// about u + 1 steps.
  double chrono = 0.0;

  bool operator==(const Initialisation&) const = default;
};

/// Draws new initial weights for all recurrent layers of a model. Other parameters stay as they are.
///
/// Throws Error(invalid_argument) for an ensemble, and if the cell has no recurrent matrix (`orthogonal`), not exactly
/// one gate (`identity`), or no gate that keeps or overwrites its state (`chrono`). The weights are then unchanged.
void initialise(Model& model, const Initialisation& options, std::uint64_t seed = 0);
/// Draws new initial weights for a stack of recurrent layers, and throws as above.
void initialise(Recurrent<float>& network, const Initialisation& options, std::uint64_t seed = 0);
void initialise(Recurrent<double>& network, const Initialisation& options, std::uint64_t seed = 0);

}  // namespace penstock
