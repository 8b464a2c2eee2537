// The calls of penstock.h that open models with weights of int8. A program that makes none of them does not link what
// these weights need.
#include "runtime/c_call.h"
#include "runtime/int8_kernels.h"
#include "runtime/recurrent_model.h"

using namespace penstock::runtime;  // NOLINT(google-build-using-namespace): the functions of C have no namespace

extern "C" {

penstock_status penstock_int8_model_open(const char* path, penstock_model** model, penstock_error* error) {
  return open_model(path, "path", path, model, error,
                    [&](Failure& failure) { return RecurrentModel::open(path, failure, &int8_kernels); });
}

penstock_status penstock_int8_model_open_memory(const void* bytes, size_t size, penstock_model** model,
                                                penstock_error* error) {
  return open_model(bytes, "bytes", "model in memory", model, error, [&](Failure& failure) {
    return RecurrentModel::open(std::string_view(static_cast<const char*>(bytes), size), failure, &int8_kernels);
  });
}

}  // extern "C"
