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
  std::pair<std::string_view, Index> opset(std::string_view bytes);
  void type(ValueMessage& value, std::string_view bytes);
  void shape(ValueMessage& value, std::string_view bytes);

  const std::string& source_;
  int messages_ = 0, depth_ = 0;
};

std::pair<std::string_view, std::string_view> MessageReader::entry(std::string_view bytes) {
  using Entry = std::pair<std::string_view, std::string_view>;
  return message<Entry>(bytes, [](Entry& it, const ProtobufReader& field) {
    if (field.field() == 1) it.first = field.bytes();
    if (field.field() == 2) it.second = field.bytes();
  });
}

std::pair<std::string_view, Index> MessageReader::opset(std::string_view bytes) {
  using Opset = std::pair<std::string_view, Index>;
  return message<Opset>(bytes, [](Opset& it, const ProtobufReader& field) {
    if (field.field() == 1) it.first = field.bytes();
    if (field.field() == 2) it.second = field.integer();
  });
}

TensorMessage MessageReader::tensor(std::string_view bytes) {
  return message<TensorMessage>(bytes, [&](TensorMessage& it, const ProtobufReader& field) {
    switch (field.field()) {
      case 1:
        field.append(it.dims);
        break;
      case 2:
        it.type = field.integer();
        break;
      case 3:
        it.segmented = true;
        break;
      case 4:
        field.append(it.floats);
        break;
      case 5:
      case 7:
      case 11:
        field.append(it.integers);
        break;
      case 6:
        it.strings = true;
        break;
      case 8:
        it.name = field.bytes();
        break;
      case 9:
        it.raw = field.bytes();
        it.has_raw = true;
        break;
      case 10:
        field.append(it.doubles);
        break;
      case 13:
        it.places.push_back(entry(field.bytes()));
        break;
      case 14:
        it.external = field.integer() != 0;
        break;
      default:
        break;
    }
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
          if (part.field() == 2) it.name = part.bytes();
        }));
  }
}

void MessageReader::type(ValueMessage& value, std::string_view bytes) {
  for (ProtobufReader field(bytes, source_); field.next();) {
    if (field.field() != 1) continue;
    value.is_tensor = true;
    for (ProtobufReader part(field.bytes(), source_); part.next();) {
      if (part.field() == 1) value.type = part.integer();
      if (part.field() == 2) shape(value, part.bytes());
    }
  }
}

ValueMessage MessageReader::value(std::string_view bytes) {
  return message<ValueMessage>(bytes, [&](ValueMessage& it, const ProtobufReader& field) {
    if (field.field() == 1) it.name = field.bytes();
    if (field.field() == 2) type(it, field.bytes());
  });
}

AttributeMessage MessageReader::attribute(std::string_view bytes) {
  return message<AttributeMessage>(bytes, [&](AttributeMessage& it, const ProtobufReader& field) {
    switch (field.field()) {
      case 1:
        it.name = field.bytes();
        break;
      case 2:
        it.f = field.number();
        break;
      case 3:
        it.i = field.integer();
        break;
      case 4:
        it.s = field.bytes();
        break;
      case 5:
      case 10:
        it.tensors.push_back(tensor(field.bytes()));
        break;
      case 6:
      case 11:
        it.graphs.push_back(graph(field.bytes()));
        break;
      case 7:
        field.append(it.floats);
        break;
      case 8:
        field.append(it.ints);
        break;
      case 9:
        it.strings.push_back(field.bytes());
        break;
      case 20:
        it.type = field.integer();
        break;
      case 21:
        it.reference = field.bytes();
        break;
      case 22:
      case 23:
        it.sparse = true;
        break;
      default:
        break;
    }
  });
}

NodeMessage MessageReader::node(std::string_view bytes) {
  return message<NodeMessage>(bytes, [&](NodeMessage& it, const ProtobufReader& field) {
    switch (field.field()) {
      case 1:
        it.inputs.push_back(field.bytes());
        break;
      case 2:
        it.outputs.push_back(field.bytes());
        break;
      case 3:
        it.name = field.bytes();
        break;
      case 4:
        it.op = field.bytes();
        break;
      case 5:
        it.attributes.push_back(attribute(field.bytes()));
        break;
      case 7:
        it.domain = is_own_domain(field.bytes()) ? "" : field.bytes();
        break;
      default:
        break;
    }
  });
}

GraphMessage MessageReader::graph(std::string_view bytes) {
  if (++depth_ > kMostDepth) fail(ErrorCode::bad_input, "{}: graphs in graphs, {} deep and more", source_, kMostDepth);
  auto result = message<GraphMessage>(bytes, [&](GraphMessage& it, const ProtobufReader& field) {
    switch (field.field()) {
      case 1:
        it.nodes.push_back(node(field.bytes()));
        break;
      case 5:
        it.tensors.push_back(tensor(field.bytes()));
        break;
      case 11:
        it.inputs.push_back(value(field.bytes()));
        break;
      case 12:
        it.outputs.push_back(value(field.bytes()));
        break;
      case 15:
        it.sparse = true;
        break;
      default:
        break;
    }
  });
  --depth_;
  return result;
}

FunctionMessage MessageReader::function(std::string_view bytes) {
  return message<FunctionMessage>(bytes, [&](FunctionMessage& it, const ProtobufReader& field) {
    switch (field.field()) {
      case 1:
        it.name = field.bytes();
        break;
      case 4:
        it.inputs.push_back(field.bytes());
        break;
      case 5:
        it.outputs.push_back(field.bytes());
        break;
      case 7:
        it.nodes.push_back(node(field.bytes()));
        break;
      case 9: {
        const auto [domain, version] = opset(field.bytes());
        if (is_own_domain(domain)) it.opset = version;
        break;
      }
      case 10:
        it.domain = field.bytes();
        break;
      case 11:
        it.defaults.push_back(attribute(field.bytes()));
        break;
      default:
        break;
    }
  });
}

ModelMessage MessageReader::model(std::string_view bytes) {
  return message<ModelMessage>(bytes, [&](ModelMessage& it, const ProtobufReader& field) {
    switch (field.field()) {
      case 1:
        it.ir_version = field.integer();
        break;
      case 2:
        it.producer = field.bytes();
        break;
      case 7:
        if (it.has_graph) fail(ErrorCode::bad_input, "{}: the file has two graphs", source_);
        it.graph = graph(field.bytes());
        it.has_graph = true;
        break;
      case 8: {
        const auto [domain, version] = opset(field.bytes());
        if (is_own_domain(domain)) it.opset = version;
        break;
      }
      case 25:
        it.functions.push_back(function(field.bytes()));
        break;
      default:
        break;
    }
  });
}

}  // namespace

std::string shown(std::string_view name) {
  constexpr std::size_t most = 60;
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("./:_-").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain && !name.empty() && name.size() <= most ? std::string(name) : in_quotes(name);
}

ModelMessage decode_model(std::string_view content, const std::string& source) {
  return MessageReader(source).model(content);
}

}  // namespace penstock::io::onnx
