#pragma once

#include <vector>

#include "network/preparation.h"
#include "network/window.h"

namespace penstock::network {

/// Sizes of a convolution that multiplies bytes, or of a product, whose windows are trivial: its rows are images.
/// Images lie as [rows, columns, channels], with their padding.
struct ByteImages {
  Index images = 1, channels = 1, maps = 1;
  Windows windows;

  Index rows() const { return windows.h.in + windows.h.before + windows.h.after; }
  Index columns() const { return windows.w.in + windows.w.before + windows.w.after; }
  Index results() const { return windows.h.out * windows.w.out; }
  Index inner() const { return channels * windows.h.size * windows.w.size; }
  /// The place in weights [maps, channels, h, w] of number k of a window.
  Index weight(Index map, Index k) const {
    const Index places = windows.h.size * windows.w.size;
    return (map * channels + k % channels) * places + k / channels;
  }
};

/// Rows of a product of bytes at once.
constexpr Index kRowsOfBytes = 64;

/// Places in a scratch, in floats.
struct ScratchPlaces {
  Index floats = 0;

  Index take(Index count) {
    const Index at = floats;
    floats += (count + 15) / 16 * 16;
    return at;
  }
};

/// Reads the sizes of a convolution of read 0 [images, channels, h, w] with the weights [maps, channels, h, w] of
/// another read, and writes the shape of the result.
Status read_byte_convolution(Preparation& p, std::size_t weights, ByteImages& layer);

/// The constant weights of a read less `offset`, as floats [maps, inner]: element (map, k) is `number(map, k)`.
std::vector<float> byte_weights(const Preparation& p, std::size_t weights, const ByteImages& layer, Index offset,
                                const auto& number) {
  std::vector<float> all;
  all.reserve(static_cast<std::size_t>(layer.maps * layer.inner()));
  for (Index map = 0; map < layer.maps; ++map) {
    for (Index k = 0; k < layer.inner(); ++k) {
      all.push_back(static_cast<float>(integer_at(p.type(weights), p.known(weights), number(map, k)) - offset));
    }
  }
  return all;
}

}  // namespace penstock::network
