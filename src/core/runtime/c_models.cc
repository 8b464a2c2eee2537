// The calls of penstock.h about the library and open models: they check what C callers can get wrong, and report
// failures.
#include <penstock.h>

#include <string>

#include "penstock/version.h"
#include "runtime/c_call.h"
#include "runtime/handles.h"
#include "runtime/model.h"
#include "runtime/session.h"

namespace penstock::runtime {

bool hand_out(Model* opened, penstock_model** model, Failure& failure) {
  if (opened == nullptr) return false;
  *model = static_cast<penstock_model*>(open_handle(HandleKind::model, opened));
  if (*model != nullptr) return true;
  opened->release();
  return failure.set(PENSTOCK_OUT_OF_MEMORY, "no memory for another model");
}

Model* find(const penstock_model* handle, Failure& failure) {
  auto* const model = static_cast<Model*>(find_object(HandleKind::model, handle));
  if (model == nullptr) failure.set(PENSTOCK_INVALID_ARGUMENT, "the model is not open");
  return model;
}

namespace {

bool get_column(const std::vector<ModelColumn>& columns, const char* what, std::size_t index, penstock_column* column,
                Failure& failure) {
  if (!given(column, "column", failure)) return false;
  if (index >= columns.size()) {
    return failure.set(PENSTOCK_INVALID_ARGUMENT, "the model has %zu %s, there is no number %zu", columns.size(), what,
                       index);
  }
  const ModelColumn& from = columns[index];
  *column = {from.name.c_str(),
             from.mean,
             from.scale,
             from.logarithm ? 1 : 0,
             from.non_negative ? 1 : 0,
             from.is_value ? 1 : 0,
             static_cast<std::int32_t>(from.ahead)};
  return true;
}

}  // namespace
}  // namespace penstock::runtime

using namespace penstock::runtime;  // NOLINT(google-build-using-namespace): the functions of C have no namespace

extern "C" {

uint32_t penstock_c_api(void) { return PENSTOCK_C_API; }

const char* penstock_version(void) { return PENSTOCK_VERSION; }

const char* penstock_status_name(int32_t status) {
  static constexpr const char* names[] = {"ok",           "invalid argument", "bad input",
                                          "incompatible", "io failure",       "numerical",
                                          "unsupported",  "out of memory",    "full"};
  const auto number = static_cast<unsigned>(status);
  return number < sizeof(names) / sizeof(names[0]) ? names[number] : "unknown";
}

penstock_status penstock_model_close(penstock_model* model, penstock_error* error) {
  return call(error, [&](Failure& failure) {
    auto* const open = static_cast<Model*>(close_handle(HandleKind::model, model));
    if (open == nullptr) return failure.set(PENSTOCK_INVALID_ARGUMENT, "the model is not open");
    open->release();
    return true;
  });
}

penstock_status penstock_model_get_info(const penstock_model* handle, penstock_model_info* info,
                                        penstock_error* error) {
  return with_model(handle, error, [&](Model& model, Failure& failure) {
    if (!given(info, "info", failure)) return false;
    if (info->struct_size != sizeof(penstock_model_info)) {
      return failure.set(PENSTOCK_INVALID_ARGUMENT,
                         "info->struct_size must be %zu, the size of this version's struct, "
                         "not %zu",
                         sizeof(penstock_model_info), info->struct_size);
    }
    const Description& of = model.description;
    *info = {sizeof(penstock_model_info),
             of.task,
             static_cast<uint32_t>(of.vocabulary),
             static_cast<uint32_t>(model.inputs),
             static_cast<uint32_t>(model.outputs),
             static_cast<uint32_t>(of.task == PENSTOCK_FORECAST ? of.targets.size() : 0),
             static_cast<uint32_t>(of.horizon),
             static_cast<uint32_t>(of.sample_rate),
             0,
             model.parameters,
             model.float_state ? model.state_bytes / sizeof(float) : 0,
             Session::saved_size(model),
             Session::bytes_of(model)};
    return true;
  });
}

penstock_status penstock_model_get_input(const penstock_model* handle, size_t index, penstock_column* column,
                                         penstock_error* error) {
  return with_model(handle, error, [&](Model& model, Failure& failure) {
    return get_column(model.description.inputs, "inputs", index, column, failure);
  });
}

penstock_status penstock_model_get_target(const penstock_model* handle, size_t index, penstock_column* column,
                                          penstock_error* error) {
  return with_model(handle, error, [&](Model& model, Failure& failure) {
    return get_column(model.description.targets, "targets", index, column, failure);
  });
}

penstock_status penstock_model_get_class(const penstock_model* handle, size_t index, const char** name,
                                         penstock_error* error) {
  return with_model(handle, error, [&](Model& model, Failure& failure) {
    if (!given(name, "name", failure)) return false;
    const std::vector<std::string>& classes = model.description.classes;
    if (index >= classes.size()) {
      return failure.set(PENSTOCK_INVALID_ARGUMENT, "the model has %zu classes, there is no number %zu", classes.size(),
                         index);
    }
    *name = classes[index].c_str();
    return true;
  });
}

penstock_status penstock_model_get_instruction_set(const penstock_model* handle, const char** name,
                                                   penstock_error* error) {
  return with_model(handle, error, [&](Model& model, Failure& failure) {
    if (!given(name, "name", failure)) return false;
    *name = model.instruction_set;
    return true;
  });
}

}  // extern "C"
