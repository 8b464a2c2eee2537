#include "fuzz/damage.h"
#include "support/onnx_model.h"

namespace penstock::test {
namespace {

using onnx::attribute;
using onnx::Graph;
using onnx::node;
using onnx::tensor;
using onnx::value;

std::string recurrent_model() {
  return onnx::model({{value("x", {-1, 1, 2}), value("h0", {1, 1, 1})},
                      {node("GRU", {"x", "w", "r", "", "", "h0"}, {"y", "h"}, {attribute("hidden_size", 1)}),
                       node("Squeeze", {"y"}, {"z"}, {attribute("axes", std::vector<Index>{1})})},
                      {tensor("w", {1, 3, 2}, {1, 2, 3, 4, 5, 6}), tensor("r", {1, 3, 1}, {1.0F, 2.0F, 3.0F})},
                      {value("z", {-1, 1, 1}), value("h", {1, 1, 1})}},
                     12);
}

std::string branching_model() {
  const Graph yes{{}, {node("Mul", {"x", "w"}, {"a"})}, {}, {value("a", {2})}};
  const Graph no{{}, {node("Add", {"x", "k"}, {"b"})}, {tensor("k", {2}, {1.0F, 2.0F})}, {value("b", {2})}};
  const Graph step{{value("i", {}, onnx::kInt64), value("go", {}, onnx::kBool), value("s", {2})},
                   {node("Abs", {"s"}, {"t"}), node("Identity", {"go"}, {"on"})},
                   {},
                   {value("on", {}, onnx::kBool), value("t", {2})}};
  io::ProtobufMessage function;
  function.bytes(1, "twice").bytes(4, "a").bytes(5, "b").bytes(10, "own");
  function.message(7, node("Add", {"a", "a"}, {"b"}));
  return onnx::model(
      {{value("x", {2}), value("c", {}, onnx::kBool)},
       {node("If", {"c"}, {"y"},
             {attribute("then_branch", yes.message(), true), attribute("else_branch", no.message(), true)}),
        node("Loop", {"m", "c", "y"}, {"l"}, {attribute("body", step.message(), true)}),
        node("twice", {"l"}, {"z"}, {}, "own")},
       {tensor("w", {2}, {1.0F, 2.0F}), onnx::integers("m", {}, {3})},
       {value("z", {2})}},
      17, {function});
}

/// An LSTM whose weights are computed, beside nodes of names that layers of this library have.
std::string layers_model() {
  return onnx::model({{value("x", {-1, 1, 2})},
                      {node("Identity", {"w"}, {"v"}), node("Concat", {"b", "b"}, {"bb"}, {attribute("axis", 1)}),
                       node("Transpose", {"r"}, {"q"}, {attribute("perm", std::vector<Index>{0, 1, 2})}),
                       node("LSTM", {"x", "v", "q", "bb"}, {"y", "h"}, {attribute("hidden_size", 1)}),
                       node("Recurrent", {"y", "v", "q", "bb", "h"}, {"z"}, {attribute("cell", "lstm")}, "own"),
                       node("LSTM", {"x", "v", "q", "", "", "i"}, {"u"}, {attribute("hidden_size", 1)})},
                      {tensor("w", {1, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), tensor("r", {1, 4, 1}, {1, 2, 3, 4}),
                       tensor("b", {1, 4}, {1, 2, 3, 4}), tensor("i", {1, 1, 1}, {0.0F})},
                      {value("z", {-1, 1, 1})}},
                     17);
}

TEST(Fuzz, DamagedOnnx) {
  feed_damaged({recurrent_model(), branching_model(), layers_model()},
               {"LSTM",      "Recurrent", "Identity", "RNN",      "If",        "Scan",     "Constant",
                "Slice",     "axes",      "body",     "x",        "w",         "\x00",     "\xff\xff\xff\xff\x0f",
                "\x7f",      "\x80",      "\x08\x02", "\x12\x00", "\x0a\x01x", "\x2a\x00", "hidden_size",
                "direction", "ai.onnx"},
               [](const std::string& text, Random& /*random*/) { return text; });
}

}  // namespace
}  // namespace penstock::test
