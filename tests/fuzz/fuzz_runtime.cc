#include <penstock.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/refusal.h"
#include "fuzz/sealed.h"

using penstock::test::check;

/// A file that the C runtime opens must answer; one that it refuses must be refused in one line with a code.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock_model* model = nullptr;
  penstock_error error = {PENSTOCK_OK, {}};
  penstock_status status = penstock_int8_model_open_memory(data, size, &model, &error);
  if (status == PENSTOCK_INCOMPATIBLE) status = penstock_network_open_memory(data, size, nullptr, 0, &model, &error);
  if (status != PENSTOCK_OK) {
    check(model == nullptr && status == error.status, "a refused model");
    check(status == PENSTOCK_BAD_INPUT || status == PENSTOCK_INCOMPATIBLE || status == PENSTOCK_UNSUPPORTED ||
              status == PENSTOCK_OUT_OF_MEMORY || status == PENSTOCK_INVALID_ARGUMENT,  // shapes have to be given
          "a wrong status");
    const std::size_t length = std::strlen(error.text);
    check(length > 0 && length < sizeof(error.text), "a message of a strange length");
    check(std::strchr(error.text, '\n') == nullptr, "a message of several lines");
    return 0;
  }
  ++penstock::test::accepted_inputs;
  penstock_model_info info = {};
  info.struct_size = sizeof(info);
  check(penstock_model_get_info(model, &info, nullptr) == PENSTOCK_OK, "no sizes");
  penstock_session* session = nullptr;
  constexpr std::size_t most = std::size_t{1} << 26;  // networks may claim any amount of memory
  if (info.session_bytes > most || info.inputs > most || info.outputs > most) {
    check(penstock_model_close(model, nullptr) == PENSTOCK_OK, "a large model that does not close");
    return 0;
  }
  check(penstock_session_open(model, nullptr, 0, &session, nullptr) == PENSTOCK_OK, "no session");
  std::vector<float> features(info.inputs, 0.5f), outputs(info.outputs);
  for (int step = 0; step < 3; ++step) {
    const penstock_status answered =
        info.vocabulary > 0
            ? penstock_session_step_token(session, 0, outputs.data(), outputs.size(), nullptr)
            : penstock_session_step(session, features.data(), features.size(), outputs.data(), outputs.size(), nullptr);
    check(answered == PENSTOCK_OK || answered == PENSTOCK_NUMERICAL, "no answer");
  }
  check(penstock_session_close(session, nullptr) == PENSTOCK_OK, "a session that does not close");
  check(penstock_model_close(model, nullptr) == PENSTOCK_OK, "a model that does not close");
  return 0;
}
