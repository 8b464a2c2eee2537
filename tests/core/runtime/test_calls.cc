// The calls of penstock.h with what C callers get wrong: an error code with a text, and nothing has changed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/runtime/handles.h"
#include "core/runtime/models.h"
#include "io/model_file.h"
#include "nn/model/model_impl.h"
#include "penstock/quantize.h"
#include "penstock/stream.h"
#include "support/tolerance.h"

extern "C" int run_c_program(const char* path, const float* expected, std::size_t count);

namespace penstock::test {
namespace {

using testing::HasSubstr;

/// Expects that call(error) fails with this status and a text.
template <class Call>
void expect_failure(penstock_status status, const std::string& text, const Call& call) {
  SCOPED_TRACE("expecting: " + text);
  penstock_error error = {PENSTOCK_OK, {}};
  EXPECT_EQ(call(&error), status) << error.text;
  EXPECT_EQ(error.status, status);
  EXPECT_THAT(std::string(error.text), HasSubstr(text));
  EXPECT_EQ(std::string(error.text).find('\n'), std::string::npos);
  EXPECT_EQ(call(nullptr), status);
}

TEST(RuntimeCalls, OfAProgramInC) {
  const TemporaryFolder folder;
  const Model model = series_model();
  model.save(folder.path("model.safetensors"));
  Session session(model);
  const auto answer = session.push(std::vector<float>{0.25f, -1.0f});
  EXPECT_EQ(run_c_program(folder.path("model.safetensors").c_str(), answer.data(), answer.size()), 0);
}

TEST(RuntimeCalls, FromMemoryAtAnyAddress) {
  const Model model = series_model();
  const std::string file = file_of(model);
  Session session(model);
  const auto answer = session.push(std::vector<float>{0.25f, -1.0f});
  const std::vector<float> want(answer.begin(), answer.end());
  std::vector<char> shifted(file.size() + 4);
  for (std::size_t shift = 0; shift < 4; ++shift) {
    std::memcpy(shifted.data() + shift, file.data(), file.size());
    const RuntimeModel opened(shifted.data() + shift, file.size());
    RuntimeSession runtime(opened);
    EXPECT_TRUE(same_bits(runtime.push({0.25f, -1.0f}), want));
  }
}

TEST(RuntimeCalls, NullAndClosedHandles) {
  const auto wrong = [](auto* handle) {
    float numbers[4] = {};
    penstock_session* session = nullptr;
    penstock_model_info info = {};
    if constexpr (std::is_same_v<decltype(handle), penstock_model*>) {
      const auto fails = [](const auto& call) {
        expect_failure(PENSTOCK_INVALID_ARGUMENT, "the model is not open", call);
      };
      fails([&](penstock_error* error) { return penstock_model_close(handle, error); });
      fails([&](penstock_error* error) { return penstock_model_get_info(handle, &info, error); });
      fails([&](penstock_error* error) { return penstock_session_open(handle, nullptr, 0, &session, error); });
    } else {
      const auto fails = [](const auto& call) {
        expect_failure(PENSTOCK_INVALID_ARGUMENT, "the session is not open", call);
      };
      fails([&](penstock_error* error) { return penstock_session_close(handle, error); });
      fails([&](penstock_error* error) { return penstock_session_reset(handle, error); });
      fails([&](penstock_error* error) { return penstock_session_step(handle, numbers, 2, numbers, 2, error); });
      fails([&](penstock_error* error) { return penstock_session_get_state(handle, numbers, 2, error); });
      fails([&](penstock_error* error) { return penstock_session_save(handle, numbers, 2, error); });
      fails([&](penstock_error* error) { return penstock_session_clone(handle, nullptr, 0, &session, error); });
    }
  };
  const std::string file = file_of(series_model());
  penstock_model* model = nullptr;
  penstock_session* session = nullptr;
  ASSERT_EQ(penstock_model_open_memory(file.data(), file.size(), &model, nullptr), PENSTOCK_OK);
  ASSERT_EQ(penstock_session_open(model, nullptr, 0, &session, nullptr), PENSTOCK_OK);
  wrong(reinterpret_cast<penstock_session*>(model));  // of the other kind
  wrong(reinterpret_cast<penstock_model*>(session));
  ASSERT_EQ(penstock_session_close(session, nullptr), PENSTOCK_OK);
  ASSERT_EQ(penstock_model_close(model, nullptr), PENSTOCK_OK);
  wrong(session);
  wrong(model);
  // The slots of both are used again, and the old handles are still closed.
  const RuntimeModel again(file.data(), file.size());
  const RuntimeSession other(again);
  wrong(session);
  wrong(model);
  wrong(static_cast<penstock_session*>(nullptr));
  wrong(static_cast<penstock_model*>(nullptr));
  for (const std::uintptr_t any : {std::uintptr_t{1}, std::uintptr_t{0xdeadbeef}, ~std::uintptr_t{0}}) {
    wrong(reinterpret_cast<penstock_session*>(any));
    wrong(reinterpret_cast<penstock_model*>(any));
  }
}

TEST(RuntimeCalls, WrongSizesAndValues) {
  const std::string file = file_of(series_model());
  const RuntimeModel model(file.data(), file.size());
  RuntimeSession session(model);
  const RuntimeSession untouched(model);
  penstock_session* const handle = session.get();
  const penstock_model_info info = model.info();
  float numbers[8] = {0.5f, 0.5f, 0.5f, 0.5f};
  session.push({1.0f, 2.0f});
  const std::vector<float> before = session.state();
  const auto fails = [](const std::string& text, const auto& call) {
    expect_failure(PENSTOCK_INVALID_ARGUMENT, text, call);
  };
  fails("features must hold 2 values, not 3",
        [&](penstock_error* error) { return penstock_session_step(handle, numbers, 3, numbers, 2, error); });
  fails("features must hold 2 values, not 4",
        [&](penstock_error* error) { return penstock_session_step(handle, numbers, 4, numbers, 4, error); });
  fails("features must hold 2 values, not 0",
        [&](penstock_error* error) { return penstock_session_step(handle, numbers, 0, numbers, 0, error); });
  fails("outputs must hold 2 values for each of 1 steps, not 1",
        [&](penstock_error* error) { return penstock_session_step(handle, numbers, 2, numbers, 1, error); });
  fails("features must hold rows of 2 values, not 3",
        [&](penstock_error* error) { return penstock_session_chunk(handle, numbers, 3, numbers, 4, error); });
  fails("outputs must hold 2 values for each of 2 steps, not 5",
        [&](penstock_error* error) { return penstock_session_sequence(handle, numbers, 4, numbers, 5, error); });
  fails("inputs must not be null",
        [&](penstock_error* error) { return penstock_session_step(handle, nullptr, 2, numbers, 2, error); });
  fails("outputs must not be null",
        [&](penstock_error* error) { return penstock_session_step(handle, numbers, 2, nullptr, 2, error); });
  fails("this model reads features, not tokens",
        [&](penstock_error* error) { return penstock_session_step_token(handle, 1, numbers, 2, error); });
  fails("state must hold 50 values, not 3",
        [&](penstock_error* error) { return penstock_session_get_state(handle, numbers, 3, error); });
  fails("policy must be 0 to 2, not 7",
        [&](penstock_error* error) { return penstock_session_set_nan_policy(handle, 7, error); });
  fails("not 8 at null", [&](penstock_error* error) {
    penstock_session* opened = nullptr;
    return penstock_session_open(model.get(), nullptr, 8, &opened, error);
  });
  fails("memory must be " + std::to_string(info.session_bytes), [&](penstock_error* error) {
    penstock_session* opened = nullptr;
    return penstock_session_open(model.get(), numbers, sizeof numbers, &opened, error);
  });
  fails("info->struct_size must be", [&](penstock_error* error) {
    penstock_model_info small = {};
    return penstock_model_get_info(model.get(), &small, error);
  });
  fails("the model has 2 inputs, there is no number 2", [&](penstock_error* error) {
    penstock_column column = {};
    return penstock_model_get_input(model.get(), 2, &column, error);
  });
  for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity(), -2e12f}) {
    const float rows[] = {0.5f, 0.5f, 0.5f, wrong};
    fails("step 1: feature 1 must be a number of at most 1e12",
          [&](penstock_error* error) { return penstock_session_sequence(handle, rows, 4, numbers, 4, error); });
  }
  EXPECT_TRUE(same_bits(session.state(), before));
  EXPECT_TRUE(same_bits(untouched.state(), std::vector<float>(info.state_size)));

