// The calls of penstock.h that open models of `penstock train`. A program that makes none of them does not link what
// these models need.
#include "runtime/c_call.h"
#include "runtime/recurrent_model.h"

using namespace penstock::runtime;  // NOLINT(google-build-using-namespace): the functions of C have no namespace

extern "C" {

penstock_status penstock_model_open(const char* path, penstock_model** model, penstock_error* error) {
  return open_model(path, "path", path, model, error,
                    [&](Failure& failure) { return RecurrentModel::open(path, failure); });
}

penstock_status penstock_model_open_memory(const void* bytes, size_t size, penstock_model** model,
                                           penstock_error* error) {
  return open_model(bytes, "bytes", "model in memory", model, error, [&](Failure& failure) {
    return RecurrentModel::open(std::string_view(static_cast<const char*>(bytes), size), failure);
  });
}

}  // extern "C"
