/* The calls of penstock_pool.h as a C program makes them: compiled as C11 with all warnings as errors. */
#include <math.h>
#include <penstock_pool.h>
#include <string.h>

#include "support/c_require.h"
#define REQUIRE_TEXT(part) REQUIRE(strstr(error.text, part) != NULL)

/* Reads two features and returns `outputs` values; `expected` [2, outputs] are the answers to (0.25, -0.5) twice. */
int run_c_pool(const char* path, const float* expected, size_t outputs) {
  penstock_error error = {PENSTOCK_OK, ""};
  penstock_pool_options options = {0};
  penstock_pool *pool = NULL, *other = NULL;
  penstock_pool_info info = {0};
  penstock_pool_answers answers;
  uint64_t sessions[3], more, theirs;
  float rows[6] = {0.25f, -0.5f, NAN, 0.0f, 0.25f, -0.5f}, state[4096];
  const size_t bytes = outputs * sizeof(float);

  options.struct_size = sizeof options;
  options.capacity = 3;
  options.threads = 1;
  options.queue = 2;
  info.struct_size = sizeof info;
  REQUIRE(penstock_pool_open(path, &options, &pool, &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_open(path, &options, &other, &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_get_info(pool, &info, &error) == PENSTOCK_OK);
  REQUIRE(info.inputs == 2 && info.outputs == outputs && info.open == 0);
  REQUIRE(info.state_size > 0 && info.state_size <= 4096);

  for (int i = 0; i < 3; ++i) REQUIRE(penstock_pool_join(pool, &sessions[i], &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_join(pool, &more, &error) == PENSTOCK_FULL && more == 0);
  REQUIRE_TEXT("let one leave");

  /* NaN in one stream: the others are untouched. */
  REQUIRE(penstock_pool_push(pool, sessions, 3, rows, &answers, &error) == PENSTOCK_OK);
  REQUIRE(answers.count == 3 && memcmp(answers.outputs, expected, bytes) == 0);
  REQUIRE(memcmp(answers.outputs + 2 * outputs, expected, bytes) == 0);
  REQUIRE(answers.failure_count == 1 && answers.failures[0].position == 1 && isnan(answers.outputs[outputs]));
  REQUIRE(answers.failures[0].error.status == PENSTOCK_INVALID_ARGUMENT && answers.failures[0].error.text[0] != 0);

  /* The stream moves to another pool. */
  REQUIRE(penstock_pool_join(other, &theirs, &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_get_state(pool, sessions[0], state, info.state_size, &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_set_state(other, theirs, state, info.state_size, &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_push(other, &theirs, 1, rows, &answers, &error) == PENSTOCK_OK);
  REQUIRE(answers.failure_count == 0 && memcmp(answers.outputs, expected + outputs, bytes) == 0);
  REQUIRE(penstock_pool_get_state(pool, sessions[0], state, 1, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE_TEXT("state_size");
  state[0] = INFINITY;
  REQUIRE(penstock_pool_set_state(other, theirs, state, info.state_size, &error) == PENSTOCK_INVALID_ARGUMENT);

  /* A session of another pool, one that has left, and one that comes twice. */
  REQUIRE(penstock_pool_leave(pool, theirs, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE_TEXT("not of this pool");
  REQUIRE(penstock_pool_leave(pool, sessions[1], &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_leave(pool, sessions[1], &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE_TEXT("was closed");
  sessions[1] = sessions[0];
  REQUIRE(penstock_pool_reset(pool, sessions[0], &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_push(pool, sessions, 2, rows, &answers, &error) == PENSTOCK_OK);
  REQUIRE(answers.failure_count == 1 && memcmp(answers.outputs, expected, bytes) == 0);

  /* The queue: back-pressure, order, tags. */
  REQUIRE(penstock_pool_submit(other, theirs, rows, 7, &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_submit(other, theirs, rows, 8, &error) == PENSTOCK_OK);
  REQUIRE(penstock_pool_submit(other, theirs, rows, 9, &error) == PENSTOCK_FULL);
  REQUIRE_TEXT("after a run");
  REQUIRE(penstock_pool_reset(other, theirs, &error) == PENSTOCK_OK);
  for (uint64_t tag = 7; tag < 9; ++tag) {
    REQUIRE(penstock_pool_run(other, 0, &answers, &error) == PENSTOCK_OK);
    REQUIRE(answers.count == 1 && answers.tags[0] == tag && answers.sessions[0] == theirs);
    REQUIRE(memcmp(answers.outputs, expected + (tag - 7) * outputs, bytes) == 0);
  }
  REQUIRE(penstock_pool_run(other, 0, &answers, &error) == PENSTOCK_OK && answers.count == 0);
  REQUIRE(penstock_pool_submit_token(other, theirs, 1, 0, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE_TEXT("reads features");
  REQUIRE(penstock_pool_close(other, &error) == PENSTOCK_OK && penstock_pool_close(pool, &error) == PENSTOCK_OK);

  /* What cannot be opened. */
  REQUIRE(penstock_pool_open("no such file", &options, &pool, &error) == PENSTOCK_IO_FAILURE && pool == NULL);
  REQUIRE(penstock_pool_close(pool, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE_TEXT("pool must not be null");
  options.device = "gpu:1";
  REQUIRE(penstock_pool_open(path, &options, &pool, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE(strstr(error.text, "did you mean cuda:1?") != NULL);
  options.device = NULL;
  options.shape_count = 1;
  REQUIRE(penstock_pool_open(path, &options, &pool, &error) == PENSTOCK_INVALID_ARGUMENT);
  REQUIRE_TEXT("is a model");
  options.struct_size = 1;
  REQUIRE(penstock_pool_open(path, &options, &pool, NULL) == PENSTOCK_INVALID_ARGUMENT);
  return 0;
}

/* A network that reads "x" [rows, 3]: returns the status of a step of one session, all inputs 0.5. */
penstock_status step_c_network(const char* path, float* outputs, penstock_error* error) {
  const int64_t extents[2] = {1, 3};
  const penstock_shape shape = {"x", extents, 2};
  const float x[3] = {0.5f, 0.5f, 0.5f};
  penstock_pool_options options = {0};
  penstock_pool_answers answers;
  penstock_pool_info info = {0};
  penstock_pool* pool;
  uint64_t session;
  penstock_status status;

  options.struct_size = sizeof options;
  options.capacity = 1;
  options.shapes = &shape;
  options.shape_count = 1;
  info.struct_size = sizeof info;
  status = penstock_pool_open(path, &options, &pool, error);
  if (status != PENSTOCK_OK) return status;
  penstock_pool_get_info(pool, &info, error);
  status = penstock_pool_join(pool, &session, error);
  if (status == PENSTOCK_OK) status = penstock_pool_push(pool, &session, 1, x, &answers, error);
  if (status == PENSTOCK_OK) memcpy(outputs, answers.outputs, info.outputs * sizeof(float));
  penstock_pool_close(pool, NULL);
  return status;
}
