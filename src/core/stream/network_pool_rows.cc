#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "stream/pool_rows.h"

namespace penstock::streaming {

namespace {

constexpr Index kFree = -1;  // an extent that the caller chooses

/// A tensor with an axis of rows.
struct RowsTensor {
  Index outer;  // blocks of all rows
  Index inner;  // values of a row in a block

  RowsTensor(const std::vector<Index>& shape, std::size_t axis)
      : outer(std::accumulate(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis), Index{1},
                              std::multiplies<>())),
        inner(std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end(), Index{1},
                              std::multiplies<>())) {}

  Index of_row() const { return outer * inner; }
  /// Copies a row of `all` [outer, rows, inner] from or to `alone` [outer, inner].
  void set(float* all, Index rows, Index row, const float* alone) const {
    for (Index i = 0; i < outer; ++i) std::copy_n(alone + i * inner, inner, all + (i * rows + row) * inner);
  }
  void copy(const float* all, Index rows, Index row, float* alone) const {
    for (Index i = 0; i < outer; ++i) std::copy_n(all + (i * rows + row) * inner, inner, alone + i * inner);
  }
};

/// Where the rows are in the inputs, outputs and states of a network.
struct RowsNetwork {
  NetworkShapes alone;                      // of all inputs and states, with one row
  std::map<std::string, std::size_t> axes;  // of the rows in these
  std::vector<RowsTensor> inputs, outputs, states;

  /// Shapes of a batch of rows.
  NetworkShapes shapes(Index rows) const {
    NetworkShapes all = alone;
    for (auto& [name, shape] : all) shape[axes.at(name)] = rows;
    return all;
  }
};

/// Returns the shape of an input or a state with one row, given by the caller or by extents of the same name.
std::vector<Index> shape_of(const NetworkTensor& tensor, const NetworkShapes& given, const Network& network) {
  if (const auto found = given.find(tensor.name); found != given.end()) return found->second;
  std::vector<Index> shape = tensor.shape;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] != kFree) continue;
    shape[axis] = 1;
    for (const NetworkTensor& input : network.inputs()) {
      const auto same = std::ranges::find(input.axes, tensor.axes[axis]);
      const auto known = given.find(input.name);
      if (tensor.axes[axis].empty() || same == input.axes.end() || known == given.end()) continue;
      shape[axis] = known->second.at(static_cast<std::size_t>(same - input.axes.begin()));
    }
  }
  return shape;
}

void add_rows(RowsNetwork& rows, std::vector<RowsTensor>& tensors, const NetworkTensor& tensor, const char* kind,
              const NetworkShapes& given, const Network& network) {
  const auto axis = static_cast<std::size_t>(std::ranges::find(tensor.shape, kFree) - tensor.shape.begin());
  if (axis == tensor.shape.size() || tensor.type != "f32") {
    fail(ErrorCode::unsupported, "a pool needs a network with an extent for rows and floats: {} {} has {}", kind,
         in_quotes(tensor.name), tensor.type != "f32" ? "the type " + tensor.type : "a fixed shape");
  }
  const std::vector<Index> shape = shape_of(tensor, given, network);
  require(shape.size() == tensor.shape.size() && shape[axis] == 1,
          "shapes: {} {} must have {} extents, and 1 as extent {}, that of the rows, not [{}]", kind,
          in_quotes(tensor.name), tensor.shape.size(), axis, fmt::join(shape, ", "));
  tensors.emplace_back(shape, axis);
  rows.alone[tensor.name] = shape;
  rows.axes[tensor.name] = axis;
}

/// Finds the rows of a network, gives each of them ranges of its own, and prepares the network for one row and for
/// two: `prepared` has these sessions.
RowsNetwork find_rows(Network& network, const NetworkShapes& shapes, std::vector<NetworkSession>& prepared) {
  RowsNetwork rows;
  for (const NetworkTensor& input : network.inputs()) add_rows(rows, rows.inputs, input, "input", shapes, network);
  for (const NetworkState& state : network.states()) {
    add_rows(rows, rows.states, state.input, "state", shapes, network);
  }
  for (const auto& [name, shape] : shapes) {
    require(rows.alone.contains(name), "shapes: there is no input or state {}", in_quotes(name));
  }
  network = network.with_row_ranges(rows.shapes(1), rows.shapes(2));
  for (const Index count : {1, 2}) prepared.emplace_back(network, rows.shapes(count), true);
  const NetworkSession &one = prepared[0], &two = prepared[1];
  for (std::size_t i = 0; i < one.outputs().size(); ++i) {
    const NetworkTensor& alone = one.outputs()[i];
    const std::vector<Index>& both = two.outputs()[i].shape;
    const auto differ = std::ranges::mismatch(alone.shape, both);
    std::vector<Index> expected = alone.shape;
    const auto axis = static_cast<std::size_t>(differ.in1 - alone.shape.begin());
    if (axis < expected.size()) expected[axis] = 2 * expected[axis];
    if (alone.type != "f32" || axis == expected.size() || alone.shape[axis] != 1 || expected != both) {
      fail(ErrorCode::unsupported,
           "a pool needs outputs with an extent for rows and floats: {} is {} [{}] for one row, [{}] for two",
           in_quotes(alone.name), alone.type, fmt::join(alone.shape, ", "), fmt::join(both, ", "));
    }
    rows.outputs.emplace_back(alone.shape, axis);
  }
  return rows;
}

