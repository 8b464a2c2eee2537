#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/onnx/onnx_graph.h"

/// Export of weight matrices to ONNX, as floats or as int8.
namespace penstock::io {

/// A matrix of weights [rows, columns]: floats, or else int8 with a scale for each row.
struct OnnxMatrix {
  std::span<const float> floats;
  std::vector<std::int8_t> int8;
  std::vector<float> scales;

  bool is_int8() const { return !int8.empty(); }
};

/// Adds the product x W^T [..., rows] for x [..., columns]. With int8 weights, operators of ONNX round x as Penstock
/// does, to int8 with one scale for each position, and add up integers.
std::string add_product(OnnxGraph& graph, const std::string& x, const std::string& name, const OnnxMatrix& weight,
                        Index rows, Index columns);

/// Adds int8 weights as floats: values [shape] times scales [scales_shape], with the rules of ONNX for broadcasts.
std::string add_rounded(OnnxGraph& graph, const std::string& name, const std::vector<Index>& shape,
                        std::span<const std::int8_t> values, const std::vector<Index>& scales_shape,
                        std::span<const float> scales);

}  // namespace penstock::io
