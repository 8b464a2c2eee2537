#include "nn/layer/initial_weights.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/names.h"
#include "nn/model/gate_bias.h"
#include "ops/tensor_check.h"
#include "plan/cell_table.h"

namespace penstock {

namespace {

constexpr Names<4> initial_names = {"standard", "uniform", "orthogonal", "identity"};

}  // namespace

std::string_view to_string(InitialWeights weights) {
  check_enum("initial_weights", weights, InitialWeights::identity);
  return name_of(initial_names, weights);
}

InitialWeights parse_initial_weights(std::string_view text) {
  return parse_name<InitialWeights>("initial_weights", initial_names, text);
}

namespace nn {

namespace {

template <class Real>
void draw_uniform(std::span<Real> values, double bound, Random& random) {
  for (Real& value : values) value = static_cast<Real>(random.uniform(-bound, bound));
}

/// Makes one row of a matrix [rows, size] orthogonal to those above it, and returns its length then.
double orthogonalise(std::vector<double>& matrix, Index row, Index size) {
  double* const own = matrix.data() + row * size;
  for (int pass = 0; pass < 2; ++pass) {  // the second removes the rounding errors of the first
    for (Index above = 0; above < row; ++above) {
      const double* const other = matrix.data() + above * size;
      double product = 0.0;
      for (Index i = 0; i < size; ++i) product += own[i] * other[i];
      for (Index i = 0; i < size; ++i) own[i] -= product * other[i];
    }
  }
  double squares = 0.0;
  for (Index i = 0; i < size; ++i) squares += own[i] * own[i];
  return std::sqrt(squares);
}

/// Draws a [size, size] matrix uniformly from the orthogonal ones: normal rows, made orthogonal one after the other.
std::vector<double> random_orthogonal(Index size, Random& random) {
  constexpr double dependent = 1e-6;  // a row that the rows above nearly span is drawn again
  std::vector<double> matrix(static_cast<std::size_t>(size * size));
  for (Index row = 0; row < size; ++row) {
    double* const own = matrix.data() + row * size;
    double length = 0.0;
    while (length < dependent) {
      for (Index i = 0; i < size; ++i) own[i] = random.normal();
      length = orthogonalise(matrix, row, size);
    }
    for (Index i = 0; i < size; ++i) own[i] /= length;
  }
  return matrix;
}

template <class Real>
void set_identity(std::span<Real> matrix, Index size) {
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    const auto place = static_cast<Index>(i) % (size * size);
    matrix[i] = place / size == place % size ? Real(1) : Real(0);
  }
}

/// The gate of an LSTM that lets new values in. It does not follow from the gate that keeps the state, but the paper
/// initialises it as such.
int input_gate(const plan::CellTraits& cell) { return cell.info.name == "lstm" ? 0 : cell.overwrite_gate; }

template <class Real>
void set_chrono(double longest, const plan::CellTraits& cell, const LayerWeights<Real>& layer, Random& random) {
  const int keep = cell.keep_gate, overwrite = input_gate(cell);
  const auto set = [&](int gate, Index unit, double value) {
    if (gate < 0) return;
    const auto place = static_cast<std::size_t>(gate * layer.hidden + unit);
    layer.bias_ih[place] = static_cast<Real>(value);
    if (!layer.bias_hh.empty()) layer.bias_hh[place] = Real(0);
  };
  for (Index unit = 0; unit < layer.hidden; ++unit) {
    const double bias = std::log(random.uniform(1.0, longest - 1.0));
    set(keep, unit, bias);
    set(overwrite, unit, -bias);
  }
}

}  // namespace

void check_initialisation(const Initialisation& options, std::string_view cell) {
  check_enum("initial_weights", options.weights, InitialWeights::identity);
  const plan::CellTraits& traits = plan::cell_traits(cell);
  const bool recurrent = !traits.info.scan;
  if (options.weights == InitialWeights::orthogonal) {
    require_about(recurrent, "initial_weights",
                  " orthogonal needs a cell with a recurrent matrix, such as gru or lstm: {} has none", cell);
  }
  if (options.weights == InitialWeights::identity) {
    require_about(recurrent && traits.info.gates == 1, "initial_weights",
                  " identity needs a cell with a recurrent matrix and one gate, such as elman-relu, not {}", cell);
  }
  if (options.chrono == 0.0) return;
  require_argument(std::isfinite(options.chrono) && options.chrono > 2.0, "chrono", options.chrono,
                   "above 2 steps, or 0");
  require_about(traits.keep_gate >= 0 || traits.overwrite_gate >= 0, "chrono",
                " needs a cell with a gate that keeps its state, such as gru, lstm or mingru: {} has none", cell);
}

template <class Real>
void initialise_layer(const Initialisation& options, const LayerWeights<Real>& layer, Random& random) {
  const plan::CellTraits& cell = plan::cell_traits(layer.cell);
  const Index head = layer.hidden / layer.heads;
  if (options.weights == InitialWeights::uniform) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(layer.hidden));
    for (const auto values : {layer.weight_ih, layer.weight_hh, layer.bias_ih, layer.bias_hh}) {
      draw_uniform(values, bound, random);
    }
    if (!layer.bias_ih.empty()) set_learnt_vectors(layer.cell, layer.hidden, layer.bias_ih.data());
  }
  if (options.weights == InitialWeights::orthogonal) {
    for (auto block = layer.weight_hh.begin(); block != layer.weight_hh.end(); block += head * head) {
      std::ranges::transform(random_orthogonal(head, random), block, [](double x) { return static_cast<Real>(x); });
    }
  }
  if (options.weights == InitialWeights::identity) {
    set_identity(layer.weight_hh, head);
    if (!layer.bias_ih.empty()) std::fill_n(layer.bias_ih.begin(), cell.info.gates * layer.hidden, Real(0));
    std::ranges::fill(layer.bias_hh, Real(0));
  }
  if (options.chrono > 0.0) {
    require_about(!layer.bias_ih.empty(), "chrono", " needs layers with biases");
    set_chrono(options.chrono, cell, layer, random);
  }
}

