#include "backend/cuda/pointwise/changes.h"

#include <cstring>

#include "backend/cuda/pointwise/arguments.h"
#include "base/check.h"
#include "base/training_step.h"

namespace penstock::cuda {
namespace {

ChangesArguments arguments_of(const Changes& spec) {
  ChangesArguments arguments{};
  arguments.rows = static_cast<int>(spec.positions.rows);
  arguments.steps = static_cast<int>(spec.positions.steps);
  arguments.inputs = static_cast<int>(spec.inputs);
  arguments.shared = static_cast<int>(spec.columns.size());
  arguments.horizon = static_cast<int>(spec.horizon);
  arguments.targets = static_cast<int>(spec.targets);
  return arguments;
}

}  // namespace

KernelSource changes_source(plan::Storage storage, bool add) {
  return pointwise_source(add ? "ChangesAdd" : "ChangesRead", add ? "changes_add" : "changes_read",
                          {{"using Storage", storage_type(storage)}, {"constexpr int kThreads", kBlockThreads}});
}

ChangesExecutable::ChangesExecutable(Device& device, const Changes& spec)
    : spec_(spec),
      read_(&Kernel::load(device, changes_source(spec.features, false))),
      add_(&Kernel::load(device, changes_source(spec.outputs, true))) {
  require_positions(spec.positions);
  require_size(spec.inputs, 1, "inputs");
  require_size(spec.horizon, 1, "horizon");
  require_size(spec.targets, 1, "targets");
  std::vector<ChangesColumn> columns;
  for (const SharedColumn& column : spec.columns) {
    require(column.input >= 0 && column.input < spec.inputs && column.target >= 0 && column.target < spec.targets,
            "columns must be among the {} inputs and {} targets, not {} and {}", spec.inputs, spec.targets,
            column.input, column.target);
    columns.push_back({static_cast<int>(column.input), static_cast<int>(column.target),
                       static_cast<float>(column.change_factor), 0.0f, column.factor, column.offset});
  }
  columns_.resize(columns.size() * sizeof(ChangesColumn));
  if (!columns.empty()) std::memcpy(columns_.data(), columns.data(), columns_.size());
}

void ChangesExecutable::read(const ChangesReadCall& call, StreamHandle stream) const {
  require_lengths(spec_.positions, call.lengths);
  if (spec_.positions.count() == 0) return;
  require_address(call.features, "features");
  require_address(call.state_in, "state_in");
  require_address(call.state_out, "state_out");
  require_address(call.y, "y");
  require(call.state_in != call.state_out || spec_.positions.steps == 1, "state_out may be state_in for one step only");
  ChangesArguments arguments = arguments_of(spec_);
  arguments.columns = device_pointer<const ChangesColumn>(call.columns);
  arguments.features = device_pointer<const float>(call.features);
  arguments.lengths = device_pointer<const long long>(call.lengths);
  arguments.reset = device_pointer<const unsigned char>(call.reset);
  arguments.state_in = device_pointer<const float>(call.state_in);
  arguments.state_out = device_pointer<float>(call.state_out);
  arguments.y = device_pointer<char>(call.y);
  read_->launch(blocks_for(spec_.positions.count(), kBlockThreads), kBlockThreads, arguments, stream);
}

void ChangesExecutable::add_last(const ChangesAddCall& call, StreamHandle stream) const {
  require_lengths(spec_.positions, call.lengths);
  if (spec_.positions.count() == 0) return;
  require_address(call.features, "features");
  require_address(call.outputs, "outputs");
  ChangesArguments arguments = arguments_of(spec_);
  arguments.columns = device_pointer<const ChangesColumn>(call.columns);
  arguments.features = device_pointer<const float>(call.features);
  arguments.lengths = device_pointer<const long long>(call.lengths);
  arguments.y = device_pointer<char>(call.outputs);
  add_->launch(blocks_for(spec_.positions.count(), kBlockThreads), kBlockThreads, arguments, stream);
}

}  // namespace penstock::cuda
