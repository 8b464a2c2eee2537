#pragma once

#include <gtest/gtest.h>
#include <penstock.h>

#include <string>
#include <utility>
#include <vector>

namespace penstock::test {

/// A model of the C runtime, closed at the end.
class RuntimeModel {
 public:
  explicit RuntimeModel(const std::string& path, decltype(&penstock_model_open) open = &penstock_model_open) {
    EXPECT_EQ(open(path.c_str(), &model_, &error_), PENSTOCK_OK) << error_.text;
  }
  explicit RuntimeModel(penstock_model* model) : model_(model) {}
  RuntimeModel(const void* bytes, std::size_t size) {
    EXPECT_EQ(penstock_model_open_memory(bytes, size, &model_, &error_), PENSTOCK_OK) << error_.text;
  }
  ~RuntimeModel() {
    if (model_ != nullptr) penstock_model_close(model_, nullptr);
  }
  RuntimeModel(const RuntimeModel&) = delete;
  RuntimeModel& operator=(const RuntimeModel&) = delete;

  penstock_model* get() const { return model_; }
  penstock_model_info info() const {
    penstock_model_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_EQ(penstock_model_get_info(model_, &info, nullptr), PENSTOCK_OK);
    return info;
  }

 private:
  penstock_model* model_ = nullptr;
  penstock_error error_ = {};
};

/// A session of the C runtime, closed at the end.
class RuntimeSession {
 public:
  explicit RuntimeSession(const RuntimeModel& model) : info_(model.info()) {
    EXPECT_EQ(penstock_session_open(model.get(), nullptr, 0, &session_, &error_), PENSTOCK_OK) << error_.text;
  }
  RuntimeSession(penstock_session* session, const RuntimeModel& model) : info_(model.info()), session_(session) {}
  ~RuntimeSession() {
    if (session_ != nullptr) penstock_session_close(session_, nullptr);
  }
  RuntimeSession(const RuntimeSession&) = delete;
  RuntimeSession& operator=(const RuntimeSession&) = delete;

  penstock_session* get() const { return session_; }

  std::vector<float> push(const std::vector<float>& features) {
    std::vector<float> outputs(info_.outputs);
    EXPECT_EQ(
        penstock_session_step(session_, features.data(), features.size(), outputs.data(), outputs.size(), &error_),
        PENSTOCK_OK)
        << error_.text;
    return outputs;
  }
  std::vector<float> push(std::int32_t token) {
    std::vector<float> outputs(info_.outputs);
    EXPECT_EQ(penstock_session_step_token(session_, token, outputs.data(), outputs.size(), &error_), PENSTOCK_OK)
        << error_.text;
    return outputs;
  }
  /// Forgets the handle, which somebody has closed.
  void closed() { session_ = nullptr; }
  std::vector<float> state() const {
    std::vector<float> state(info_.state_size);
    EXPECT_EQ(penstock_session_get_state(session_, state.data(), state.size(), nullptr), PENSTOCK_OK);
    return state;
  }

 private:
  penstock_model_info info_;
  penstock_session* session_ = nullptr;
  penstock_error error_ = {};
};

}  // namespace penstock::test
