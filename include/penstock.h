/* The C runtime of Penstock: opens the model files that Penstock writes and runs them as streams.
 *
 * A static library of its own, penstock_runtime, without other libraries. docs/runtime.md is its manual.
 *
 *   - Every call that can fail returns a penstock_status, and writes the reason in words to `error` unless that is
 * null.
 *   - Handles may be passed to any call at any time: one that is null, closed or never was one is an error.
 *   - A model may be used by several threads at once, a session by one at a time.
 *   - After penstock_session_open() a step or a chunk allocates nothing, takes no lock and makes no system call.
 *   - The answers have the bits of penstock::Session of the full library on the same instruction set.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

/* Grows when a call is added. A call that is there keeps its form. */
#define PENSTOCK_C_API 3

#ifndef PENSTOCK_API
#define PENSTOCK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_model penstock_model;
typedef struct penstock_session penstock_session;

typedef enum penstock_status {
  PENSTOCK_OK = 0,
  PENSTOCK_INVALID_ARGUMENT = 1, /* The caller's fault: a handle, a size, a value. Nothing has changed. */
  PENSTOCK_BAD_INPUT = 2,        /* The file is damaged. */
  PENSTOCK_INCOMPATIBLE = 3,     /* The file is sound, but no model, or one of another version. */
  PENSTOCK_IO_FAILURE = 4,       /* The file cannot be read. */
  PENSTOCK_NUMERICAL = 5,        /* An output was not finite; the session was reset. */
  PENSTOCK_UNSUPPORTED = 6,      /* Valid, but not available in this build or on this machine. */
  PENSTOCK_OUT_OF_MEMORY = 7,
  PENSTOCK_FULL = 8 /* Of penstock_pool.h: there is no place now. Nothing has changed. */
} penstock_status;

/* The reason of a failure, one line of UTF-8 that ends with a zero. A call that succeeds leaves it alone. */
typedef struct penstock_error {
  penstock_status status;
  char text[508];
} penstock_error;

typedef enum penstock_task {
  PENSTOCK_LANGUAGE = 0, /* Tokens in; logits of the next token out. */
  PENSTOCK_FORECAST = 1, /* Features in; [horizon, targets] normalised forecasts out. */
  PENSTOCK_CLASSIFY = 2, /* Logits of the classes out. */
  PENSTOCK_NETWORK = 3   /* Tensors in and out: a network that `penstock import` wrote. */
} penstock_task;

typedef struct penstock_model_info {
  size_t struct_size; /* Set by the caller: sizeof(penstock_model_info). */
  penstock_task task;
  uint32_t vocabulary;  /* Tokens are 0 ... vocabulary - 1; 0: the model reads features. */
  uint32_t inputs;      /* Features of a step; 1 for tokens; elements of all inputs of a network. */
  uint32_t outputs;     /* Values that a step returns; elements of all outputs of a network. */
  uint32_t targets;     /* Forecasts: columns that are forecast; else 0. */
  uint32_t horizon;     /* Forecasts: steps ahead; else 0. */
  uint32_t sample_rate; /* Samples per second of sound; 0: unknown, or of something else. */
  uint32_t reserved;
  uint64_t parameters;
  size_t state_size;    /* Floats of a session's state; 0 if it has values of other types. */
  size_t saved_size;    /* Bytes that penstock_session_save() writes. */
  size_t session_bytes; /* Bytes of a session, for callers that bring the memory. */
} penstock_model_info;

/* A column of a table: an input of the model, or a target of its forecasts. What the model reads and returns is
 * (v - mean) / scale, with v the value in the table or, if `logarithm`, the natural logarithm of it. */
typedef struct penstock_column {
  const char* name; /* Valid until the model is closed. */
  double mean, scale;
  int32_t logarithm;    /* 0 or 1 */
  int32_t non_negative; /* 0 or 1: forecasts below 0 count as 0 */
  int32_t is_value;     /* 0: derived of the column, such as the hour of a date */
  int32_t ahead;        /* Inputs: read from the row that many rows later; 0: from the row itself */
} penstock_column;

/* The shape of an input of a network. */
typedef struct penstock_shape {
  const char* input;
  const int64_t* extents;
  size_t rank;
} penstock_shape;

