#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "io/audio/document.h"
#include "network/network.h"

namespace penstock::io::audio {

/// Features that Keras adds, half before and the rest behind, if a convolution's padding is "same".
inline Index same_padding(Index features, Index width, Index stride) {
  return std::max<Index>(((features + stride - 1) / stride - 1) * stride + width - features, 0);
}

/// Builds a network of whole sequences, layer by layer: "input" [batch, time, I], "output" [batch, time, O]. Shapes of
/// weights are the caller's to check.
class SequenceNetwork {
 public:
  explicit SequenceNetwork(Index inputs);

  /// Values of each step and row so far.
  Index channels() const { return channels_; }
  /// Names the nodes that follow.
  void name(std::string name) { name_ = std::move(name); }

  /// An operator of single values, or over the channels, with constants as its other inputs.
  void apply(std::string_view op, const std::vector<Array>& constants = {});
  /// y = x W + b, for W [C, O] and b [O] or empty.
  void dense(const Array& weight, const Array& bias);
  /// A layer of a cell. `weights` are the reads of a Recurrent node behind x (network/network.h) without their first
  /// axis, of 1; empty arrays are absent. First states other than zero fix the batch to 1.
  void recurrent(std::string_view cell, Index hidden, std::vector<Array> weights);
  /// A causal convolution, for weight [O, C / groups, K] and bias [O].
  void convolution(const Array& weight, const Array& bias, Index dilation, Index groups);
  /// A convolution over steps and features, causal over steps, for weight [O, C, steps, features] and bias [O]. Values
  /// of a step are [features, C], then [features', O]. `stride` and `pads`, before and behind, are of features.
  void convolution_2d(const Array& weight, const Array& bias, Index dilation, Index stride, std::array<Index, 2> pads);
  /// The input as it is now is what add_input() adds.
  void keep_input() { input_ = value_; }
  /// Adds the first channels of the input: one to each channel, or all.
  void add_input(Index channels);
  /// Returns the network.
  network::Network finish();

 private:
  int add_value(network::Value value);
  int constant(const Array& array);
  int integers(const std::vector<Index>& values);
  int node(std::string_view op, std::vector<int> reads, std::vector<network::Attribute> attributes = {});
  /// Brings the axes into the order of "btc", "tbc" or "bct".
  void to(const std::string& axes);

  network::Network network_;
  std::string name_, axes_ = "btc";
  Index channels_;
  int value_ = 0, input_ = 0;
};

}  // namespace penstock::io::audio
