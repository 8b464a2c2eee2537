// Runs a recurrent network forwards and backwards on numbers from standard input, for tests/python/test_torch.py.
//
//   torch_probe CELL INPUT HIDDEN LAYERS DIRECTION BIAS ROWS STEPS
//   torch_probe FILE ROWS STEPS    a stack from a file: reads x, writes y; for tests/python/test_interchange_files.py
//
// Reads float32, in this order: the parameters (for each layer, for each direction: weight_ih, weight_hh, bias_ih,
// bias_hh as far as they exist), x [B, T, I], state_in, dy [B, T, H * directions], dstate_out.
// Writes float32: y, state_out, dx, dstate_in, the gradients of the parameters. States are [S, layers * directions, B,
// H].

#include <cstdio>
#include <string>
#include <vector>

#include "penstock/error.h"
#include "penstock/recurrent.h"

namespace {

using penstock::Index;
using penstock::Recurrent;
using penstock::SequenceView;

void read(float* values, std::size_t count) {
  if (std::fread(values, sizeof(float), count, stdin) != count) {
    throw penstock::Error(penstock::ErrorCode::bad_input, "standard input ended early");
  }
}

std::vector<float> read(Index count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  read(values.data(), values.size());
  return values;
}

void write(const float* values, std::size_t count) {
  if (std::fwrite(values, sizeof(float), count, stdout) != count) {
    throw penstock::Error(penstock::ErrorCode::io_failure, "cannot write to standard output");
  }
}

/// The parameters in the order of the protocol, whatever the order the network keeps them in.
std::vector<Recurrent<float>::Parameter> in_order(Recurrent<float>& network) {
  std::vector<Recurrent<float>::Parameter> ordered;
  for (Index layer = 0; layer < network.spec().layers; ++layer) {
    for (const char* suffix : {"", "_reverse"}) {
      for (const char* kind : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
        const std::string name = std::string(kind) + "_l" + std::to_string(layer) + suffix;
        for (const auto& parameter : network.parameters()) {
          if (parameter.name == name) ordered.push_back(parameter);
        }
      }
    }
  }
  return ordered;
}

void probe(const penstock::RecurrentSpec& spec, const penstock::Batch& batch) {
  Recurrent<float> network(spec);
  const auto parameters = in_order(network);
  for (const auto& parameter : parameters) read(parameter.value.data(), parameter.value.size());
  network.weights_changed();

  const Index positions = batch.rows * batch.steps, states = network.state_size() * batch.rows;
  const std::vector<float> x = read(positions * spec.input_size), state_in = read(states);
  const std::vector<float> dy = read(positions * spec.output_size()), dstate_out = read(states);
  std::vector<float> y(dy.size()), state_out(state_in.size()), dx(x.size()), dstate_in(state_in.size());
  const auto view = [&]<class Real>(Real* data, Index channels) {
    return SequenceView<Real>::batch_first(data, batch.steps, channels);
  };
  penstock::RecurrentTape<float> tape;
  network.forward(batch, view(x.data(), spec.input_size), view(y.data(), spec.output_size()), state_in.data(),
                  state_out.data(), &tape);
  network.backward(batch, view(x.data(), spec.input_size), view(dy.data(), spec.output_size()), dstate_out.data(),
                   view(dx.data(), spec.input_size), dstate_in.data(), tape);
  for (const auto* values : {&y, &state_out, &dx, &dstate_in}) write(values->data(), values->size());
  for (const auto& parameter : parameters) write(parameter.gradient.data(), parameter.gradient.size());
}

void probe_file(const std::string& path, const penstock::Batch& batch) {
  const auto network = Recurrent<float>::load(path);
  const penstock::RecurrentSpec& spec = network.spec();
  const Index positions = batch.rows * batch.steps;
  const std::vector<float> x = read(positions * spec.input_size);
  std::vector<float> y(static_cast<std::size_t>(positions * spec.output_size()));
  network.forward(batch, SequenceView<const float>::batch_first(x.data(), batch.steps, spec.input_size),
                  SequenceView<float>::batch_first(y.data(), batch.steps, spec.output_size()), nullptr, nullptr);
  write(y.data(), y.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9 && argc != 4) {
    std::fputs("usage: torch_probe CELL INPUT HIDDEN LAYERS DIRECTION BIAS ROWS STEPS | FILE ROWS STEPS\n", stderr);
    return 2;
  }
  try {
    if (argc == 4) {
      probe_file(argv[1], {.rows = std::stol(argv[2]), .steps = std::stol(argv[3])});
      return 0;
    }
    const penstock::RecurrentSpec spec{.cell = argv[1],
                                       .input_size = std::stol(argv[2]),
                                       .hidden_size = std::stol(argv[3]),
                                       .layers = std::stol(argv[4]),
                                       .direction = penstock::parse_direction(argv[5]),
                                       .bias = penstock::parse_bias(argv[6])};
    probe(spec, {.rows = std::stol(argv[7]), .steps = std::stol(argv[8])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_probe: %s\n", error.what());
    return 1;
  }
}
