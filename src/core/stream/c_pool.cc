// The calls of penstock_pool.h: they check what C callers can get wrong, and make status codes of exceptions.
#include <penstock_pool.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "penstock/model_file.h"
#include "penstock/session_pool.h"

struct penstock_pool {
  penstock::SessionPool pool;
  std::vector<float> outputs = {};
  std::vector<penstock::PooledSession> sessions = {};
  std::vector<penstock_pool_failure> failures = {};
};

namespace penstock {
namespace {

static_assert(sizeof(PooledSession) == sizeof(std::uint64_t));  // arrays of them are handed out as numbers

penstock_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return PENSTOCK_INVALID_ARGUMENT;
    case ErrorCode::bad_input:
      return PENSTOCK_BAD_INPUT;
    case ErrorCode::incompatible:
      return PENSTOCK_INCOMPATIBLE;
    case ErrorCode::io_failure:
      return PENSTOCK_IO_FAILURE;
    case ErrorCode::numerical:
      return PENSTOCK_NUMERICAL;
    case ErrorCode::out_of_memory:
      return PENSTOCK_OUT_OF_MEMORY;
    case ErrorCode::unsupported:
    case ErrorCode::interrupted:
    case ErrorCode::device_failure:
      break;
  }
  return PENSTOCK_UNSUPPORTED;
}

penstock_status report(penstock_error* error, penstock_status status, const char* text) {
  if (error == nullptr) return status;
  error->status = status;
  std::snprintf(error->text, sizeof(error->text), "%s", text);
  return status;
}

/// Runs body(), which returns a status or throws.
template <class Body>
penstock_status call(penstock_error* error, const Body& body) {
  try {
    return body();
  } catch (const Error& failure) {
    return report(error, status_of(failure.code()), failure.what());
  } catch (const std::bad_alloc&) {
    return report(error, PENSTOCK_OUT_OF_MEMORY, "no memory for the pool");
  } catch (const std::exception& failure) {  // of the standard library, as a thread that cannot start: none may enter C
    return report(error, PENSTOCK_UNSUPPORTED, failure.what());
  }
}

void require_given(const void* pointer, const char* name) { require(pointer != nullptr, "{} must not be null", name); }

template <class Body>
penstock_status with_pool(const penstock_pool* pool, penstock_error* error, const Body& body) {
  return call(error, [&] {
    require_given(pool, "pool");
    return body();
  });
}

template <class Struct>
void require_size(const Struct& given, const char* name) {
  require(given.struct_size == sizeof(Struct), "{}.struct_size must be {}, not {}: set it to sizeof({})", name,
          sizeof(Struct), given.struct_size, name);
}

SessionPool open(const char* path, const penstock_pool_options& options) {
  // Larger numbers are refused by the pool, too.
  const auto number = [](std::size_t given) { return static_cast<Index>(std::min(given, std::size_t{1} << 40)); };
  const Device device = options.device == nullptr ? Device{} : parse_device(options.device);
  const Execution execution{.threads = options.threads, .device = device};
  const PoolQueue queue{number(options.queue), options.wait_s, number(options.batch)};
  if (inspect_model_file(path).kind != ModelFile::Kind::network) {
    require(options.shape_count == 0, "shapes are those of a network, but '{}' is a model", path);
    return {Model::load(path), number(options.capacity), execution, queue};
  }
  NetworkShapes shapes;
  if (options.shape_count > 0) require_given(options.shapes, "options.shapes");
  for (const penstock_shape& shape : std::span(options.shapes, options.shape_count)) {
    require_given(shape.input, "input of a shape");
    if (shape.rank > 0) require_given(shape.extents, "extents of a shape");
    shapes[shape.input] = {shape.extents, shape.extents + shape.rank};
  }
  return {Network::load(path), shapes, number(options.capacity), execution, queue};
}

/// Hands out what the pool took.
penstock_status answer(penstock_pool& of, const PoolAnswers& taken, penstock_pool_answers& answers) {
  of.failures.clear();
  for (const PoolFailure& failure : taken.failures) {
    penstock_pool_failure& added = of.failures.emplace_back();
    added.position = static_cast<std::size_t>(failure.position);
    report(&added.error, status_of(failure.error.code()), failure.error.what());
  }
  const auto* const sessions = reinterpret_cast<const std::uint64_t*>(taken.sessions.data());
  answers = {taken.sessions.size(), sessions,           taken.tags.data(),
             taken.outputs.data(),  of.failures.size(), of.failures.data()};
  return PENSTOCK_OK;
}

