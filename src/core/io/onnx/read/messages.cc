#include "io/onnx/read/messages.h"

#include <algorithm>
#include <cctype>

#include "base/check.h"
#include "io/protobuf_reader.h"

namespace penstock::io::onnx {
namespace {

// An empty message takes two bytes in a file and two hundred here.
constexpr int kMostMessages = 1'000'000;
constexpr int kMostDepth = 32;  // of graphs in graphs; published models nest to 4
constexpr std::size_t kMostAxes = 16;

bool is_own_domain(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

class MessageReader {
 public:
  explicit MessageReader(const std::string& source) : source_(source) {}

  ModelMessage model(std::string_view bytes);

 private:
  template <class Message, class Read>
  Message message(std::string_view bytes, const Read& read) {
    if (++messages_ > kMostMessages) {
      fail(ErrorCode::bad_input, "{}: more than {} nodes, tensors and attributes", source_, kMostMessages);
    }
    Message result;
    for (ProtobufReader field(bytes, source_); field.next();) read(result, field);
    return result;
  }
  TensorMessage tensor(std::string_view bytes);
  ValueMessage value(std::string_view bytes);
  AttributeMessage attribute(std::string_view bytes);
  NodeMessage node(std::string_view bytes);
  GraphMessage graph(std::string_view bytes);
  FunctionMessage function(std::string_view bytes);
  std::pair<std::string_view, std::string_view> entry(std::string_view bytes);
  /// Sets the version of ONNX's own operators, unless these are of another domain.
  void read_opset(std::string_view bytes, Index& opset);
  void type(ValueMessage& value, std::string_view bytes);
  void shape(ValueMessage& value, std::string_view bytes);

  const std::string& source_;
  int messages_ = 0, depth_ = 0;
};

std::pair<std::string_view, std::string_view> MessageReader::entry(std::string_view bytes) {
  using Entry = std::pair<std::string_view, std::string_view>;
  return message<Entry>(bytes, [](Entry& it, const ProtobufReader& field) {
    field.read(1, it.first);
    field.read(2, it.second);
  });
}

void MessageReader::read_opset(std::string_view bytes, Index& opset) {
  using Opset = std::pair<std::string_view, Index>;
  const Opset found = message<Opset>(bytes, [](Opset& it, const ProtobufReader& field) {
    field.read(1, it.first);
    field.read(2, it.second);
  });
  if (is_own_domain(found.first)) opset = found.second;
}

TensorMessage MessageReader::tensor(std::string_view bytes) {
  return message<TensorMessage>(bytes, [&](TensorMessage& it, const ProtobufReader& field) {
    field.read(1, it.dims);
    field.read(2, it.type);
    it.segmented = it.segmented || field.field() == 3;
    field.read(4, it.floats);
    for (const int integers : {5, 7, 11}) field.read(integers, it.integers);
    it.strings = it.strings || field.field() == 6;
    field.read(8, it.name);
    field.read(9, it.raw);
    it.has_raw = it.has_raw || field.field() == 9;
    field.read(10, it.doubles);
    field.read(13, it.places, [&](std::string_view part) { return entry(part); });
    field.read(14, it.external);
    if (it.dims.size() > kMostAxes)
      fail(ErrorCode::bad_input, "{}: a tensor has more than {} axes", source_, kMostAxes);
  });
}

void MessageReader::shape(ValueMessage& value, std::string_view bytes) {
  value.has_shape = true;
  for (ProtobufReader field(bytes, source_); field.next();) {
    if (field.field() != 1) continue;
    if (value.shape.size() == kMostAxes) {
      fail(ErrorCode::bad_input, "{}: '{}' has more than {} axes", source_, value.name, kMostAxes);
    }
    value.shape.push_back(
        message<ValueMessage::Extent>(field.bytes(), [](ValueMessage::Extent& it, const ProtobufReader& part) {
          // PyTorch's older exporters write 0 for an extent that is free.
          if (part.field() == 1) it.size = part.integer() > 0 ? part.integer() : -1;
          part.read(2, it.name);
        }));
  }
}

void MessageReader::type(ValueMessage& value, std::string_view bytes) {
  for (ProtobufReader field(bytes, source_); field.next();) {
    if (field.field() != 1) continue;
    value.is_tensor = true;
    for (ProtobufReader part(field.bytes(), source_); part.next();) {
      part.read(1, value.type);
      if (part.field() == 2) shape(value, part.bytes());
    }
  }
}

ValueMessage MessageReader::value(std::string_view bytes) {
  return message<ValueMessage>(bytes, [&](ValueMessage& it, const ProtobufReader& field) {
    field.read(1, it.name);
    if (field.field() == 2) type(it, field.bytes());
  });
}

AttributeMessage MessageReader::attribute(std::string_view bytes) {
  return message<AttributeMessage>(bytes, [&](AttributeMessage& it, const ProtobufReader& field) {
    field.read(1, it.name);
    field.read(2, it.f);
    field.read(3, it.i);
    field.read(4, it.s);
    for (const int tensors : {5, 10}) {
      field.read(tensors, it.tensors, [&](std::string_view part) { return tensor(part); });
    }
    for (const int graphs : {6, 11}) {
      field.read(graphs, it.graphs, [&](std::string_view part) { return graph(part); });
    }
    field.read(7, it.floats);
    field.read(8, it.ints);
    field.read(9, it.strings);
    field.read(20, it.type);
    field.read(21, it.reference);
    it.sparse = it.sparse || field.field() == 22 || field.field() == 23;
  });
}

NodeMessage MessageReader::node(std::string_view bytes) {
  return message<NodeMessage>(bytes, [&](NodeMessage& it, const ProtobufReader& field) {
    field.read(1, it.inputs);
    field.read(2, it.outputs);
    field.read(3, it.name);
    field.read(4, it.op);
    field.read(5, it.attributes, [&](std::string_view part) { return attribute(part); });
    field.read(7, it.domain);
    if (is_own_domain(it.domain)) it.domain = "";
  });
}

GraphMessage MessageReader::graph(std::string_view bytes) {
  if (++depth_ > kMostDepth) fail(ErrorCode::bad_input, "{}: graphs in graphs, {} deep and more", source_, kMostDepth);
  auto result = message<GraphMessage>(bytes, [&](GraphMessage& it, const ProtobufReader& field) {
    field.read(1, it.nodes, [&](std::string_view part) { return node(part); });
    field.read(5, it.tensors, [&](std::string_view part) { return tensor(part); });
    field.read(11, it.inputs, [&](std::string_view part) { return value(part); });
    field.read(12, it.outputs, [&](std::string_view part) { return value(part); });
    it.sparse = it.sparse || field.field() == 15;
  });
  --depth_;
  return result;
}

FunctionMessage MessageReader::function(std::string_view bytes) {
  return message<FunctionMessage>(bytes, [&](FunctionMessage& it, const ProtobufReader& field) {
    field.read(1, it.name);
    field.read(4, it.inputs);
    field.read(5, it.outputs);
    field.read(7, it.nodes, [&](std::string_view part) { return node(part); });
    if (field.field() == 9) read_opset(field.bytes(), it.opset);
    field.read(10, it.domain);
    field.read(11, it.defaults, [&](std::string_view part) { return attribute(part); });
  });
}

ModelMessage MessageReader::model(std::string_view bytes) {
  return message<ModelMessage>(bytes, [&](ModelMessage& it, const ProtobufReader& field) {
    field.read(1, it.ir_version);
    field.read(2, it.producer);
    if (field.field() == 7) {
      if (it.has_graph) fail(ErrorCode::bad_input, "{}: the file has two graphs", source_);
      it.graph = graph(field.bytes());
      it.has_graph = true;
    }
    if (field.field() == 8) read_opset(field.bytes(), it.opset);
    field.read(25, it.functions, [&](std::string_view part) { return function(part); });
  });
}

/// Refuses files of other formats, which would be called damaged otherwise.
void refuse_other_formats(std::string_view content, const std::string& source) {
  struct Format {
    std::size_t at;
    std::string_view mark;
    const char* what;
  };
  constexpr Format formats[] = {
      {0, "version https://git-lfs", "a pointer of Git LFS instead of the file: run git lfs pull in its folder"},
      {0, "PK\x03\x04", "a zip archive, as PyTorch and Keras write: export the model to ONNX, or unpack the archive"},
      {0, "\x89HDF", "an HDF5 file, as Keras writes: export the model to ONNX"},
      {4, "TFL3", "a TensorFlow Lite file: export the model to ONNX"},
      {4, "ORTM", "in the format of ONNX Runtime: give the ONNX file that it was made of"},
  };
  for (const Format& each : formats) {
    if (content.size() > each.at && content.substr(each.at).starts_with(each.mark)) {
      fail(ErrorCode::bad_input, "{}: this is {}", source, each.what);
    }
  }
}

}  // namespace

std::string shown(std::string_view name) {
  constexpr std::size_t most = 60;
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("./:_-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain && !name.empty() && name.size() <= most ? std::string(name) : in_quotes(name);
}

std::string title_of(const NodeMessage& node) {
  const auto first = std::ranges::find_if(node.outputs, [](std::string_view each) { return !each.empty(); });
  const std::string_view name = !node.name.empty() ? node.name : first == node.outputs.end() ? "" : *first;
  return fmt::format("{} {}", shown(node.op), in_quotes(name));
}

ModelMessage decode_model(std::string_view content, const std::string& source) {
  refuse_other_formats(content, source);
  return MessageReader(source).model(content);
}

}  // namespace penstock::io::onnx
