/* The calls of penstock.h as a C program makes them: compiled as C11 with all warnings as errors. */
#include <penstock.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "support/c_require.h"

int run_c_program(const char* path, const float* expected, size_t count) {
  penstock_error error = {PENSTOCK_OK, ""};
  penstock_model* model = NULL;
  penstock_session *session = NULL, *second = NULL;
  penstock_model_info info;
  float features[2] = {0.25f, -1.0f}, outputs[2], more[4], rows[4] = {0.5f, 0.5f, -0.5f, 1.0f};
  void *memory, *saved;

  REQUIRE(penstock_c_api() == PENSTOCK_C_API);
  REQUIRE(penstock_model_open(path, &model, &error) == PENSTOCK_OK);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  REQUIRE(penstock_model_get_info(model, &info, &error) == PENSTOCK_OK);
  REQUIRE(info.inputs == 2 && info.outputs == 2 && info.vocabulary == 0);

  memory = malloc(info.session_bytes);
  REQUIRE(memory != NULL);
  REQUIRE(penstock_session_open(model, memory, info.session_bytes, &session, &error) == PENSTOCK_OK);
  REQUIRE(penstock_session_step(session, features, 2, outputs, 2, &error) == PENSTOCK_OK);
  REQUIRE(count == 2 && memcmp(outputs, expected, sizeof outputs) == 0);

  /* A copy answers as the session does, and goes on when the model and the session are closed. */
  REQUIRE(penstock_session_clone(session, NULL, 0, &second, &error) == PENSTOCK_OK);
  REQUIRE(penstock_session_chunk(session, rows, 4, more, 4, &error) == PENSTOCK_OK);
  saved = malloc(info.saved_size);
  REQUIRE(saved != NULL && penstock_session_save(session, saved, info.saved_size, &error) == PENSTOCK_OK);
  REQUIRE(penstock_session_close(session, &error) == PENSTOCK_OK);
  REQUIRE(penstock_model_close(model, &error) == PENSTOCK_OK);
  free(memory);
  {
    float again[4];
    REQUIRE(penstock_session_chunk(second, rows, 4, again, 4, &error) == PENSTOCK_OK);
    REQUIRE(memcmp(again, more, sizeof again) == 0);
    REQUIRE(penstock_session_reset(second, &error) == PENSTOCK_OK);
    REQUIRE(penstock_session_step(second, features, 2, again, 2, &error) == PENSTOCK_OK);
    REQUIRE(memcmp(again, outputs, sizeof outputs) == 0);
    REQUIRE(penstock_session_restore(second, saved, info.saved_size, &error) == PENSTOCK_OK);
  }
  free(saved);

  /* What is closed is closed. */
  REQUIRE(penstock_model_close(model, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE(strcmp(error.text, "the model is not open") == 0);
  REQUIRE(penstock_session_close(session, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE(penstock_session_close(second, &error) == PENSTOCK_OK);
  REQUIRE(penstock_session_step(second, features, 2, outputs, 2, NULL) == PENSTOCK_INVALID_ARGUMENT);
  return 0;
}