  const std::string text = file_of(text_model());
  const RuntimeModel reads_tokens(text.data(), text.size());
  const RuntimeSession tokens(reads_tokens);
  std::vector<float> logits(50);
  for (const std::int32_t token : {-1, 50, 2000000000}) {
    fails("step 0: token " + std::to_string(token) + " is outside 0..49", [&](penstock_error* error) {
      return penstock_session_step_token(tokens.get(), token, logits.data(), logits.size(), error);
    });
  }
}

TEST(RuntimeCalls, PoliciesForWhatIsNoNumber) {
  const std::string file = file_of(series_model());
  const RuntimeModel model(file.data(), file.size());
  RuntimeSession zero(model), as_zero(model), pass(model);
  const float nan = std::nanf("");
  ASSERT_EQ(penstock_session_set_nan_policy(as_zero.get(), PENSTOCK_NAN_ZERO, nullptr), PENSTOCK_OK);
  ASSERT_EQ(penstock_session_set_nan_policy(pass.get(), PENSTOCK_NAN_PASS, nullptr), PENSTOCK_OK);
  EXPECT_TRUE(same_bits(as_zero.push({nan, 1.0f}), zero.push({0.0f, 1.0f})));
  EXPECT_TRUE(same_bits(as_zero.push({1.0f, -3e38f}), zero.push({1.0f, 0.0f})));
  EXPECT_TRUE(std::isnan(pass.push({nan, 1.0f})[0]));
  EXPECT_TRUE(std::isnan(pass.push({0.0f, 1.0f})[0])) << "the state is NaN";
  EXPECT_EQ(penstock_session_reset(pass.get(), nullptr), PENSTOCK_OK);
  EXPECT_FALSE(std::isnan(pass.push({0.0f, 1.0f})[0]));

  // A state so large that the answer is not finite.
  float outputs[2] = {};
  const float features[2] = {1.0f, 1.0f};
  std::vector<float> huge(model.info().state_size, 3e38f);
  const std::vector<float> none(model.info().state_size);
  ASSERT_EQ(penstock_session_set_state(zero.get(), huge.data(), huge.size(), nullptr), PENSTOCK_OK);
  ASSERT_EQ(penstock_session_set_state(as_zero.get(), huge.data(), huge.size(), nullptr), PENSTOCK_OK);
  penstock_error error = {PENSTOCK_OK, {}};
  EXPECT_EQ(penstock_session_step(zero.get(), features, 2, outputs, 2, &error), PENSTOCK_NUMERICAL);
  EXPECT_THAT(std::string(error.text), HasSubstr("step 0: the model's answer is not finite; the session was reset"));
  EXPECT_TRUE(same_bits(zero.state(), none));
  EXPECT_EQ(as_zero.push({1.0f, 1.0f}), std::vector<float>(2));
  EXPECT_TRUE(same_bits(as_zero.state(), none));
}

