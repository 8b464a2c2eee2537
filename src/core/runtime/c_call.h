#pragma once

#include <penstock.h>

#include <string_view>

#include "runtime/failure.h"

/// What the functions of penstock.h share.
namespace penstock::runtime {

class Model;

inline bool given(const void* pointer, const char* name, Failure& failure) {
  return pointer != nullptr || failure.set(PENSTOCK_INVALID_ARGUMENT, "%s must not be null", name);
}

/// Runs body(failure), which returns false after a failure, and reports to the caller.
template <class Body>
penstock_status call(penstock_error* error, const Body& body) {
  Failure failure;
  if (body(failure)) return PENSTOCK_OK;
  return failure.report(error);
}

/// Gives the caller a handle of an opened model, unless that is null.
bool hand_out(Model* opened, penstock_model** model, Failure& failure);
/// Returns the model of a handle. Returns null and sets the failure if it is not open.
Model* find(const penstock_model* handle, Failure& failure);

/// Runs body(model, failure) on an open model.
template <class Body>
penstock_status with_model(const penstock_model* handle, penstock_error* error, const Body& body) {
  return call(error, [&](Failure& failure) {
    Model* const model = find(handle, failure);
    return model != nullptr && body(*model, failure);
  });
}

/// Opens a model from what `given_as` names ("path", "bytes") by open(failure). `source` begins messages about it.
template <class Open>
penstock_status open_model(const void* from, const char* given_as, const char* source, penstock_model** model,
                           penstock_error* error, const Open& open) {
  return call(error, [&](Failure& outer) {
    if (!given(model, "model", outer)) return false;
    *model = nullptr;
    if (!given(from, given_as, outer)) return false;
    Failure failure(source);
    if (hand_out(open(failure), model, failure)) return true;
    outer = failure;
    return false;
  });
}

}  // namespace penstock::runtime
