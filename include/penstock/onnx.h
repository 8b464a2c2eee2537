#pragma once

#include <string>
#include <vector>

#include "penstock/model.h"
#include "penstock/recurrent.h"

/// Export to ONNX (opset 17): models and recurrent layers as files that onnxruntime and others run without Penstock.
namespace penstock {

/// Options of an export.
struct OnnxOptions {
  /// True if inputs and outputs are normalised, as in Model::forward(); false: in the units of the data. No effect for
  /// tokens.
  bool normalised = false;
  /// For a model of many series: name of the series whose scaling is exported. Excludes `normalised`.
  std::string group = {};
};

/// An input or output of an exported model.
struct OnnxTensor {
  std::string name;                ///< "features"
  std::string type;                ///< "float", "double" or "int64"
  std::vector<std::string> shape;  ///< Numbers are fixed sizes, names are free sizes: {"batch", "time", "3"}.
  std::string description;         ///< One line for a person.
};

/// A model in ONNX format.
///
/// - Inputs: `tokens` [B, T] or `features` [B, T, I]; and `state` [B, S] with the S values of a row's state, if the
///   model has one. Zeros start a sequence.
/// - Outputs: `logits` [B, T, O] or `forecast` [B, T, horizon, targets]; and `next_state`, which is the `state` of the
///   next call.
/// - B and T are free.
/// - Weights of int8 stay int8. Their LSTM layers with one head become an operator that onnxruntime alone has.
/// - Numbers are floats. A column whose values are so large that a float would lose their changes is in doubles.
/// - Metadata: the description of model and data as JSON under "penstock", as in model files, and the names of inputs,
///   targets and classes.
struct OnnxModel {
  static constexpr int opset = 17;  ///< Version of the ONNX operators; onnxruntime 1.12 and later support it.

  std::vector<OnnxTensor> inputs, outputs;
  std::string file;  ///< Bytes of the ONNX file.
};

/// Exports a model. Throws Error: invalid_argument for an unknown group, for both options together, or for a model of
/// many series without either option; unsupported for a model of 2 GiB or more, the limit of the format.
OnnxModel to_onnx(const Model& model, const OnnxOptions& options = {});

/// Exports a model and writes the file to `path`, which is replaced whole or not at all. Also throws Error(io_failure).
OnnxModel save_onnx(const Model& model, const std::string& path, const OnnxOptions& options = {});

/// Exports a stack of recurrent layers: inputs `x` [B, T, I] and `state` [S, layers * directions, B, H], outputs `y`
/// [B, T, H * directions] and `next_state`. LSTM, GRU and Elman layers with one head become operators of ONNX; other
/// cells become their equations. All rows must have T steps, since a reverse layer starts at the last one.
OnnxModel to_onnx(const Recurrent<float>& network);
/// Exports a stack of recurrent layers and writes the file to `path`.
OnnxModel save_onnx(const Recurrent<float>& network, const std::string& path);

}  // namespace penstock