TEST(RuntimeCalls, SavedStates) {
  const std::string file = file_of(series_model()), other_file = file_of(series_model("gru"));
  const RuntimeModel model(file.data(), file.size()), other(other_file.data(), other_file.size());
  RuntimeSession session(model), second(model), foreign(other);
  session.push({1.0f, 2.0f});
  std::vector<char> saved(model.info().saved_size);
  ASSERT_EQ(penstock_session_save(session.get(), saved.data(), saved.size(), nullptr), PENSTOCK_OK);
  ASSERT_EQ(penstock_session_restore(second.get(), saved.data(), saved.size(), nullptr), PENSTOCK_OK);
  EXPECT_TRUE(same_bits(session.push({0.5f, 0.5f}), second.push({0.5f, 0.5f})));
  const std::vector<float> before = second.state();
  const auto fails = [&](penstock_status status, const std::string& text, std::size_t size) {
    expect_failure(status, text, [&](penstock_error* error) {
      return penstock_session_restore(second.get(), saved.data(), size, error);
    });
  };
  fails(PENSTOCK_BAD_INPUT, "the bytes are no state", 3);
  fails(PENSTOCK_BAD_INPUT, "the state is damaged", saved.size() - 1);
  saved.back() = static_cast<char>(saved.back() ^ 1);
  fails(PENSTOCK_BAD_INPUT, "the state is damaged", saved.size());
  saved[0] = 'x';
  fails(PENSTOCK_BAD_INPUT, "the bytes are no state", saved.size());
  EXPECT_TRUE(same_bits(second.state(), before));
  ASSERT_EQ(penstock_session_save(session.get(), saved.data(), saved.size(), nullptr), PENSTOCK_OK);
  expect_failure(PENSTOCK_INCOMPATIBLE, "the state is of another model", [&](penstock_error* error) {
    return penstock_session_restore(foreign.get(), saved.data(), saved.size(), error);
  });
}

