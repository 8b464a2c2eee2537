// The calls of penstock.h on sessions: they check what C callers can get wrong, and report failures.
#include <penstock.h>

#include "runtime/c_call.h"
#include "runtime/handles.h"
#include "runtime/model.h"
#include "runtime/session.h"

namespace penstock::runtime {
namespace {

Session* find(const penstock_session* handle, Failure& failure) {
  auto* const session = static_cast<Session*>(find_object(HandleKind::session, handle));
  if (session == nullptr) failure.set(PENSTOCK_INVALID_ARGUMENT, "the session is not open");
  return session;
}

/// Runs body(session, failure) on an open session.
template <class Body>
penstock_status with_session(const penstock_session* handle, penstock_error* error, const Body& body) {
  return call(error, [&](Failure& failure) {
    Session* const session = find(handle, failure);
    return session != nullptr && body(*session, failure);
  });
}

bool hand_out(Session* opened, penstock_session** session, Failure& failure) {
  if (opened == nullptr) return false;
  *session = static_cast<penstock_session*>(open_handle(HandleKind::session, opened));
  if (*session != nullptr) return true;
  opened->close();
  return failure.set(PENSTOCK_OUT_OF_MEMORY, "no memory for another session");
}

template <class Value>
penstock_status run(penstock_session* handle, const Value* inputs, std::size_t count, float* outputs, std::size_t size,
                    Span span, penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    if (count > 0 && !given(inputs, "inputs", failure)) return false;
    if (size > 0 && !given(outputs, "outputs", failure)) return false;
    return session.run(inputs, count, outputs, size, span, failure);
  });
}

/// What quick_step() leaves to do. A function of its own, because single samples have no time for its arguments.
[[gnu::noinline, gnu::cold]] penstock_status finish_step(penstock_session* handle, Session::Quick quick,
                                                         const float* features, std::size_t count, float* outputs,
                                                         std::size_t size, penstock_error* error) {
  if (quick == Session::Quick::no) return run(handle, features, count, outputs, size, Span::step, error);
  return with_session(handle, error,
                      [&](Session& session, Failure& failure) { return session.reject(0, outputs, failure); });
}

}  // namespace
}  // namespace penstock::runtime

using namespace penstock::runtime;  // NOLINT(google-build-using-namespace): the functions of C have no namespace

extern "C" {

penstock_status penstock_session_open(penstock_model* handle, void* memory, size_t size, penstock_session** session,
                                      penstock_error* error) {
  return with_model(handle, error, [&](Model& model, Failure& failure) {
    if (!given(session, "session", failure)) return false;
    *session = nullptr;
    return hand_out(Session::open(model, memory, size, failure), session, failure);
  });
}

penstock_status penstock_session_clone(const penstock_session* handle, void* memory, size_t size,
                                       penstock_session** copy, penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    if (!given(copy, "copy", failure)) return false;
    *copy = nullptr;
    return hand_out(session.clone(memory, size, failure), copy, failure);
  });
}

penstock_status penstock_session_close(penstock_session* session, penstock_error* error) {
  return call(error, [&](Failure& failure) {
    auto* const open = static_cast<Session*>(close_handle(HandleKind::session, session));
    if (open == nullptr) return failure.set(PENSTOCK_INVALID_ARGUMENT, "the session is not open");
    open->close();
    return true;
  });
}

penstock_status penstock_session_step(penstock_session* session, const float* features, size_t count, float* outputs,
                                      size_t size, penstock_error* error) {
  auto* const open = static_cast<Session*>(find_object(HandleKind::session, session));
  auto quick = Session::Quick::no;
  if (open != nullptr && features != nullptr && outputs != nullptr) {
    quick = open->quick_step(features, count, outputs, size);
    if (quick == Session::Quick::done) return PENSTOCK_OK;
  }
  return finish_step(session, quick, features, count, outputs, size, error);
}

penstock_status penstock_session_step_token(penstock_session* session, int32_t token, float* outputs, size_t size,
                                            penstock_error* error) {
  return run(session, &token, 1, outputs, size, Span::step, error);
}

penstock_status penstock_session_chunk(penstock_session* session, const float* features, size_t count, float* outputs,
                                       size_t size, penstock_error* error) {
  return run(session, features, count, outputs, size, Span::chunk, error);
}

penstock_status penstock_session_chunk_tokens(penstock_session* session, const int32_t* tokens, size_t count,
                                              float* outputs, size_t size, penstock_error* error) {
  return run(session, tokens, count, outputs, size, Span::chunk, error);
}

penstock_status penstock_session_sequence(penstock_session* session, const float* features, size_t count,
                                          float* outputs, size_t size, penstock_error* error) {
  return run(session, features, count, outputs, size, Span::sequence, error);
}

penstock_status penstock_session_sequence_tokens(penstock_session* session, const int32_t* tokens, size_t count,
                                                 float* outputs, size_t size, penstock_error* error) {
  return run(session, tokens, count, outputs, size, Span::sequence, error);
}

penstock_status penstock_session_reset(penstock_session* handle, penstock_error* error) {
  return with_session(handle, error, [](Session& session, Failure&) {
    session.reset();
    return true;
  });
}

penstock_status penstock_session_prewarm(penstock_session* handle, const float* features, size_t count, size_t steps,
                                         penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    return session.prewarm(features, count, steps, failure);
  });
}

penstock_status penstock_session_replace(penstock_session* handle, penstock_session* next, size_t steps,
                                         penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    Session* const replacement = find(next, failure);
    if (replacement == nullptr || !session.replace(replacement, steps, failure)) return false;
    close_handle(HandleKind::session, next);
    return true;
  });
}

penstock_status penstock_session_set_nan_policy(penstock_session* handle, int32_t policy, penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    if (policy < PENSTOCK_NAN_ERROR || policy > PENSTOCK_NAN_PASS) {
      return failure.set(PENSTOCK_INVALID_ARGUMENT, "policy must be 0 to 2, not %ld", static_cast<long>(policy));
    }
    session.set_policy(static_cast<penstock_nan_policy>(policy));
    return true;
  });
}

penstock_status penstock_session_get_state(const penstock_session* handle, float* state, size_t count,
                                           penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    return given(state, "state", failure) && session.get_state(state, count, failure);
  });
}

penstock_status penstock_session_set_state(penstock_session* handle, const float* state, size_t count,
                                           penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    return given(state, "state", failure) && session.set_state(state, count, failure);
  });
}

penstock_status penstock_session_save(const penstock_session* handle, void* bytes, size_t size, penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    return given(bytes, "bytes", failure) && session.save(bytes, size, failure);
  });
}

penstock_status penstock_session_restore(penstock_session* handle, const void* bytes, size_t size,
                                         penstock_error* error) {
  return with_session(handle, error, [&](Session& session, Failure& failure) {
    return given(bytes, "bytes", failure) && session.restore(bytes, size, failure);
  });
}

}  // extern "C"