template <class Value>
penstock_status push(penstock_pool* pool, const std::uint64_t* sessions, std::size_t n, const Value* steps,
                     penstock_pool_answers* answers, penstock_error* error) {
  return with_pool(pool, error, [&] {
    require_given(answers, "answers");
    if (n > 0) require_given(sessions, "sessions"), require_given(steps, "steps");
    pool->sessions.clear();
    for (std::size_t i = 0; i < n; ++i) pool->sessions.push_back({sessions[i]});
    pool->outputs.resize(n * static_cast<std::size_t>(pool->pool.outputs()));
    const std::span values(steps, n * static_cast<std::size_t>(pool->pool.inputs()));
    std::vector<PoolFailure> failures = pool->pool.push(pool->sessions, values, pool->outputs);
    return answer(*pool, {pool->sessions, {}, pool->outputs, std::move(failures)}, *answers);
  });
}

template <class Step>
penstock_status submit(penstock_pool* pool, std::uint64_t session, const Step& step, std::uint64_t tag,
                       penstock_error* error) {
  return with_pool(pool, error, [&] {
    if (pool->pool.submit({session}, step(), tag)) return PENSTOCK_OK;
    return report(error, PENSTOCK_FULL, "the queue of the pool is full: submit the step again after a run");
  });
}

}  // namespace
}  // namespace penstock

using namespace penstock;  // NOLINT(google-build-using-namespace): the functions of C have no namespace

extern "C" {

penstock_status penstock_pool_open(const char* path, const penstock_pool_options* options, penstock_pool** pool,
                                   penstock_error* error) {
  return call(error, [&] {
    require_given(pool, "pool");
    *pool = nullptr;
    require_given(path, "path");
    require_given(options, "options");
    require_size(*options, "penstock_pool_options");
    *pool = new penstock_pool{open(path, *options)};
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_close(penstock_pool* pool, penstock_error* error) {
  return with_pool(pool, error, [&] {
    delete pool;
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_get_info(const penstock_pool* pool, penstock_pool_info* info, penstock_error* error) {
  return with_pool(pool, error, [&] {
    require_given(info, "info");
    require_size(*info, "penstock_pool_info");
    const SessionPool& of = pool->pool;
    const auto size = [](Index count) { return static_cast<std::size_t>(count); };
    *info = {sizeof(*info), size(of.open_sessions()), size(of.inputs()), size(of.outputs()), size(of.state_size())};
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_join(penstock_pool* pool, uint64_t* session, penstock_error* error) {
  return with_pool(pool, error, [&] {
    require_given(session, "session");
    *session = 0;
    if (pool->pool.open_sessions() == pool->pool.capacity()) {
      return report(error, PENSTOCK_FULL, "all sessions of the pool are open: let one leave, or open a larger pool");
    }
    *session = pool->pool.open().id;
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_leave(penstock_pool* pool, uint64_t session, penstock_error* error) {
  return with_pool(pool, error, [&] {
    pool->pool.close({session});
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_reset(penstock_pool* pool, uint64_t session, penstock_error* error) {
  return with_pool(pool, error, [&] {
    pool->pool.reset({session});
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_get_state(const penstock_pool* pool, uint64_t session, float* state, size_t count,
                                        penstock_error* error) {
  return with_pool(pool, error, [&] {
    const std::vector<float> copy = pool->pool.state({session});
    require(count == copy.size(), "state must hold {} floats (state_size), not {}", copy.size(), count);
    if (count > 0) require_given(state, "state");
    std::ranges::copy(copy, state);
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_set_state(penstock_pool* pool, uint64_t session, const float* state, size_t count,
                                        penstock_error* error) {
  return with_pool(pool, error, [&] {
    if (count > 0) require_given(state, "state");
    pool->pool.restore({session}, {state, count});
    return PENSTOCK_OK;
  });
}

penstock_status penstock_pool_push(penstock_pool* pool, const uint64_t* sessions, size_t n, const float* features,
                                   penstock_pool_answers* answers, penstock_error* error) {
  return push(pool, sessions, n, features, answers, error);
}

penstock_status penstock_pool_push_tokens(penstock_pool* pool, const uint64_t* sessions, size_t n,
                                          const int32_t* tokens, penstock_pool_answers* answers,
                                          penstock_error* error) {
  return push(pool, sessions, n, tokens, answers, error);
}

penstock_status penstock_pool_submit(penstock_pool* pool, uint64_t session, const float* features, uint64_t tag,
                                     penstock_error* error) {
  const auto step = [&] {
    require_given(features, "features");
    return std::span(features, static_cast<std::size_t>(pool->pool.inputs()));
  };
  return submit(pool, session, step, tag, error);
}

penstock_status penstock_pool_submit_token(penstock_pool* pool, uint64_t session, int32_t token, uint64_t tag,
                                           penstock_error* error) {
  return submit(
      pool, session, [&] { return token; }, tag, error);
}

penstock_status penstock_pool_run(penstock_pool* pool, double idle_s, penstock_pool_answers* answers,
                                  penstock_error* error) {
  return with_pool(pool, error, [&] {
    require_given(answers, "answers");
    return answer(*pool, pool->pool.run(idle_s), *answers);
  });
}

}  // extern "C"