/* An input or an output of a network: its elements are `size` floats from `first` on of what a step reads or returns,
 * row-major. Those of other types are converted; integers up to 2^24 exactly. */
typedef struct penstock_tensor {
  const char* name;       /* Valid until the model is closed, */
  const int64_t* extents; /* and so are these. */
  size_t rank;
  size_t first, size;
} penstock_tensor;

/* What becomes of a feature that is NaN or larger than 1e12 in magnitude, and of outputs that are not finite. */
typedef enum penstock_nan_policy {
  PENSTOCK_NAN_ERROR = 0, /* Refuse the feature, and the state stays. An output fails, and the session is reset. */
  PENSTOCK_NAN_ZERO = 1,  /* Read 0 instead. Outputs that are not finite become zeros, and the session is reset. */
  PENSTOCK_NAN_PASS = 2   /* Compute with it. Outputs and state may stay NaN until a reset. */
} penstock_nan_policy;

/* Returns the PENSTOCK_C_API that the library was built with, its version ("0.1.0"), and the name of a status. */
PENSTOCK_API uint32_t penstock_c_api(void);
PENSTOCK_API const char* penstock_version(void);
PENSTOCK_API const char* penstock_status_name(int32_t status);

/* Opens a model from a file, or from `size` bytes that stay where they are and unchanged until the model and its
 * sessions are closed, such as an array in the program. Checks all of it. On failure *model becomes null. */
PENSTOCK_API penstock_status penstock_model_open(const char* path, penstock_model** model, penstock_error* error);
PENSTOCK_API penstock_status penstock_model_open_memory(const void* bytes, size_t size, penstock_model** model,
                                                        penstock_error* error);
/* Open a model with float or int8 weights, as those above do. A program that calls neither does not link
 * the code of int8 weights. */
PENSTOCK_API penstock_status penstock_int8_model_open(const char* path, penstock_model** model, penstock_error* error);
PENSTOCK_API penstock_status penstock_int8_model_open_memory(const void* bytes, size_t size, penstock_model** model,
                                                             penstock_error* error);
/* Opens a network that `penstock import` wrote. `shapes` has the shape of each input with extents that the caller
 * chooses; states have theirs from inputs with the same names of extents, and else 1. A step reads all elements of all
 * inputs, one tensor after the other, and returns those of all outputs. A program that opens no network does not link
 * the code of networks. */
PENSTOCK_API penstock_status penstock_network_open(const char* path, const penstock_shape* shapes, size_t shape_count,
                                                   penstock_model** model, penstock_error* error);
PENSTOCK_API penstock_status penstock_network_open_memory(const void* bytes, size_t size, const penstock_shape* shapes,
                                                          size_t shape_count, penstock_model** model,
                                                          penstock_error* error);
/* An input or an output of a network, in their order from 0. */
PENSTOCK_API penstock_status penstock_network_get_input(const penstock_model* model, size_t index,
                                                        penstock_tensor* tensor, penstock_error* error);
PENSTOCK_API penstock_status penstock_network_get_output(const penstock_model* model, size_t index,
                                                         penstock_tensor* tensor, penstock_error* error);
/* Closes a model. Its sessions go on: the last of them frees it. */
PENSTOCK_API penstock_status penstock_model_close(penstock_model* model, penstock_error* error);

PENSTOCK_API penstock_status penstock_model_get_info(const penstock_model* model, penstock_model_info* info,
                                                     penstock_error* error);
PENSTOCK_API penstock_status penstock_model_get_input(const penstock_model* model, size_t index,
                                                      penstock_column* column, penstock_error* error);
PENSTOCK_API penstock_status penstock_model_get_target(const penstock_model* model, size_t index,
                                                       penstock_column* column, penstock_error* error);
/* The name of a class, valid until the model is closed. */
PENSTOCK_API penstock_status penstock_model_get_class(const penstock_model* model, size_t index, const char** name,
                                                      penstock_error* error);
/* The instruction set of the model's kernels: "avx512", "avx2", "neon" or "baseline". */
PENSTOCK_API penstock_status penstock_model_get_instruction_set(const penstock_model* model, const char** name,
                                                                penstock_error* error);

