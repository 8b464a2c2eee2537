#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model.h"
#include "penstock/network.h"

/// Models whose layers have weights of int8: files of a quarter of the size, for CPUs that multiply bytes.
namespace penstock {

/// Returns the names of the layers whose matrices can be int8, in order: the embedding, recurrent layers of built-in
/// cells, linear layers and the head.
std::vector<std::string> int8_layers(const Model& model);

/// Returns what a model has lost against the one that is quantised, on data: 0.01 for one percent.
using LossOf = std::function<double(const Model&)>;

/// Returns the loss of a model whose error changed from `before` to `after`. With labels the error is the share of
/// wrong ones, and the loss is the difference. Otherwise the loss is the relative increase of the error.
double loss_between(const Model& model, double before, double after);

struct QuantizeOptions {
  std::optional<double> max_loss =
      {};                   ///< Most that may be lost; layers stay as they are until it is kept. Empty: any.
  bool each_layer = false;  ///< Also measures what each layer loses by itself.
  /// For networks: large convolutions and products round their inputs to bytes, too, and multiply bytes. Small ones are
  /// faster in float, and stay so. The C runtime refuses such networks.
  bool round_inputs = false;
};

/// What became of a layer.
struct QuantizedLayer {
  std::string name;
  std::optional<double> loss;  ///< With this layer alone as int8; empty: not measured.
  bool int8 = true;            ///< false: it stayed as it was.
};

struct Quantized {
  Model model;
  double loss = 0.0;  ///< Of the whole model.
  std::vector<QuantizedLayer> layers;
};

/// Makes the matrices of a model int8. Calls `loss_of` once, and once for each layer if options want it or if too much
/// is lost; the layers that lose most by themselves then stay as they are. The last call gets the returned model.
/// Throws Error: unsupported if no layer can be int8; numerical, with what is lost, if `max_loss` cannot be kept, or if
/// the loss is not a number.
Quantized quantize(const Model& model, const LossOf& loss_of, const QuantizeOptions& options = {});

/// Returns the names of the nodes of a network whose matrices can be int8: recurrent layers, products with constant
/// matrices, convolutions.
std::vector<std::string> int8_layers(const Network& network);

struct QuantizedNetwork {
  Network network;
  double loss = 0.0;
  std::vector<QuantizedLayer> layers;
};

/// Quantises a network. Without `round_inputs` only its file shrinks: sessions compute in float. Calls `loss_of` also
/// for the network itself: throws Error(numerical) if that loss is not finite.
QuantizedNetwork quantize(const Network& network, const std::function<double(const Network&)>& loss_of,
                          const QuantizeOptions& options = {});

}  // namespace penstock