TEST(RuntimeCalls, FilesWithWeightsOfInt8) {
  const TemporaryFolder folder;
  const std::string path = folder.path("int8");
  const Model floats = series_model(), model = floats.with_int8(int8_layers(floats));
  const auto fails = [&](penstock_status status, const std::string& text) {
    expect_failure(status, text, [&](penstock_error* error) {
      penstock_model* opened = nullptr;
      return penstock_int8_model_open(path.c_str(), &opened, error);
    });
  };
  const auto written = [&](const std::string& name, const auto& value, const std::string& layer = "head") {
    std::vector<io::TensorData> tensors = io::model_tensors(model.impl());
    const auto tensor = std::ranges::find(tensors, name, &io::TensorData::name);
    std::vector<std::byte> values(tensor->values.begin(), tensor->values.end());
    std::memcpy(values.data(), &value, sizeof(value));
    tensor->values = values;
    io::Metadata metadata = io::model_metadata(model.spec(), model.data());
    std::string& text = metadata.at("penstock");
    text.replace(text.find("\"head\""), 6, "\"" + layer + "\"");
    io::write_safetensors(path, tensors, metadata);
  };
  model.save(path);
  const RuntimeModel opened(path, &penstock_int8_model_open);
  floats.save(folder.path("floats"));
  const RuntimeModel without(folder.path("floats"), &penstock_int8_model_open);
  EXPECT_EQ(opened.info().parameters, without.info().parameters);
  written("head.weight", std::int8_t{-128});
  fails(PENSTOCK_BAD_INPUT, "tensor \"head.weight\" holds -128; weights of int8 are -127 to 127");
  written("head.weight.scale", -0.5f);
  fails(PENSTOCK_BAD_INPUT, "tensor \"head.weight.scale\" holds negative values; scales of weights must be 0 or more");
  written("head.weight.scale", std::nanf(""));
  fails(PENSTOCK_BAD_INPUT, "tensor \"head.weight.scale\" holds values that are not finite");
  written("head.weight", std::int8_t{1}, "input");
  fails(PENSTOCK_INCOMPATIBLE, "tensor \"head.weight\" is I8 [2, 8], not F32 [2, 8]");
  written("head.weight", std::int8_t{1}, "blocks.0.recurrent");
  fails(PENSTOCK_INCOMPATIBLE, "tensor \"head.weight\" is I8 [2, 8], not F32 [2, 8]");
  written("head.weight", std::int8_t{1}, "head\", \"tail");
  fails(PENSTOCK_BAD_INPUT, "int8 must name layers whose matrices can be int8, each once");
}

TEST(RuntimeCalls, FilesThatAreNoModels) {
  const TemporaryFolder folder;
  const auto fails = [&](penstock_status status, const std::string& text, const std::string& path) {
    expect_failure(status, text, [&](penstock_error* error) {
      penstock_model* model = reinterpret_cast<penstock_model*>(&error);
      const penstock_status result = penstock_model_open(path.c_str(), &model, error);
      EXPECT_EQ(model, nullptr);
      return result;
    });
  };
  fails(PENSTOCK_IO_FAILURE, "No such file", folder.path("none"));
  fails(PENSTOCK_IO_FAILURE, "Is a directory", folder.folder());
  fails(PENSTOCK_BAD_INPUT, "no safetensors file", folder.write("empty", ""));
  fails(PENSTOCK_BAD_INPUT, "no safetensors file", folder.write("text", "a,b\n1,2\n3,4\n"));
  const std::string file = file_of(series_model());
  fails(PENSTOCK_BAD_INPUT, "truncated", folder.write("short", file.substr(0, 40)));
  fails(PENSTOCK_BAD_INPUT, "bytes of data in the file", folder.write("cut", file.substr(0, file.size() - 1)));
  std::string damaged = file;
  damaged[file.size() - 9] = static_cast<char>(damaged[file.size() - 9] ^ 4);
  fails(PENSTOCK_BAD_INPUT, "damaged: the checksum is", folder.write("damaged", damaged));
  const Model floats = series_model();
  const Model int8 = floats.with_int8(int8_layers(floats));
  fails(PENSTOCK_UNSUPPORTED, "its weights are int8: open it by penstock_int8_model_open()",
        folder.write("int8", file_of(int8)));
  const Recurrent<float> layer({.cell = "lstm", .input_size = 2, .hidden_size = 3});
  layer.save(folder.path("layer"));
  fails(PENSTOCK_INCOMPATIBLE, "not a model of Penstock", folder.path("layer"));
  expect_failure(PENSTOCK_INVALID_ARGUMENT, "path must not be null", [](penstock_error* error) {
    penstock_model* model = nullptr;
    return penstock_model_open(nullptr, &model, error);
  });
}

}  // namespace
}  // namespace penstock::test
