#include "device_pass.h"

#include <algorithm>
#include <array>

namespace penstock::python {
namespace {

template <class Real>
constexpr DType dtype_of = sizeof(Real) == sizeof(double) ? DType::f64 : DType::f32;

}  // namespace

template <class Real>
RecurrentForm form_of(const RecurrentSpec& spec, const Rows& rows) {
  const Batch& batch = rows.batch();
  RecurrentForm form;
  form.dtype = form.weights = dtype_of<Real>;
  form.rows = batch.rows;
  form.steps = batch.steps;
  form.lengths = batch.lengths != nullptr;
  form.reset = batch.reset != nullptr;
  if (rows.packed()) form.positions = rows.positions();
  if (!rows.packed() && !rows.one_row() && rows.layout() == Layout::time_first) {
    form.x = {spec.input_size, batch.rows * spec.input_size};
    form.y = {spec.output_size(), batch.rows * spec.output_size()};
  }
  return form;
}

template <class Real>
Tensor DevicePass<Real>::tensor(const Buffer& buffer, std::initializer_list<Index> shape) const {
  return Tensor::contiguous(buffer.data(), dtype_of<Real>, shape, stream_.device());
}

template <class Real>
Buffer DevicePass<Real>::uploaded(const void* from, std::size_t bytes) {
  Buffer buffer(stream_, std::max<std::size_t>(bytes, 1));
  if (bytes > 0) buffer.upload(from, bytes);
  return buffer;
}

template <class Real>
void DevicePass<Real>::upload_weights(std::span<const typename Recurrent<Real>::Parameter> parameters) {
  for (const auto& parameter : parameters) {
    buffers_.push_back(uploaded(parameter.value.data(), parameter.value.size_bytes()));
    Tensor weight = tensor(buffers_.back(), {1});
    weight.rank = static_cast<int>(parameter.shape.size());
    Index stride = 1;
    for (int axis = weight.rank - 1; axis >= 0; --axis) {
      weight.shape[axis] = parameter.shape[axis];
      weight.strides[axis] = stride;
      stride *= parameter.shape[axis];
    }
    weights_.push_back(weight);
  }
}

template <class Real>
void DevicePass<Real>::forget() {
  const std::lock_guard lock(mutex_);
  weights_.clear();
  buffers_.clear();
}

template <class Real>
void DevicePass<Real>::forward(const RecurrentSpec& spec,
                               std::span<const typename Recurrent<Real>::Parameter> parameters, const Call& call) {
  const std::lock_guard lock(mutex_);
  const RecurrentForm form = form_of<Real>(spec, *call.rows);
  const auto program = RecurrentProgram::get(spec, form, call.execution);
  if (weights_.empty()) upload_weights(parameters);

  const Batch& given = call.rows->batch();
  const Index positions = call.rows->positions();
  const auto bytes = [&](Index count) { return static_cast<std::size_t>(count) * sizeof(Real); };
  const Index state_size =
      find_cell(spec.cell).states * spec.layers * spec.directions() * given.rows * spec.hidden_size;
  const auto sequence = [&](const Buffer& buffer, Index channels, SequenceStrides strides) {
    Tensor result = call.rows->packed() ? tensor(buffer, {positions, channels})
                                        : tensor(buffer, {given.rows, given.steps, channels});
    if (strides != SequenceStrides{}) {
      result.strides[0] = strides.row;
      result.strides[1] = strides.step;
    }
    return result;
  };
  const std::array<Index, 4> state_shape = {find_cell(spec.cell).states, spec.layers * spec.directions(), given.rows,
                                            spec.hidden_size};
  const auto state = [&](const Buffer& buffer) {
    return tensor(buffer, {state_shape[0], state_shape[1], state_shape[2], state_shape[3]});
  };

  const Buffer x = uploaded(call.x, bytes(positions * spec.input_size));
  const Buffer y(stream_, std::max<std::size_t>(bytes(positions * spec.output_size()), 1));
  const Buffer state_out(stream_, bytes(state_size)),
      workspace(stream_, std::max<std::size_t>(program->workspace_bytes(), 1));
  const Buffer state_in = call.state_in == nullptr ? Buffer() : uploaded(call.state_in, bytes(state_size));
  Batch batch = given;
  std::vector<Buffer> ragged;
  const auto on_device = [&]<class T>(const T*& data, Index count) {
    if (data == nullptr) return;
    ragged.push_back(uploaded(data, static_cast<std::size_t>(count) * sizeof(T)));
    data = static_cast<const T*>(ragged.back().data());
  };
  on_device(batch.lengths, batch.rows);
  on_device(batch.cu_seqlens, batch.rows + 1);
  on_device(batch.reset, positions);

  const Context context{.execution = call.execution, .stream = stream_.handle()};
  RecurrentProgram::Forward forward;
  forward.weights = weights_;
  forward.batch = batch;
  forward.x = sequence(x, spec.input_size, form.x);
  forward.y = sequence(y, spec.output_size(), form.y);
  if (call.state_in != nullptr) forward.state_in = state(state_in);
  forward.state_out = state(state_out);
  forward.workspace = workspace.memory();
  program->forward(context, forward);
  y.download(call.y, bytes(positions * spec.output_size()));
  state_out.download(call.state_out, bytes(state_size));
}

template class DevicePass<float>;
template class DevicePass<double>;
template RecurrentForm form_of<float>(const RecurrentSpec& spec, const Rows& rows);
template RecurrentForm form_of<double>(const RecurrentSpec& spec, const Rows& rows);

}  // namespace penstock::python
