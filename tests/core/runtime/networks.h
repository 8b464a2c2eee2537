#pragma once

#include <penstock.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/runtime/handles.h"
#include "penstock/network.h"
#include "support/onnx_model.h"
#include "support/temporary_folder.h"

namespace penstock::test {

/// Numbers between -0.5 and 0.5.
inline std::vector<float> numbers(std::size_t count, float seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 0.5F * std::sin(seed + 1.7F * static_cast<float>(i * (i + 3)));
  return values;
}

/// A network with every kind of cell that an import makes, the states inside: samples x [1, 12] and a whole number
/// `level` in; `share` [1, 6] and `best`, the place of its largest, out.
inline Network listener() {
  using namespace onnx;  // NOLINT(google-build-using-namespace): the file's own vocabulary
  const auto weights = [](const std::string& name, std::vector<Index> shape, float seed) {
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    return tensor(name, shape, numbers(static_cast<std::size_t>(count), seed));
  };
  const auto layer = [](const std::string& op, const Names& reads, const Names& writes, int hidden) {
    return node(op, reads, writes, {attribute("hidden_size", hidden)});
  };
  const std::string file =
      model({{value("x", {1, 12}), value("level", {1}, kInt64), value("h", {1, 1, 5}), value("c", {1, 1, 5}),
              value("g", {1, 1, 4}), value("ph", {1, 1, 3}), value("pc", {1, 1, 3})},
             {node("Reshape", {"x", "steps"}, {"x0"}),
              layer("LSTM", {"x0", "w1", "r1", "b1", "", "h", "c"}, {"y1", "hn", "cn"}, 5),
              node("Reshape", {"y1", "joined"}, {"x1"}), layer("GRU", {"x1", "w2", "r2", "", "", "g"}, {"y2", "gn"}, 4),
              node("Reshape", {"y2", "joined"}, {"x2"}),
              layer("LSTM", {"x2", "w3", "r3", "", "", "ph", "pc", "p3"}, {"y3", "phn", "pcn"}, 3),
              node("Reshape", {"y3", "flat"}, {"x3"}), node("Cast", {"level"}, {"factor"}, {attribute("to", kFloat)}),
              node("Mul", {"x3", "factor"}, {"x4"}), node("Sigmoid", {"x4"}, {"share"}),
              node("ArgMax", {"share"}, {"best"}, {attribute("axis", 1), attribute("keepdims", 0)})},
             {integers("steps", {3}, {2, 1, 6}), integers("joined", {3}, {2, 1, -1}), integers("flat", {2}, {1, 6}),
              weights("w1", {1, 20, 6}, 1), weights("r1", {1, 20, 5}, 2), weights("b1", {1, 40}, 3),
              weights("w2", {1, 12, 5}, 4), weights("r2", {1, 12, 4}, 5), weights("w3", {1, 12, 4}, 6),
              weights("r3", {1, 12, 3}, 7), weights("p3", {1, 9}, 8)},
             {value("share", {1, 6}), value("best", {1}, kInt64), value("hn", {1, 1, 5}), value("cn", {1, 1, 5}),
              value("gn", {1, 1, 4}), value("phn", {1, 1, 3}), value("pcn", {1, 1, 3})}});
  return Network::import_onnx(std::as_bytes(std::span(file)));
}

/// The bytes of a network's file.
inline std::string file_of(const Network& network) {
  const TemporaryFolder folder;
  network.save(folder.path("network.safetensors"));
  return folder.read("network.safetensors");
}

/// A network of the C runtime.
inline RuntimeModel open_network(const std::string& file, const std::vector<penstock_shape>& shapes = {}) {
  penstock_model* model = nullptr;
  penstock_error error = {};
  EXPECT_EQ(penstock_network_open_memory(file.data(), file.size(), shapes.data(), shapes.size(), &model, &error),
            PENSTOCK_OK)
      << error.text;
  return RuntimeModel(model);
}

/// What step t of the listener reads.
inline std::vector<float> listened(int t) {
  std::vector<float> row = numbers(12, static_cast<float>(t));
  row.push_back(static_cast<float>(t % 4 + 1));
  return row;
}

}  // namespace penstock::test