Index values_of(const std::vector<RowsTensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), Index{0},
                         [](Index sum, const RowsTensor& tensor) { return sum + tensor.of_row(); });
}

class NetworkPoolRows final : public HostRows {
 public:
  NetworkPoolRows(std::shared_ptr<HostStates> states, std::shared_ptr<const RowsNetwork> network,
                  NetworkSession session, Index rows)
      : HostRows(std::move(states), values_of(network->inputs), values_of(network->outputs)),
        network_(std::move(network)),
        session_(std::move(session)),
        rows_(rows),
        state_(static_cast<std::size_t>(rows * values_of(network_->states))) {}

  Index rows() const override { return rows_; }
  void read(Index row, const float* state, const void* step) override {
    const auto* features = static_cast<const float*>(step);
    for (std::size_t i = 0; i < network_->inputs.size(); ++i) {
      const RowsTensor& tensor = network_->inputs[i];
      tensor.set(reinterpret_cast<float*>(session_.input(i).data()), rows_, row, features);
      features += tensor.of_row();
    }
    float* all = state_.data();
    for (const RowsTensor& tensor : network_->states) {
      tensor.set(all, rows_, row, state);
      all += rows_ * tensor.of_row();
      state += tensor.of_row();
    }
  }
  void step() override {
    session_.set_state(std::as_bytes(std::span(state_)));
    session_.run();
    session_.copy_state(std::as_writable_bytes(std::span(state_)));
  }
  void copy_outputs(Index row, float* outputs) const override {
    for (std::size_t i = 0; i < network_->outputs.size(); ++i) {
      const RowsTensor& tensor = network_->outputs[i];
      tensor.copy(reinterpret_cast<const float*>(session_.output(i).data()), rows_, row, outputs);
      outputs += tensor.of_row();
    }
  }
  void write(Index row, float* state) const override {
    const float* all = state_.data();
    for (const RowsTensor& tensor : network_->states) {
      tensor.copy(all, rows_, row, state);
      all += rows_ * tensor.of_row();
      state += tensor.of_row();
    }
  }

 private:
  std::shared_ptr<const RowsNetwork> network_;
  NetworkSession session_;
  Index rows_;
  std::vector<float> state_;  // of all rows, as the session has it
};

/// Refuses a network whose rows depend on each other, as by a mean over the batch: with other values in its companion,
/// a row would answer otherwise.
void require_independent(NetworkPoolRows& pair, const PoolForm& form) {
  const auto values = [](Index count, std::uint64_t seed) {
    std::vector<float> drawn(static_cast<std::size_t>(count));
    Random random(seed);
    for (float& value : drawn) value = static_cast<float>(random.uniform()) - 0.5f;
    return drawn;
  };
  const auto answers = [&](std::uint64_t first, std::uint64_t second) {
    std::vector<std::vector<float>> rows;
    for (const Index row : {0, 1}) {
      const std::uint64_t seed = row == 0 ? first : second;
      pair.read(row, values(form.state_size, seed).data(), values(form.inputs, seed + 1).data());
    }
    pair.step();
    for (const Index row : {0, 1}) {
      std::vector<float>& answer = rows.emplace_back(static_cast<std::size_t>(form.outputs + form.state_size));
      pair.copy_outputs(row, answer.data());
      pair.write(row, answer.data() + form.outputs);
    }
    return rows;
  };
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  const auto all = answers(1, 3);
  if (same(all[0], answers(1, 5)[0]) && same(all[1], answers(5, 3)[1])) return;
  fail(ErrorCode::unsupported,
       "a pool needs a network whose rows do not depend on each other: in a batch of two rows, "
       "other values of one change the answer of the other");
}

}  // namespace

PoolForm form_of(const Network& given, const NetworkShapes& shapes, Index capacity) {
  // Threads share what was prepared.
  const auto sessions = std::make_shared<std::vector<NetworkSession>>();
  Network network = given;
  const auto rows = std::make_shared<const RowsNetwork>(find_rows(network, shapes, *sessions));
  PoolForm form;
  form.inputs = values_of(rows->inputs);
  form.outputs = values_of(rows->outputs);
  form.state_size = values_of(rows->states);
  form.sizes = {1, 2, 4, 8, 16, 32, 64};  // each has the weights once more, packed for its shapes
  std::erase_if(form.sizes, [&](Index size) { return size > capacity; });
  NetworkPoolRows pair(nullptr, rows, (*sessions)[1].clone(), 2);
  require_independent(pair, form);
  for (const Index size : form.sizes) {
    if (size > 2) sessions->emplace_back(network, rows->shapes(size), true);
  }
  form.make = [rows, sessions, sizes = form.sizes, capacity, size = form.state_size](Index threads) {
    return host_parts(capacity, size, threads, sizes, [&](const auto& states, std::size_t i) {
      return std::make_unique<NetworkPoolRows>(states, rows, (*sessions)[i].clone(), sizes[i]);
    });
  };
  return form;
}

}  // namespace penstock::streaming
