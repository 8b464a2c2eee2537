// Nodes that no network should have: a Status in words, never a crash.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/network_maker.h"

namespace penstock::network {
namespace {

using ::testing::HasSubstr;

TEST(NetworkRefusals, RefusesNodesThatMakeNoSense) {
  struct Case {
    std::string op;
    std::vector<Shape> reads;
    std::vector<Attribute> attributes;
    std::string message;
  };
  constexpr Index huge = Index{1} << 62;
  const std::vector<Case> cases = {
      {"Transpose", {{2, 3}}, {{"perm", {0, 0}}}, "is no order"},
      {"Transpose", {{2, 3}}, {{"perm", {0}}}, "is no order"},
      {"Concat", {{2, 3}, {3, 2}}, {{"axis", {1}}}, "cannot be joined"},
      {"Concat", {{2, 3}}, {{"axis", {9}}}, "axis 9 does not exist"},
      {"Softmax", {{2}}, {{"axis", {-5}}}, "axis -5"},
      {"MatMul", {{2, 3}, {4, 2}}, {}, "cannot be multiplied"},
      {"MatMul", {{}, {4, 2}}, {}, "a single number"},
      {"Gemm", {{2, 3}, {3, 2}, {5}}, {}, "cannot be added"},
      {"Einsum", {{2, 3}, {3}}, {{"equation", {}, {}, "ij,jk->ik"}}, "other axes"},
      {"Einsum", {{2, 2}}, {{"equation", {}, {}, "ii->i"}}, "twice"},
      {"Einsum", {{2, 2}}, {{"equation", {}, {}, "i%->i"}}, "character '%'"},
      {"Add", {{2, 3}, {4}}, {}, "do not fit"},
      {"Conv", {{1, 3, 8}, {4, 3, 9}}, {}, "longer than the axis"},
      {"Conv", {{1, 3, 8}, {4, 2, 3}}, {}, "do not fit an input"},
      {"Conv", {{1, 3, 8}, {4, 3, 3}}, {{"group", {0}}}, "0 groups"},
      {"Conv", {{1, 3, 8}, {4, 3, 3}}, {{"group", {-3}}}, "-3 groups"},
      {"Conv", {{1, 3, 8}, {4, 3, 3}}, {{"strides", {0}}}, "at least 1"},
      {"Conv", {{1, 3, 8}, {4, 3, 3}}, {{"strides", {1, 1}}}, "'strides' is [1, 1]"},
      {"Conv", {{1, 3, 8}, {4, 3, 3}}, {{"pads", {huge, huge}}}, "'pads'"},
      {"Conv", {{1, 3, 8}, {4, 3, 3}}, {{"dilations", {huge}}}, "'dilations'"},
      {"Conv", {{1, 3, 8}, {4, 3, 3}}, {{"kernel_shape", {5}}}, "but the weights have [3]"},
      {"Conv", {{1, 3, 2, 2, 2}, {4, 3, 1, 1, 1}}, {}, "three axes"},
      {"Conv", {{1, 1, 8, 8}, {1, 1, 1, 1}}, {{"pads", {1 << 24, 1 << 24, 1 << 24, 1 << 24}}}, "GiB"},
      {"ConvTranspose", {{1, 3, 8}, {3, 2, 3}}, {{"pads", {90, 90}}}, "elements"},
      {"MaxPool", {{1, 3, 8}}, {}, "'kernel_shape' is missing"},
      {"Squeeze", {{2, 3}}, {{"axes", {0}}}, "cannot be squeezed"},
      {"ReduceSum", {{2, 3}}, {{"axes", {1, 1}}}, "twice"},
      {"DepthToSpace", {{1, 3, 2, 2}}, {{"blocksize", {0}}}, "blocksize"},
      {"Split", {{5}}, {{"num_outputs", {3}}}, "num_outputs"},
      {"LayerNormalization", {{2, 3}, {4}}, {}, "scale"},
      {"BatchNormalization", {{2, 3}, {3}, {3}, {3}, {2}}, {}, "does not fit 3 channels"},
      {"GroupNormalization", {{2, 3}, {3}, {3}}, {{"num_groups", {2}}}, "groups"},
      {"Recurrent", {{2, 1, 3}, {1, 8, 3}, {1, 8, 2}}, {{"cell", {}, {}, "hop"}}, "no cell 'hop'"},
      {"Recurrent", {{2, 1, 3}, {1, 8, 3}, {1, 8, 2}}, {{"cell", {}, {}, "{"}}, "its cell"},
      {"Recurrent", {{2, 1, 3}, {1, 8, 4}, {1, 8, 2}}, {{"cell", {}, {}, "lstm"}}, "has shape"},
      {"Recurrent", {{2, 1, 3}, {1, 8, 3}, {1, 8, 2}}, {{"cell", {}, {}, "lstm"}, {"heads", {0}}}, "heads"},
      {"Recurrent", {{2, 1, 3}, {1, 8, 3}}, {{"cell", {}, {}, "lstm"}}, "recurrent weights are missing"},
  };
  for (const Case& each : cases) {
    Maker maker;
    std::vector<int> reads;
    for (const Shape& shape : each.reads) reads.push_back(maker.constant(noise(shape, 28)));
    maker.output(maker.node(each.op, reads, each.attributes));
    const Status status = Running(maker.network, {}).status;
    EXPECT_FALSE(status.ok()) << each.op;
    EXPECT_THAT(status.text, HasSubstr(each.message)) << each.op;
  }
}

TEST(NetworkRefusals, RefusesNumbersThatMakeNoSense) {
  constexpr Index huge = Index{1} << 62;
  const auto refusal = [](const std::string& op, const std::vector<std::vector<Index>>& lists) {
    Maker maker;
    std::vector<int> reads = {maker.constant(noise({4, 3}, 29))};
    for (const std::vector<Index>& list : lists) reads.push_back(maker.constant(list));
    maker.output(maker.node(op, reads));
    return Running(maker.network, {}).status.text;
  };
  EXPECT_THAT(refusal("Reshape", {{huge, huge}}), HasSubstr("is not a shape"));
  EXPECT_THAT(refusal("Reshape", {{-1, -1}}), HasSubstr("two extents open"));
  EXPECT_THAT(refusal("Reshape", {{5, 5}}), HasSubstr("cannot have shape [5, 5]"));
  EXPECT_THAT(refusal("Expand", {{huge, 4, 3}}), HasSubstr("GiB"));
  EXPECT_THAT(refusal("Expand", {{-4, 3}}), HasSubstr("negative"));
  EXPECT_THAT(refusal("Tile", {{huge, huge}}), HasSubstr("GiB"));
  EXPECT_THAT(refusal("Pad", {{huge, huge, huge, huge}}), HasSubstr("'pads'"));
  EXPECT_THAT(refusal("Pad", {{1}}), HasSubstr("'pads' has 1 numbers"));
  EXPECT_THAT(refusal("Pad", {{-9, 0, 0, 0}}), HasSubstr("negative"));
  EXPECT_THAT(refusal("Slice", {{0}, {1, 2}}), HasSubstr("differ in length"));
  EXPECT_THAT(refusal("Slice", {{0}, {1}, {7}}), HasSubstr("axis 7 does not exist"));
  EXPECT_THAT(refusal("Slice", {{0}, {1}, {0}, {0}}), HasSubstr("is 0"));
  EXPECT_THAT(refusal("Gather", {{4}}), HasSubstr("index 4 does not exist on an axis of 4"));
  EXPECT_THAT(refusal("TopK", {{9}}), HasSubstr("'k' must be from 0"));
  EXPECT_THAT(refusal("Unsqueeze", {{0, 0}}), HasSubstr("twice"));
  EXPECT_EQ(refusal("Slice", {{-huge}, {huge}, {0}, {huge}}), "");
  EXPECT_EQ(refusal("Slice", {{huge}, {-huge}, {0}, {-huge}}), "");
}

TEST(NetworkRefusals, AnIndexBeyondTheEndTakesTheNearestElement) {
  Maker maker;
  const int x = maker.input("x", {3}, Type::i64);
  maker.output(maker.node("Gather", {maker.constant(floats({2}, {5, 7})), x}));
  Running running(maker.network, {{3}});
  running.set(0, integers({100, -100, -1}));
  running.run();
  EXPECT_THAT(running.output(0).as<float>(), ::testing::ElementsAre(7, 5, 7));
}

}  // namespace
}  // namespace penstock::network
