#pragma once

#include <string>
#include <vector>

#include "penstock/model.h"
#include "penstock/recurrent.h"

/// Models and recurrent layers as ONNX files (opset 17), which onnxruntime and others run without Penstock.
namespace penstock {

/// What the inputs and outputs of an exported model are.
struct OnnxOptions {
  /// Numbers as Model::forward reads and makes them; false: in the units of the data. Without meaning for tokens.
  bool normalised = false;
  /// Of a model of many series: the one by whose scaling values are read and forecast. Goes without `normalised`.
  std::string group = {};
};

/// An input or output of an exported model.
struct OnnxTensor {
  std::string name;                ///< "features"
  std::string type;                ///< "float", "double" or "int64"
  std::vector<std::string> shape;  ///< {"batch", "time", "3"}: what is no number may differ from call to call.
  std::string description;
};

/// A model in ONNX. It reads `tokens` [B, T] or `features` [B, T, I] and, of a model that has one, `state` [B, S], zero
/// at the start of a sequence; it makes `logits` [B, T, O] or `forecast` [B, T, horizon, targets] and `next_state`, by
/// which the next call goes on. B and T are any. Numbers are floats, but doubles where a column in the units of the
/// data is so much larger than it changes that floats would lose what counts. The metadata have the description of
/// model and data as JSON under "penstock", as the file of the model has it, and the names of inputs, targets and
/// classes.
struct OnnxModel {
  static constexpr int opset = 17;  ///< The version of ONNX's operators, which onnxruntime 1.12 and later know.

  std::vector<OnnxTensor> inputs, outputs;
  std::string file;  ///< The bytes of the file.
};

/// Throws Error: invalid_argument for a group that the model does not have, or where it has groups and neither option
/// is given; unsupported for a model of 2 GB or more, which the format cannot hold.
OnnxModel to_onnx(const Model& model, const OnnxOptions& options = {});

/// Writes to_onnx().file to `path`, whole or not at all. Throws Error(io_failure), too.
OnnxModel save_onnx(const Model& model, const std::string& path, const OnnxOptions& options = {});

/// The same for a stack of recurrent layers: `x` [B, T, I] and `state` [S, layers * directions, B, H] become `y`
/// [B, T, H * directions] and `next_state`. LSTM, GRU and Elman networks of one head are ONNX's own operators; the
/// other cells are written from their equations. A reverse layer reads from the last step, so all rows have T steps.
OnnxModel to_onnx(const Recurrent<float>& network);
OnnxModel save_onnx(const Recurrent<float>& network, const std::string& path);

}  // namespace penstock