template void initialise_layer<float>(const Initialisation&, const LayerWeights<float>&, Random&);
template void initialise_layer<double>(const Initialisation&, const LayerWeights<double>&, Random&);

}  // namespace nn

namespace {

template <class Real>
void initialise_network(Recurrent<Real>& network, const Initialisation& options, std::uint64_t seed) {
  const RecurrentSpec& spec = network.spec();
  nn::check_initialisation(options, spec.cell);
  require_about(options.chrono == 0.0 || spec.bias != Bias::none, "chrono", " needs layers with biases");
  Random random(seed);
  for (Index i = 0; i < spec.layers * spec.directions(); ++i) {
    const std::string end = fmt::format("_l{}{}", i / spec.directions(), i % spec.directions() == 1 ? "_reverse" : "");
    std::vector<Real> values[4];
    const char* const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const auto each = [&](const auto& work) {
      for (std::size_t n = 0; n < 4; ++n) {
        const auto found = std::ranges::find(network.parameters(), names[n] + end, &Recurrent<Real>::Parameter::name);
        if (found != network.parameters().end()) work(*found, values[n]);
      }
    };
    each([&](const auto& parameter, std::vector<Real>& value) {
      value.resize(ops::count_of(parameter.shape));
      network.read(parameter.name, value);
    });
    nn::initialise_layer<Real>(
        options, {spec.cell, spec.hidden_size, spec.heads, values[0], values[1], values[2], values[3]}, random);
    each([&](const auto& parameter, std::vector<Real>& value) { network.write(parameter.name, value); });
  }
}

}  // namespace

void initialise(Recurrent<float>& network, const Initialisation& options, std::uint64_t seed) {
  initialise_network(network, options, seed);
}

void initialise(Recurrent<double>& network, const Initialisation& options, std::uint64_t seed) {
  initialise_network(network, options, seed);
}

}  // namespace penstock
