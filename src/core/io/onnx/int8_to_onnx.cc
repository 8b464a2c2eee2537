#include "io/onnx/int8_to_onnx.h"

namespace penstock::io {

namespace {

/// Rounds x as RoundRow() of backend/cpu/dense/panel_int8.inl does. The bytes have the zero point 128, for which
/// onnxruntime has faster kernels than for signed ones.
struct Rounded {
  std::string bytes, scale;
};
Rounded add_rounding(OnnxGraph& graph, const std::string& x) {
  constexpr float most = 127.0f, least = 1e-30f, zero_point = 128.0f;
  const std::string largest =
      graph.node("ReduceMax", {graph.node("Abs", {x})}, {{"axes", std::vector<Index>{-1}}, {"keepdims", 1}});
  const std::string bound = graph.node("Max", {largest, graph.scalar(least)});
  const std::string scaled = graph.node("Mul", {x, graph.node("Div", {graph.scalar(most), bound})});
  const std::string moved = graph.node("Add", {graph.node("Round", {scaled}), graph.scalar(zero_point)});
  return {graph.cast(moved, "uint8"), graph.node("Div", {bound, graph.scalar(most)})};
}

}  // namespace

std::string add_product(OnnxGraph& graph, const std::string& x, const std::string& name, const OnnxMatrix& weight,
                        Index rows, Index columns) {
  const std::vector<Index> shape = {columns, rows};
  if (!weight.is_int8()) {
    return graph.node("MatMul", {x, graph.floats(name, shape, transposed(weight.floats, rows, columns))});
  }
  const auto [bytes, scale] = add_rounding(graph, x);
  const std::vector<std::int8_t> turned = transposed(std::span<const std::int8_t>(weight.int8), rows, columns);
  const std::string sums =
      graph.node("MatMulInteger", {bytes, graph.bytes(name, shape, turned), graph.byte(std::uint8_t{128})});
  // In this order: onnxruntime 1.32 joins the product of both scales with the integer product, and then reads the
  // scale of the first position for all positions.
  const std::string scaled = graph.node("Mul", {graph.cast(sums, "float"), scale});
  return graph.node("Mul", {scaled, graph.floats(name + ".scale", {rows}, weight.scales)});
}

std::string add_rounded(OnnxGraph& graph, const std::string& name, const std::vector<Index>& shape,
                        std::span<const std::int8_t> values, const std::vector<Index>& scales_shape,
                        std::span<const float> scales) {
  // Not DequantizeLinear: onnxruntime computes that in every run, but these nodes once, when it opens the file.
  const std::string floats = graph.cast(graph.bytes(name, shape, values), "float");
  return graph.node("Mul", {floats, graph.floats(name + ".scale", scales_shape, scales)});
}

}  // namespace penstock::io
