#pragma once

#include <string>

#include "penstock/model.h"
#include "penstock/network.h"

/// Export to the JSON of RTNeural, which plugins for sound read.
namespace penstock {

/// Returns a model of sound as JSON of RTNeural: a layer lstm or gru, and a dense layer. Scales of the model become
/// part of the weights, so samples go in and out as they are. The input goes past the recurrent layer of Penstock; in
/// RTNeural an additional unit carries it, to the precision of a float for samples within -1 and 1.
///
/// Throws Error(unsupported), with the reason, for other models: RTNeural has no norms, no sums of layers, and of
/// Penstock's cells lstm and gru.
std::string to_rtneural(const Model& model);

/// Returns an imported stream as JSON of RTNeural, if it is a chain of layers lstm, gru, dense, conv1d, conv2d, prelu
/// and batchnorm, and of the activations tanh, relu, sigmoid, softmax and elu. Its answers are compared with those of
/// the file, for 16 steps and as many as the convolutions read.
///
/// Throws Error(unsupported), with the node and the reason, for other networks.
std::string to_rtneural(const Network& network);

/// Writes it to `path`, which is replaced whole or not at all. Also throws Error(io_failure).
void save_rtneural(const Model& model, const std::string& path);
void save_rtneural(const Network& network, const std::string& path);

}  // namespace penstock
