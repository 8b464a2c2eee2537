/* SessionPool in C: thousands of streams of one model or network that join, step and leave at any time. Ready steps are
 * computed in batches, on all threads of a pool or, of a model, on a GPU.
 *
 * Part of the library Penstock::core, in which penstock/session_pool.h is the same in C++. The C runtime of penstock.h,
 * whose types are used here, has no pools: link Penstock::core for them.
 *
 *   - Every call returns a penstock_status, and writes the reason in words to `error` unless that is null.
 *   - Sessions are numbers from 1 up. A pool refuses those that have left and those of other pools.
 *   - A pool is for one call at a time, but any thread may submit steps at any time. For one thread on each core that
 *     waits for no other, open a pool for each.
 *   - A pool is a pointer: do not use it once it is closed.
 */
#ifndef PENSTOCK_POOL_H
#define PENSTOCK_POOL_H

#include <penstock.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_pool penstock_pool;

/* Zeros are the defaults, except that `struct_size` and `capacity` must be set. */
typedef struct penstock_pool_options {
  size_t struct_size;           /* sizeof(penstock_pool_options) */
  size_t capacity;              /* Sessions that may be open at a time: 1 to 2^24. */
  int32_t threads;              /* 0: all that the machine offers. */
  size_t queue;                 /* Steps that may wait; 0: none, the pool takes steps by push alone. */
  size_t batch;                 /* Steps that run computes at once; 0: 64 for each thread, on a GPU at most 16,384. */
  double wait_s;                /* Seconds that the first step waits for others before run computes. */
  const penstock_shape* shapes; /* Of a network: those of one stream, as for penstock_network_open(). */
  size_t shape_count;
  const char* device; /* Of a model: "cpu", the default, "cuda" or "cuda:N". */
} penstock_pool_options;

typedef struct penstock_pool_info {
  size_t struct_size; /* Set by the caller: sizeof(penstock_pool_info). */
  size_t open;        /* Sessions. */
  size_t inputs;      /* Values that a step reads: 1 for a token; of a network all elements of all inputs. */
  size_t outputs;     /* Values that a step returns. */
  size_t state_size;  /* Floats of a session's state. */
} penstock_pool_info;

/* A step without an answer: its outputs are NaN. PENSTOCK_INVALID_ARGUMENT: the session is not open here, comes twice
 * in a call, or its step is wrong; its state is as before. PENSTOCK_NUMERICAL: an output was not finite; the session is
 * reset. All other steps of the call were taken. */
typedef struct penstock_pool_failure {
  size_t position;
  penstock_error error;
} penstock_pool_failure;

/* Steps that a call took. The arrays are the pool's, valid until its next call other than submit. */
typedef struct penstock_pool_answers {
  size_t count;
  const uint64_t* sessions; /* [count] */
  const uint64_t* tags;     /* [count], what submit was given; null after push */
  const float* outputs;     /* [count, outputs] */
  size_t failure_count;
  const penstock_pool_failure* failures; /* By position. */
} penstock_pool_answers;

/* Opens a pool of a file with a model of `penstock train`, float or int8, or a network of `penstock import`. Allocates
 * the memory of all sessions. On failure *pool becomes null. */
PENSTOCK_API penstock_status penstock_pool_open(const char* path, const penstock_pool_options* options,
                                                penstock_pool** pool, penstock_error* error);
/* Closes a pool and its sessions. Steps that wait are not computed. */
PENSTOCK_API penstock_status penstock_pool_close(penstock_pool* pool, penstock_error* error);
PENSTOCK_API penstock_status penstock_pool_get_info(const penstock_pool* pool, penstock_pool_info* info,
                                                    penstock_error* error);

/* Opens a session at the start of a sequence. PENSTOCK_FULL: `capacity` sessions are open. */
PENSTOCK_API penstock_status penstock_pool_join(penstock_pool* pool, uint64_t* session, penstock_error* error);
PENSTOCK_API penstock_status penstock_pool_leave(penstock_pool* pool, uint64_t session, penstock_error* error);
/* Returns a session to the start of a sequence. */
PENSTOCK_API penstock_status penstock_pool_reset(penstock_pool* pool, uint64_t session, penstock_error* error);
/* Copies the state of a session, `count` = state_size floats, and sets it: perhaps in another pool of the same model,
 * of another process. A state of another size or with a value that is not finite is refused. */
PENSTOCK_API penstock_status penstock_pool_get_state(const penstock_pool* pool, uint64_t session, float* state,
                                                     size_t count, penstock_error* error);
PENSTOCK_API penstock_status penstock_pool_set_state(penstock_pool* pool, uint64_t session, const float* state,
                                                     size_t count, penstock_error* error);

/* Takes a step of each of n sessions: reads normalised features [n, inputs] or tokens [n]. */
PENSTOCK_API penstock_status penstock_pool_push(penstock_pool* pool, const uint64_t* sessions, size_t n,
                                                const float* features, penstock_pool_answers* answers,
                                                penstock_error* error);
PENSTOCK_API penstock_status penstock_pool_push_tokens(penstock_pool* pool, const uint64_t* sessions, size_t n,
                                                       const int32_t* tokens, penstock_pool_answers* answers,
                                                       penstock_error* error);

/* Puts a step of a session into the queue: features [inputs], or a token. `tag` returns with the answer. Steps of one
 * session are computed in their order. PENSTOCK_FULL: nothing has changed; submit it again after run, slow the stream
 * down, or refuse it. Allocates nothing and takes no lock. */
PENSTOCK_API penstock_status penstock_pool_submit(penstock_pool* pool, uint64_t session, const float* features,
                                                  uint64_t tag, penstock_error* error);
PENSTOCK_API penstock_status penstock_pool_submit_token(penstock_pool* pool, uint64_t session, int32_t token,
                                                        uint64_t tag, penstock_error* error);
/* Takes the steps that wait, at most one of each session and `batch` of them. If there are none, waits up to `idle_s`
 * seconds for the first; then up to wait_s from its arrival, unless the batch is full before. */
PENSTOCK_API penstock_status penstock_pool_run(penstock_pool* pool, double idle_s, penstock_pool_answers* answers,
                                               penstock_error* error);

#ifdef __cplusplus
}
#endif

#endif /* PENSTOCK_POOL_H */