/* Opens a session at the start of a sequence, in `size` bytes of the caller's at `memory` (at least session_bytes), or,
 * if `memory` is null and `size` 0, in memory of its own. */
PENSTOCK_API penstock_status penstock_session_open(penstock_model* model, void* memory, size_t size,
                                                   penstock_session** session, penstock_error* error);
/* Opens a session that continues from the same state. */
PENSTOCK_API penstock_status penstock_session_clone(const penstock_session* session, void* memory, size_t size,
                                                    penstock_session** copy, penstock_error* error);
PENSTOCK_API penstock_status penstock_session_close(penstock_session* session, penstock_error* error);

/* One step: reads a row of `count` normalised features, or a token, and writes `size` outputs. */
PENSTOCK_API penstock_status penstock_session_step(penstock_session* session, const float* features, size_t count,
                                                   float* outputs, size_t size, penstock_error* error);
PENSTOCK_API penstock_status penstock_session_step_token(penstock_session* session, int32_t token, float* outputs,
                                                         size_t size, penstock_error* error);
/* Several steps: `count` features are rows, one step each, and `size` outputs are as many rows. The session goes on
 * where it was. A wrong feature or token is refused before the first step. */
PENSTOCK_API penstock_status penstock_session_chunk(penstock_session* session, const float* features, size_t count,
                                                    float* outputs, size_t size, penstock_error* error);
PENSTOCK_API penstock_status penstock_session_chunk_tokens(penstock_session* session, const int32_t* tokens,
                                                           size_t count, float* outputs, size_t size,
                                                           penstock_error* error);
/* A whole sequence: a chunk after a reset. */
PENSTOCK_API penstock_status penstock_session_sequence(penstock_session* session, const float* features, size_t count,
                                                       float* outputs, size_t size, penstock_error* error);
PENSTOCK_API penstock_status penstock_session_sequence_tokens(penstock_session* session, const int32_t* tokens,
                                                              size_t count, float* outputs, size_t size,
                                                              penstock_error* error);

/* Returns to the start of a sequence. */
PENSTOCK_API penstock_status penstock_session_reset(penstock_session* session, penstock_error* error);
/* `policy`: a penstock_nan_policy. A new session has PENSTOCK_NAN_ERROR. */
PENSTOCK_API penstock_status penstock_session_set_nan_policy(penstock_session* session, int32_t policy,
                                                             penstock_error* error);

/* Runs `steps` steps on one row of `count` features, or on zeros if `features` is null, without outputs: a stream that
 * begins with silence then begins without the jump from the zero state. */
PENSTOCK_API penstock_status penstock_session_prewarm(penstock_session* session, const float* features, size_t count,
                                                      size_t steps, penstock_error* error);
/* Lets `next`, a session of another model with as many inputs and outputs, take the place of what `session` runs. Its
 * share of the outputs grows from step to step by 1 / steps; then `session` goes on as `next`. The only call that may
 * come while another thread runs steps of `session`, which wait for nothing. On success the handle `next` is closed.
 * What was replaced is freed by the next replacement, or when `session` is closed. Calls about the state concern
 * `next`. */
PENSTOCK_API penstock_status penstock_session_replace(penstock_session* session, penstock_session* next, size_t steps,
                                                      penstock_error* error);

/* Copies the state, `count` = state_size floats in the order of Session::state(), and sets it. */
PENSTOCK_API penstock_status penstock_session_get_state(const penstock_session* session, float* state, size_t count,
                                                        penstock_error* error);
PENSTOCK_API penstock_status penstock_session_set_state(penstock_session* session, const float* state, size_t count,
                                                        penstock_error* error);
/* Writes the state as saved_size bytes that say which model they are of, and reads them: those of another model and
 * damaged ones are refused. */
PENSTOCK_API penstock_status penstock_session_save(const penstock_session* session, void* bytes, size_t size,
                                                   penstock_error* error);
PENSTOCK_API penstock_status penstock_session_restore(penstock_session* session, const void* bytes, size_t size,
                                                      penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif /* PENSTOCK_H */
