// The calls of penstock.h about networks. A program that makes none of them does not link what networks need.
#include "runtime/c_call.h"
#include "runtime/handles.h"
#include "runtime/network_model.h"

namespace penstock::runtime {

namespace {

template <class From>
penstock_status open(const From& from, const void* given, const char* given_as, const char* source,
                     const penstock_shape* shapes, std::size_t count, penstock_model** model, penstock_error* error) {
  return open_model(given, given_as, source, model, error, [&](Failure& failure) -> Model* {
    if (count > 0 && !runtime::given(shapes, "shapes", failure)) return nullptr;
    return NetworkModel::open(from, {shapes, count}, failure);
  });
}

penstock_status get(const penstock_model* handle, const std::vector<NetworkModel::Port> NetworkModel::*ports,
                    const char* what, std::size_t index, penstock_tensor* tensor, penstock_error* error) {
  return call(error, [&](Failure& failure) {
    const auto* const model = static_cast<const Model*>(find_object(HandleKind::model, handle));
    if (model == nullptr) return failure.set(PENSTOCK_INVALID_ARGUMENT, "the model is not open");
    if (model->description.task != PENSTOCK_NETWORK) {
      return failure.set(PENSTOCK_INVALID_ARGUMENT, "the model is no network: use penstock_model_get_%s()", what);
    }
    if (!given(tensor, "tensor", failure)) return false;
    const std::vector<NetworkModel::Port>& all = static_cast<const NetworkModel*>(model)->*ports;
    if (index >= all.size()) {
      return failure.set(PENSTOCK_INVALID_ARGUMENT, "the network has %zu %ss, there is no number %zu", all.size(), what,
                         index);
    }
    const NetworkModel::Port& port = all[index];
    *tensor = {port.name, port.extents.data(), port.extents.size(), port.first, port.size};
    return true;
  });
}

}  // namespace
}  // namespace penstock::runtime

using namespace penstock::runtime;  // NOLINT(google-build-using-namespace): the functions of C have no namespace

extern "C" {

penstock_status penstock_network_open(const char* path, const penstock_shape* shapes, size_t shape_count,
                                      penstock_model** model, penstock_error* error) {
  return open(path, path, "path", path, shapes, shape_count, model, error);
}

penstock_status penstock_network_open_memory(const void* bytes, size_t size, const penstock_shape* shapes,
                                             size_t shape_count, penstock_model** model, penstock_error* error) {
  return open(std::string_view(static_cast<const char*>(bytes), size), bytes, "bytes", "network in memory", shapes,
              shape_count, model, error);
}

penstock_status penstock_network_get_input(const penstock_model* model, size_t index, penstock_tensor* tensor,
                                           penstock_error* error) {
  return get(model, &NetworkModel::reads, "input", index, tensor, error);
}

penstock_status penstock_network_get_output(const penstock_model* model, size_t index, penstock_tensor* tensor,
                                            penstock_error* error) {
  return get(model, &NetworkModel::writes, "output", index, tensor, error);
}

}  // extern "C"
