// Networks that `penstock import` wrote, in the C runtime: the answers, the state and the refusals of the full library.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "core/runtime/handles.h"
#include "core/runtime/models.h"
#include "core/runtime/networks.h"
#include "support/tolerance.h"

namespace penstock::test {
namespace {

using testing::HasSubstr;

/// Expects that call(error) fails with this status and a text of one line.
template <class Call>
void expect_refusal(penstock_status status, const std::string& text, const Call& call) {
  penstock_error error = {PENSTOCK_OK, {}};
  EXPECT_EQ(call(&error), status) << error.text;
  EXPECT_THAT(std::string(error.text), HasSubstr(text));
  EXPECT_EQ(std::string(error.text).find('\n'), std::string::npos);
}

/// Expects that a file is refused when it is opened with these shapes.
void expect_file_refusal(penstock_status status, const std::string& text, const std::string& file,
                         const std::vector<penstock_shape>& shapes = {}) {
  penstock_model* model = nullptr;
  expect_refusal(status, text, [&](penstock_error* error) {
    return penstock_network_open_memory(file.data(), file.size(), shapes.data(), shapes.size(), &model, error);
  });
  EXPECT_EQ(model, nullptr);
}

/// What the full library answers.
std::vector<float> answer_of(NetworkSession& session, const std::vector<float>& row) {
  std::copy_n(row.begin(), 12, session.input<float>("x").begin());
  session.input<std::int64_t>("level")[0] = static_cast<std::int64_t>(row[12]);
  session.run();
  const auto share = session.output<float>("share");
  std::vector<float> answer(share.begin(), share.end());
  answer.push_back(static_cast<float>(session.output<std::int64_t>("best")[0]));
  return answer;
}

TEST(RuntimeNetworks, AnswerWithTheBitsOfTheFullLibrary) {
  const Network network = listener();
  ASSERT_EQ(network.states().size(), 5U);
  NetworkSession session(network);
  const std::string file = file_of(network);
  const RuntimeModel model = open_network(file);
  RuntimeSession runtime(model);
  for (int t = 0; t < 50; ++t) {
    ASSERT_TRUE(same_bits(runtime.push(listened(t)), answer_of(session, listened(t)))) << "step " << t;
  }
  const std::vector<std::byte> state = session.state();
  std::vector<float> floats(state.size() / sizeof(float));
  std::memcpy(floats.data(), state.data(), state.size());
  EXPECT_TRUE(same_bits(runtime.state(), floats));
}

/// y = x w, with x [-1, 80]; or the numbers that x is rounded to.
Network wide_product(bool rounded) {
  using namespace onnx;  // NOLINT(google-build-using-namespace): the file's own vocabulary
  const std::string file =
      model({{value("x", {-1, 80})},
             {rounded ? node("DynamicQuantizeLinear", {"x"}, {"q", "y", "z"}) : node("MatMul", {"x", "w"}, {"y"})},
             {tensor("w", {80, 80}, numbers(80 * 80, 2))},
             {value("y", rounded ? std::vector<Index>() : std::vector<Index>{-1, 80})}});
  return Network::import_onnx(std::as_bytes(std::span(file)));
}

TEST(RuntimeNetworks, RefuseWhatOnlyTheFullLibraryComputes) {
  const Network product = wide_product(false);
  const std::int64_t extents[] = {2, 80};
  const std::vector<penstock_shape> shapes = {{"x", extents, 2}};
  const std::string file = file_of(product.with_int8(int8_layers(product)));
  const RuntimeModel model = open_network(file, shapes);
  expect_file_refusal(PENSTOCK_UNSUPPORTED, "RoundedMatMul", file_of(product.with_int8(int8_layers(product), true)),
                      shapes);
  const Network rounded = wide_product(true);
  const Network rows = rounded.with_row_ranges({{"x", {1, 80}}}, {{"x", {2, 80}}});
  expect_file_refusal(PENSTOCK_UNSUPPORTED, "there is no such operator in this library", file_of(rows), shapes);
}

TEST(RuntimeNetworks, SayWhatTheyReadAndReturn) {
  const std::string file = file_of(listener());
  const RuntimeModel model = open_network(file);
  const penstock_model_info info = model.info();
  EXPECT_EQ(info.task, PENSTOCK_NETWORK);
  EXPECT_EQ(info.inputs, 13U);
  EXPECT_EQ(info.outputs, 7U);
  EXPECT_EQ(info.state_size, 20U);
  EXPECT_GT(info.parameters, 400U);
  penstock_tensor tensor = {};
  ASSERT_EQ(penstock_network_get_input(model.get(), 1, &tensor, nullptr), PENSTOCK_OK);
  EXPECT_STREQ(tensor.name, "level");
  EXPECT_EQ(tensor.rank, 1U);
  EXPECT_EQ(tensor.extents[0], 1);
  EXPECT_EQ(tensor.first, 12U);
  ASSERT_EQ(penstock_network_get_output(model.get(), 0, &tensor, nullptr), PENSTOCK_OK);
  EXPECT_STREQ(tensor.name, "share");
  EXPECT_EQ(tensor.size, 6U);
  expect_refusal(PENSTOCK_INVALID_ARGUMENT, "the network has 2 inputs, there is no number 2",
                 [&](penstock_error* error) { return penstock_network_get_input(model.get(), 2, &tensor, error); });
  const std::string other = file_of(series_model());
  const RuntimeModel recurrent(other.data(), other.size());
  expect_refusal(PENSTOCK_INVALID_ARGUMENT, "the model is no network", [&](penstock_error* error) {
    return penstock_network_get_output(recurrent.get(), 0, &tensor, error);
  });
  expect_refusal(PENSTOCK_INVALID_ARGUMENT, "the model is not open",
                 [&](penstock_error* error) { return penstock_network_get_input(nullptr, 0, &tensor, error); });
}

TEST(RuntimeNetworks, AreRefusedByTheOtherOpener) {
  penstock_model* model = nullptr;
  const std::string file = file_of(listener()), recurrent = file_of(series_model());
  expect_refusal(PENSTOCK_INCOMPATIBLE, "open it by penstock_network_open()", [&](penstock_error* error) {
    return penstock_model_open_memory(file.data(), file.size(), &model, error);
  });
  expect_file_refusal(PENSTOCK_INCOMPATIBLE, "open it by penstock_model_open()", recurrent);
  expect_file_refusal(PENSTOCK_BAD_INPUT, "no safetensors file", "nothing");
}

TEST(RuntimeNetworks, ShapesThatDoNotFitAreRefused) {
  const std::string file = file_of(listener());
  const std::int64_t extents[] = {1, 11};
  expect_file_refusal(PENSTOCK_INVALID_ARGUMENT, "input 'x' has the shape [1, 12], not [1, 11]", file,
                      {{"x", extents, 2}});
  expect_file_refusal(PENSTOCK_INVALID_ARGUMENT, "not of 'z'", file, {{"z", extents, 2}});
  expect_file_refusal(PENSTOCK_INVALID_ARGUMENT, "shapes[0] must have a name", file, {{nullptr, extents, 2}});
  expect_file_refusal(PENSTOCK_INVALID_ARGUMENT, "shapes[0] must have a name", file, {{"x", nullptr, 2}});
}

TEST(RuntimeNetworks, DamagedFilesAreRefused) {
  const std::string file = file_of(listener());
  for (std::size_t at = 0; at < file.size(); at += 7) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    penstock_model* model = nullptr;
    penstock_error error = {};
    EXPECT_NE(penstock_network_open_memory(damaged.data(), damaged.size(), nullptr, 0, &model, &error), PENSTOCK_OK);
    EXPECT_EQ(model, nullptr);
    EXPECT_NE(error.text[0], '\0');
  }
}

TEST(RuntimeNetworks, KeepSaveAndCopyTheirState) {
  const std::string file = file_of(listener());
  const RuntimeModel model = open_network(file);
  RuntimeSession session(model);
  for (int t = 0; t < 5; ++t) session.push(listened(t));
  std::vector<char> saved(model.info().saved_size), room(model.info().session_bytes + 3);
  ASSERT_EQ(penstock_session_save(session.get(), saved.data(), saved.size(), nullptr), PENSTOCK_OK);
  const std::vector<float> state = session.state();
  penstock_session* handle = nullptr;
  ASSERT_EQ(penstock_session_clone(session.get(), room.data() + 3, room.size() - 3, &handle, nullptr), PENSTOCK_OK);
  RuntimeSession copy(handle, model);
  const std::vector<float> next = session.push(listened(5));
  EXPECT_TRUE(same_bits(copy.push(listened(5)), next));
  ASSERT_EQ(penstock_session_restore(session.get(), saved.data(), saved.size(), nullptr), PENSTOCK_OK);
  EXPECT_TRUE(same_bits(session.push(listened(5)), next));
  ASSERT_EQ(penstock_session_reset(session.get(), nullptr), PENSTOCK_OK);
  EXPECT_FALSE(same_bits(session.push(listened(5)), next));
  ASSERT_EQ(penstock_session_set_state(session.get(), state.data(), state.size(), nullptr), PENSTOCK_OK);
  EXPECT_TRUE(same_bits(session.push(listened(5)), next));
  saved.back() = static_cast<char>(saved.back() ^ 1);
  expect_refusal(PENSTOCK_BAD_INPUT, "damaged", [&](penstock_error* error) {
    return penstock_session_restore(session.get(), saved.data(), saved.size(), error);
  });
}

TEST(RuntimeNetworks, ChunksAreStepsOneAfterTheOther) {
  const std::string file = file_of(listener());
  const RuntimeModel model = open_network(file);
  RuntimeSession steps(model), chunk(model);
  std::vector<float> rows, want, got(7 * 4);
  for (int t = 0; t < 4; ++t) {
    const std::vector<float> row = listened(t), answer = steps.push(row);
    rows.insert(rows.end(), row.begin(), row.end());
    want.insert(want.end(), answer.begin(), answer.end());
  }
  ASSERT_EQ(penstock_session_chunk(chunk.get(), rows.data(), rows.size(), got.data(), got.size(), nullptr),
            PENSTOCK_OK);
  EXPECT_TRUE(same_bits(got, want));
  ASSERT_EQ(penstock_session_sequence(chunk.get(), rows.data(), rows.size(), got.data(), got.size(), nullptr),
            PENSTOCK_OK);
  EXPECT_TRUE(same_bits(got, want));
}

TEST(RuntimeNetworks, TreatNumbersThatAreNoneByTheirPolicy) {
  const std::string file = file_of(listener());
  const RuntimeModel model = open_network(file);
  RuntimeSession session(model), zeros(model);
  std::vector<float> row = listened(1), zeroed = row, outputs(7);
  row[3] = std::numeric_limits<float>::quiet_NaN(), zeroed[3] = 0.0F;
  expect_refusal(PENSTOCK_INVALID_ARGUMENT, "feature 3 must be a number", [&](penstock_error* error) {
    return penstock_session_step(session.get(), row.data(), row.size(), outputs.data(), outputs.size(), error);
  });
  ASSERT_EQ(penstock_session_set_nan_policy(session.get(), PENSTOCK_NAN_ZERO, nullptr), PENSTOCK_OK);
  EXPECT_TRUE(same_bits(session.push(row), zeros.push(zeroed)));
  ASSERT_EQ(penstock_session_set_nan_policy(session.get(), PENSTOCK_NAN_PASS, nullptr), PENSTOCK_OK);
  EXPECT_TRUE(std::isnan(session.push(row)[0]));
  ASSERT_EQ(penstock_session_set_nan_policy(session.get(), PENSTOCK_NAN_ERROR, nullptr), PENSTOCK_OK);
  expect_refusal(PENSTOCK_NUMERICAL, "the session was reset", [&](penstock_error* error) {
    return penstock_session_step(session.get(), zeroed.data(), zeroed.size(), outputs.data(), outputs.size(), error);
  });
  RuntimeSession fresh(model);
  EXPECT_TRUE(same_bits(session.push(listened(2)), fresh.push(listened(2))));
}

}  // namespace
}  // namespace penstock::test
