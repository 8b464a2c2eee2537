// Older forms of operators become the newest. https://github.com/onnx/onnx/blob/main/docs/Changelog.md has what
// changed.

#include <algorithm>
#include <array>
#include <limits>

#include "io/onnx/read/draft.h"
#include "io/onnx/read/tensor.h"

namespace penstock::io::onnx {
namespace {

/// An attribute that became an input.
struct Moved {
  std::string_view op;
  Index since;  ///< The first version with the input.
  std::string_view attribute;
  std::size_t read;
  bool scalar = false;
};
constexpr Moved kMoved[] = {
    {"Slice", 10, "starts", 1},         {"Slice", 10, "ends", 2},
    {"Slice", 10, "axes", 3},           {"TopK", 10, "k", 1},
    {"Upsample", 9, "scales", 1},       {"Clip", 11, "min", 1, true},
    {"Clip", 11, "max", 2, true},       {"Pad", 11, "pads", 1},
    {"Pad", 11, "value", 2, true},      {"Squeeze", 13, "axes", 1},
    {"Unsqueeze", 13, "axes", 1},       {"ReduceSum", 13, "axes", 1},
    {"Split", 13, "split", 1},          {"ReduceMean", 18, "axes", 1},
    {"ReduceMax", 18, "axes", 1},       {"ReduceMin", 18, "axes", 1},
    {"ReduceProd", 18, "axes", 1},      {"ReduceL1", 18, "axes", 1},
    {"ReduceL2", 18, "axes", 1},        {"ReduceLogSum", 18, "axes", 1},
    {"ReduceLogSumExp", 18, "axes", 1}, {"ReduceSumSquare", 18, "axes", 1},
    {"DFT", 20, "axis", 2, true},
};

void move_attributes(Draft& draft) {
  for (const Moved& moved : kMoved) {
    if (moved.op != draft.node.op || draft.opset() >= moved.since) continue;
    const network::Attribute taken = draft.take(moved.attribute);
    if (taken.name.empty()) continue;
    if (moved.scalar && taken.integers.size() + taken.numbers.size() != 1) {
      draft.refuse(ErrorCode::bad_input, "its attribute {} is not a number", moved.attribute);
    }
    int value = -1;
    if (!taken.integers.empty() || taken.numbers.empty()) {
      value = moved.scalar ? draft.integer(taken.integers.front()) : draft.integers(taken.integers);
    } else if (moved.scalar) {
      value = draft.number(taken.numbers.front());
    } else {
      value = draft.constant(make_constant(network::Type::f32, {static_cast<Index>(taken.numbers.size())},
                                           std::as_bytes(std::span(taken.numbers))));
    }
    draft.set_read(moved.read, value);
  }
}

/// Returns whether an input that chooses training is absent or false.
bool is_inference(const Draft& draft, std::size_t read) {
  if (!draft.has(read)) return true;
  const network::Constant* const known = draft.known(draft.read(read));
  return known != nullptr && known->bytes.size() == 1 && known->bytes.front() == std::byte{0};
}

void convert_dropout(Draft& draft) {
  if (!is_inference(draft, 2)) {
    draft.refuse(ErrorCode::unsupported, "it drops values, as in training: export the model for inference");
  }
  if (draft.writes(1)) {
    const bool all = true;
    const int kept = draft.constant(make_constant(network::Type::boolean, {}, std::as_bytes(std::span(&all, 1))));
    draft.add("Expand", {kept, draft.apply("Shape", {draft.read(0)})}, {draft.node.writes[1]});
  }
  draft.add("Identity", {draft.read(0)}, {draft.node.writes.at(0)});
}

void convert_batch_norm(Draft& draft) {
  if (draft.take_integer("training_mode", 0) != 0 || draft.writes(1)) {
    draft.refuse(ErrorCode::unsupported, "it normalises by its batch, as in training: export the model for inference");
  }
  draft.take("momentum");
  draft.take("spatial");
  draft.node.writes.resize(1);
  draft.finish();
}

/// Until version 12, all axes from `axis` on were one.
void convert_softmax(Draft& draft) {
  const Index axis = draft.take_integer("axis", 1);
  draft.set("axis", {-1});
  if (axis == -1) {
    draft.finish();
    return;
  }
  const int x = draft.read(0), shape = draft.apply("Shape", {x});
  const int flat = draft.apply("Flatten", {x}, {{.name = "axis", .integers = {axis}}});
  const int y = draft.apply(draft.node.op, {flat}, draft.node.attributes);
  draft.add("Reshape", {y, shape}, {draft.node.writes.at(0)});
}

void convert_resize(Draft& draft) {
  const int scales = draft.read(1);
  draft.node.op = "Resize";
  draft.node.reads = {draft.read(0), -1, scales};
  draft.node.attributes.push_back({.name = "coordinate_transformation_mode", .text = "asymmetric"});
  draft.node.attributes.push_back({.name = "nearest_mode", .text = "floor"});
  draft.finish();
}

void convert_constant_of_shape(Draft& draft) {
  const auto found = std::ranges::find(draft.message().attributes, "value", &AttributeMessage::name);
  Source source{draft.source(), {}};
  network::Constant value = found == draft.message().attributes.end() || found->tensors.empty()
                                ? make_number(0)
                                : to_constant(found->tensors.front(), source);
  if (!value.shape.empty() && value.shape != network::Shape{1}) {
    draft.refuse(ErrorCode::bad_input, "its value has the shape [{}], expected [1]", fmt::join(value.shape, ", "));
  }
  value.shape = {};
  draft.add("Expand", {draft.constant(std::move(value)), draft.read(0)}, {draft.node.writes.at(0)});
}

void convert_constant(Draft& draft) {
  draft.refuse(ErrorCode::bad_input, "it has no value");  // constants with a value never come here
}

void convert_split(Draft& draft) {
  if (!draft.has(1)) draft.set("num_outputs", {static_cast<Index>(draft.node.writes.size())});
  draft.finish();
}

void convert_group_norm(Draft& draft) {
  draft.refuse(
      ErrorCode::unsupported,
      "GroupNormalization has a scale per group before version 21 of the operators, not per channel: export the "
      "model with opset_version=21 or newer");
}

void rename_modes(Draft& draft) {
  for (network::Attribute& attribute : draft.node.attributes) {
    if (attribute.text == "bilinear") attribute.text = "linear";
    if (attribute.text == "bicubic") attribute.text = "cubic";
  }
  draft.finish();
}

void convert_roi_align(Draft& draft) {
  draft.node.attributes.push_back({.name = "coordinate_transformation_mode", .text = "output_half_pixel"});
  draft.finish();
}

void convert_scatter(Draft& draft) {
  draft.node.op = "ScatterElements";
  draft.finish();
}

/// An operator that is converted by a function if the file's version is below `before`.
struct Conversion {
  std::string_view op;
  Index before;
  void (*convert)(Draft& draft);
};
constexpr Index kAlways = std::numeric_limits<Index>::max();
constexpr Conversion kConversions[] = {
    {"LSTM", kAlways, convert_recurrent},
    {"GRU", kAlways, convert_recurrent},
    {"RNN", kAlways, convert_recurrent},
    {"Constant", kAlways, convert_constant},
    {"ConstantOfShape", kAlways, convert_constant_of_shape},
    {"Dropout", kAlways, convert_dropout},
    {"BatchNormalization", kAlways, convert_batch_norm},
    {"Softmax", 13, convert_softmax},
    {"LogSoftmax", 13, convert_softmax},
    {"Hardmax", 13, convert_softmax},
    {"Upsample", kAlways, convert_resize},
    {"Resize", 11, convert_resize},
    {"Split", 18, convert_split},
    {"GroupNormalization", 21, convert_group_norm},
    {"GridSample", 20, rename_modes},
    {"RoiAlign", 16, convert_roi_align},
    {"Scatter", 11, convert_scatter},
};

}  // namespace

void convert(Draft& draft) {
  if (draft.message().domain == "com.microsoft" && draft.node.op == "DynamicQuantizeLSTM") {
    convert_recurrent(draft);
    return;
  }
  if (!draft.message().domain.empty()) {
    draft.refuse(ErrorCode::unsupported,
                 "its operator is of the domain {}, expected those of ONNX itself: export the model without that "
                 "extension",
                 in_quotes(draft.message().domain));
  }
  if (draft.node.op == "Recurrent") {  // a layer of Penstock, which conversions alone make
    draft.refuse(ErrorCode::unsupported, "ONNX has no operator Recurrent");
  }
  move_attributes(draft);
  const auto* const found = std::ranges::find_if(
      kConversions, [&](const Conversion& each) { return each.op == draft.node.op && draft.opset() < each.before; });
  found == std::end(kConversions) ? draft.finish() : found->convert(draft);
}

}  // namespace penstock::io::onnx
