#include <algorithm>
#include <cstring>

#include "stream/pool_rows.h"
#include "stream/session_rows.h"

namespace penstock::streaming {

namespace {

/// Values that a row reads in a step: a token, or features.
Index inputs_of(const Model::Impl& model) { return model.data.vocabulary > 0 ? 1 : model.inputs(); }

/// Copies what `count` rows from `row` on read.
void set_input(SessionRows& rows, Index row, const void* values, Index count = 1) {
  const std::size_t bytes = rows.input_bytes() / static_cast<std::size_t>(rows.rows());
  std::memcpy(static_cast<std::byte*>(rows.input()) + static_cast<std::size_t>(row) * bytes, values,
              static_cast<std::size_t>(count) * bytes);
}

class ModelPoolRows final : public HostRows {
 public:
  ModelPoolRows(std::shared_ptr<HostStates> states, const Model::Impl& model, Index rows, const Execution& execution)
      : HostRows(std::move(states), inputs_of(model), model.outputs()), rows_(model, rows, execution) {}

  Index rows() const override { return rows_.rows(); }
  void read(Index row, const float* state, const void* step) override {
    rows_.set_row(row, state);
    set_input(rows_, row, step);
  }
  void step() override { outputs_ = rows_.step().data(); }
  void copy_outputs(Index row, float* outputs) const override {
    const Index width = rows_.data().output_size();
    std::copy_n(outputs_ + row * width, width, outputs);
  }
  void write(Index row, float* state) const override { rows_.copy_row(row, state); }

 private:
  SessionRows rows_;
  const float* outputs_ = nullptr;
};

/// States in the memory of a GPU.
class DeviceStates final : public PoolStates {
 public:
  DeviceStates(std::shared_ptr<ops::Queue> queue, Index slots, Index size)
      : queue_(std::move(queue)),
        bytes_(static_cast<std::size_t>(size) * sizeof(float)),
        values_(*queue_, static_cast<std::size_t>(slots) * bytes_) {
    values_.zero();
  }

  ops::Buffer& all() { return values_; }
  void clear(Index slot) override { values_.zero(bytes_, offset(slot)); }
  void set(Index slot, std::span<const float> state) override { values_.upload(state.data(), bytes_, offset(slot)); }
  void copy(Index slot, std::span<float> state) const override { values_.download(state.data(), bytes_, offset(slot)); }

 private:
  std::size_t offset(Index slot) const { return static_cast<std::size_t>(slot) * bytes_; }

  std::shared_ptr<ops::Queue> queue_;
  std::size_t bytes_;  // of a slot
  ops::Buffer values_;
};

/// A batch on a GPU, whose recorded step reads and writes the states of slots.
class DeviceRows final : public PoolRows {
 public:
  DeviceRows(std::shared_ptr<DeviceStates> states, const Model::Impl& model, Index rows, const Execution& execution)
      : states_(std::move(states)), rows_(model, rows, execution), inputs_(inputs_of(model)), width_(model.outputs()) {
    rows_.use_states(states_->all());
  }

  Index rows() const override { return rows_.rows(); }
  void set_rows(Index first, std::span<const PoolStep> steps, const void* values) override {
    const auto at = [&](const PoolStep& step) { return static_cast<const float*>(values) + step.position * inputs_; };
    const bool at_once = are_gapless(steps);
    if (at_once) set_input(rows_, first, at(steps.front()), static_cast<Index>(steps.size()));
    std::int32_t* slot = rows_.slots().data() + first;
    for (const PoolStep& step : steps) {
      *slot++ = static_cast<std::int32_t>(step.slot);
      if (!at_once) set_input(rows_, first++, at(step));
    }
  }
  void step(Index count) override {
    std::ranges::fill(rows_.slots().subspan(static_cast<std::size_t>(count)), -1);
    outputs_ = rows_.step().data();
  }
  void copy_outputs(std::span<const PoolStep> steps, float* outputs) const override {
    const auto count = static_cast<Index>(steps.size());
    if (are_gapless(steps)) {
      std::copy_n(outputs_, count * width_, outputs + steps.front().position * width_);
      return;
    }
    for (Index row = 0; row < count; ++row) {
      std::copy_n(outputs_ + row * width_, width_, outputs + steps[static_cast<std::size_t>(row)].position * width_);
    }
  }
  void keep_state(Index /*row*/, Index /*slot*/) override {}
  void keep_states(std::span<const PoolStep> /*steps*/) override {}

 private:
  std::shared_ptr<DeviceStates> states_;
  SessionRows rows_;
  Index inputs_, width_;  // values of a row
  const float* outputs_ = nullptr;
};

/// Returns the rows of batches on a CPU. Engines compute four rows at a time, and two. Up to 64 rows each weight that
/// is read serves as many products, and states and products still fit the cache.
std::vector<Index> host_sizes(Index capacity) {
  std::vector<Index> sizes = {1, 2, 4, 6};
  for (Index rows = 8; rows <= 64; rows += 4) sizes.push_back(rows);
  std::erase_if(sizes, [&](Index rows) { return rows >= 2 * capacity; });
  return sizes;
}

/// Returns the rows of batches on a GPU, to which a few more rows are as good as none. The largest step with thousands
/// of units still fits its memory many times.
std::vector<Index> device_sizes(Index capacity) {
  constexpr Index least = 64, most = 16384;
  std::vector<Index> sizes;
  for (Index rows = least; rows < std::min(capacity, most); rows *= 2) sizes.push_back(rows);
  sizes.push_back(std::min(capacity, most));
  return sizes;
}

PoolParts device_parts(const Model::Impl& model, Index capacity, const std::vector<Index>& sizes,
                       const Execution& execution) {
  const auto queue = model.weights_on(execution.device)->shared_queue();
  const auto states = std::make_shared<DeviceStates>(queue, capacity, model.state_size);
  PoolParts parts{states, {}};
  auto& batches = parts.batches.emplace_back();
  for (const Index rows : sizes) batches.push_back(std::make_unique<DeviceRows>(states, model, rows, execution));
  return parts;
}

}  // namespace

PoolForm form_of(const Model::Impl& model, Index capacity, const Execution& execution) {
  const DataDescription& data = model.data;
  const bool on_gpu = execution.device.is_cuda();
  const std::vector<Index> sizes = on_gpu ? device_sizes(capacity) : host_sizes(capacity);
  return {.vocabulary = data.vocabulary,
          .inputs = inputs_of(model),
          .outputs = data.output_size(),
          .state_size = model.state_size,
          .sizes = sizes,
          .pads = true,
          .make = [=, &model](Index threads) {
            if (on_gpu) return device_parts(model, capacity, sizes, execution);
            return host_parts(capacity, model.state_size, threads, sizes, [&](const auto& states, std::size_t i) {
              return std::make_unique<ModelPoolRows>(states, model, sizes[i], execution);
            });
          }};
}

}  // namespace penstock::streaming
