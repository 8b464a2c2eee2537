// Networks for users: shapes, elements by name and type, state. tests/python/test_networks.py compares values with
// onnxruntime.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model_file.h"
#include "penstock/network.h"
#include "support/expect_error.h"
#include "support/onnx_model.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using namespace test::onnx;  // NOLINT(google-build-using-namespace): the file's own vocabulary
using test::expect_error;
using testing::Each;
using testing::ElementsAre;

/// y = x + state [batch, 2], next_state = y, for x [batch, 2].
Network sums() {
  const std::string file = model({{value("x", {-1, 2}), value("state", {-1, 2})},
                                  {node("Add", {"x", "state"}, {"y"}), node("Identity", {"y"}, {"next_state"})},
                                  {},
                                  {value("y", {-1, 2}), value("next_state", {-1, 2})}});
  return Network::import_onnx(std::as_bytes(std::span(file)));
}

TEST(Networks, SessionsKeepTheirState) {
  const Network network = sums();
  ASSERT_EQ(network.states().size(), 1U);
  EXPECT_EQ(network.states()[0].output, "next_state");
  EXPECT_EQ(network.inputs().size(), 1U);
  NetworkSession session(network, {{"x", {3, 2}}});  // the state's batch has the name of that of x
  std::ranges::fill(session.input<float>("x"), 1.0F);
  session.run();
  session.run();
  EXPECT_THAT(session.output<float>("y"), Each(2.0F));
  NetworkSession other = session.clone();
  session.reset();
  session.run();
  EXPECT_THAT(session.output<float>("y"), Each(1.0F));
  std::ranges::fill(other.input<float>("x"), 1.0F);
  other.run();
  EXPECT_THAT(other.output<float>("y"), Each(3.0F));
  session.set_state(other.state());
  session.run();
  EXPECT_THAT(session.output<float>("y"), Each(4.0F));
  EXPECT_THAT(session.outputs()[0].shape, ElementsAre(3, 2));
}

TEST(Networks, RefuseInWords) {
  const Network network = sums();
  const auto refuses = [](const std::string& why, const auto& call) {
    expect_error(ErrorCode::invalid_argument, why, call);
  };
  refuses("shapes: input 'x' has the shape [free1, 2]: give its extents", [&] { NetworkSession all(network); });
  refuses("shapes: input 'x' has the shape [free1, 2], not [1, 3]", [&] {
    NetworkSession all(network, {{"x", {1, 3}}});
  });
  refuses("shapes must be of the inputs x, state, not", [&] { NetworkSession all(network, {{"z", {1}}}); });
  NetworkSession session(network, {{"x", {1, 2}}});
  refuses("input must be one of x, not \"z\"", [&] { session.input<float>("z"); });
  refuses(R"(input "x" holds elements of type f32, not i64)", [&] { session.input<std::int64_t>("x"); });
  refuses("state must be 8 bytes, not 3", [&] { session.set_state(std::vector<std::byte>(3)); });
  refuses("position must be below 1, not 1", [&] { session.output(1); });
}

TEST(Networks, FilesSayWhatTheyAre) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("a.safetensors");
  sums().save(path);
  EXPECT_EQ(static_cast<int>(inspect_model_file(path).kind), static_cast<int>(ModelFile::Kind::network));
  EXPECT_EQ(Network::load(path).states().size(), 1U);
  expect_error(ErrorCode::incompatible, "is a network that was imported, not a model of 'penstock train'",
               [&] { Model::load(path); });
}

}  // namespace
}  // namespace penstock
