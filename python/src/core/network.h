#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "penstock/device_choice.h"
#include "penstock/penstock.h"
#include "penstock/recurrent_program.h"
#include "tapes.h"

/// Layers on arrays: what the bindings of cells and stacks share.
namespace penstock::python {

/// Arguments of a forward call.
template <class Real>
struct ForwardCall {
  nb::handle x, state, out, which;  // `which`: None or the tuple (lengths, cu_seqlens, reset_mask)
  nb::handle restarts;              // states of resets
  Tape<Real>* tape;                 // null: no backward pass follows
  bool time_first;
  bool on_copy;  // a copy of the network runs, on the device of `execution`
  Execution execution;
  bool automatic;  // the device is chosen; with a tape or states of resets it is the CPU
};

/// A stack of layers. Calls run without the GIL. A lock separates calls that compute from changes of weights and
/// gradients.
template <class Real>
class Network {
 public:
  Network(const RecurrentSpec& spec, std::uint64_t seed, bool stacked)
      : network_(spec, seed),
        seed_(seed),
        states_(find_cell(spec.cell).states),
        reads_outputs_(find_cell(spec.cell).scan),
        stacked_(stacked) {}

  const RecurrentSpec& spec() const { return network_.spec(); }

  /// Runs whole sequences and returns (y, state). If x is on a GPU, the pass runs there and the results stay there. For
  /// tests, `on_copy` treats an array of DLPack on the CPU in the same way.
  nb::tuple forward(ForwardCall<Real> call) {
    const typename Tape<Real>::InUse using_tape(call.tape);
    const std::optional<Device> place = place_of(call.x, "x", call.on_copy);
    if (!place) {
      call.on_copy = call.on_copy || call.execution.device.is_cuda();
      return forward_in(CpuMemory(), call);
    }
    if (call.execution.device.is_cuda() && call.execution.device != *place) {
      refuse("device must be '" + to_string(*place) + "', where x is, not '" + to_string(call.execution.device) + "'");
    }
    call.execution.device = *place;
    call.automatic = false;
    call.on_copy = true;
    return forward_in(DeviceMemory(stream_of(*place)), call);
  }

  /// Returns the device with the lower estimated time for calls of this shape, and the reason.
  DeviceChoice choose(Index rows, Index steps, const Execution& execution) const {
    if constexpr (scalar == Scalar::f64) {
      return {.why = "a GPU does not compute in float64"};
    } else {
      return choose_device(spec(), {.rows = rows, .steps = steps, .execution = execution});
    }
  }

  /// Returns the plan for sequences of this shape, and its reasons.
  std::string explain(Index rows, Index steps, bool training, const CallExecution& execution) {
    RecurrentForm form;
    form.dtype = form.weights = scalar == Scalar::f64 ? DType::f64 : DType::f32;
    form.rows = rows;
    form.steps = steps;
    form.flags.set(CallFlag::training, training);
    const nb::gil_scoped_release unlocked;
    return RecurrentProgram::get(spec(), form, execution.on)->explain();
  }

  void save_onnx(const std::string& path) {
    if constexpr (scalar == Scalar::f64) {
      refuse("dtype must be float32 for ONNX, not float64");
    } else {
      check_outputs({}, {{"path", path, FileKind::onnx}}, advice_to_remove);
      const nb::gil_scoped_release unlocked;
      const std::shared_lock lock(mutex_);
      penstock::save_onnx(network_, path);
    }
  }

  nb::tuple backward(nb::handle dy, nb::handle dstate, Tape<Real>& tape, bool input_gradient) {
    const typename Tape<Real>::InUse using_tape(&tape);
    if (!tape.rows) refuse("tape must have been filled by forward(), and is empty");
    if (!tape.on_device.x) return backward_in(CpuMemory(), dy, dstate, tape, input_gradient);
    return backward_in(DeviceMemory(stream_of(tape.execution.device)), dy, dstate, tape, input_gradient);
  }

  /// Runs one step from x [I] or [B, I] and a state. Returns the new state; for a stack (h of the last layer, state).
  /// If x is on a GPU, the step runs there and the results stay there; `on_copy` as in forward().
  nb::object step(nb::handle x, nb::handle state, nb::handle out, bool on_copy, const Execution& execution) {
    const std::optional<Device> place = place_of(x, "x", on_copy);
    if (!place) return step_in(CpuMemory(), x, state, out, execution);
    return step_in(DeviceMemory(stream_of(*place)), x, state, out, execution);
  }

  /// Returns views of all weights or gradients by name. They keep `self`, the Python object of this network, alive.
  nb::dict parameters(nb::handle self, bool gradients, bool writable) {
    nb::dict all;
    for (auto& parameter : network_.parameters()) {
      Real* data = gradients ? parameter.gradient.data() : parameter.value.data();
      std::vector<std::size_t> shape(parameter.shape.begin(), parameter.shape.end());
      nb::object array = nb::cast(nb::ndarray<nb::numpy, Real>(data, shape.size(), shape.data(), self));
      if (!writable) array.attr("flags").attr("writeable") = false;
      all[parameter.name.c_str()] = array;
    }
    return all;
  }

  /// Copies all weights from a mapping of names to arrays. If one does not fit, no weight changes.
  void set_parameters(nb::handle weights) {
    std::vector<Array> arrays;
    for (auto& parameter : network_.parameters()) {
      const nb::object value = weights[parameter.name.c_str()];
      arrays.push_back(Array(value, parameter.name.c_str(), scalar).contiguous());
      arrays.back().require_shape(parameter.shape, "of the parameter");
    }
    const nb::gil_scoped_release unlocked;
    const std::unique_lock lock(mutex_);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      std::ranges::copy(arrays[i].template values<Real>(), network_.parameters()[i].value.begin());
    }
    weights_are_new();
  }

  void initialise(const std::string& weights, double chrono, std::uint64_t seed) {
    const nb::gil_scoped_release unlocked;
    const std::unique_lock lock(mutex_);
    penstock::initialise(network_, {.weights = parse_initial_weights(weights), .chrono = chrono}, seed);
    weights_are_new();
  }

  void weights_changed() {
    const nb::gil_scoped_release unlocked;
    const std::unique_lock lock(mutex_);
    weights_are_new();
  }

  void zero_gradients() {
    const nb::gil_scoped_release unlocked;
    const std::unique_lock lock(mutex_);
    for (auto& parameter : network_.parameters()) std::ranges::fill(parameter.gradient, Real(0));
  }

  /// Returns the shape of the state for this many rows, or for one row without the axis B.
  nb::tuple zero_state_shape(std::optional<Index> rows) const {
    if (rows && *rows < 1) refuse("rows must be at least 1, not " + std::to_string(*rows));
    return nb::tuple(nb::cast(state_shape(rows.value_or(1), !rows)));
  }

 private:
  static constexpr Scalar scalar = scalar_of<Real>;

  template <class Memory>
  nb::object step_in(const Memory& memory, nb::handle x_in, nb::handle state_in, nb::handle out,
                     const Execution& execution) {
    using Arrays = typename Memory::Arrays;
    const Arrays x = memory.for_step(memory.read(x_in, "x", memory.sequences(scalar)));
    const bool one_row = x.shape().size() == 1;
    const Index rows = one_row ? 1 : x.shape().size() == 2 ? x.shape()[0] : -1;
    if (rows < 0 || x.shape().back() != spec().input_size) {
      refuse("x must have the shape (I,) or (B, I) with I = " + std::to_string(spec().input_size) + ", not " +
             text_of(x.shape()));
    }
    const Shape shape = state_shape(rows, one_row);
    const Arrays state = out.is_none() ? memory.empty(shape, scalar) : memory.output(out, "out", scalar).contiguous();
    if (!out.is_none()) state.require_shape(shape, state_axes(one_row));
    const Arrays given = read_state(memory, state_in, shape, one_row, "h");
    const Index width = spec().output_size();
    Arrays y;
    if (stacked_ || memory.stream() != nullptr) {
      y = memory.empty(one_row ? Shape{width} : Shape{rows, width}, memory.type_of(x, scalar));
    }
    {
      const nb::gil_scoped_release unlocked;
      Wait results(memory.stream());
      const std::shared_lock lock(mutex_);
      memory.fill(state, given);
      run_step(rows, x, y, state, execution);
      results.now();
    }
    nb::object result = out.is_none() ? state.object() : nb::borrow(out);
    if (stacked_) return nb::make_tuple(y.object(), result);
    return result;
  }

  void run_step(Index rows, const Array& x, const Array& y, const Array& state, const Execution& execution) const {
    std::vector<Real> unused(y ? 0 : static_cast<std::size_t>(rows * spec().output_size()));
    network_.step(rows, x.as<const Real>(), y ? y.as<Real>() : unused.data(), state.as<Real>(), execution);
  }
  void run_step(Index rows, const DeviceArray& x, const DeviceArray& y, const DeviceArray& state,
                const Execution& execution) {
    Execution there = execution;
    there.device = x.device();
    const auto tensor = [&](const DeviceArray& array, Index channels) {
      Tensor rows_of = Tensor::contiguous(array.data(), dtype_of(array.scalar()), {rows, channels}, array.device());
      if (rows > 1) rows_of.strides[0] = array.stride(0);
      return rows_of;
    };
    current_copy(x.device())
        .network.step(tensor(x, spec().input_size), tensor(y, spec().output_size()), state_view(rows, state), there);
  }

  template <class Memory>
  nb::tuple forward_in(const Memory& memory, const ForwardCall<Real>& call) {
    using Arrays = typename Memory::Arrays;
    Tape<Real>* const tape = call.tape;
    const Layout layout = call.time_first ? Layout::time_first : Layout::batch_first;
    Arrays x = memory.read(call.x, "x", memory.sequences(scalar)).with_whole_rows();
    const Scalar type = memory.type_of(x, scalar);
    auto rows = std::make_unique<Rows>(x.shape(), "x", layout, call.which, memory.stream());
    rows->check(x, spec().input_size);
    const Arrays h0 = with_restarts(
        memory, *rows, read_state(memory, call.state, state_shape(*rows), rows->one_row(), "h0"), call.restarts);
    const bool fresh = call.out.is_none();
    Arrays y = fresh ? memory.empty(rows->shape(spec().output_size()), type)
                     : memory.output(call.out, "out", type).with_whole_rows();
    if (!fresh) rows->check(y, spec().output_size());
    if (tape != nullptr && !fresh && share_memory(x, y)) {
      refuse("out must not share memory with x when a tape is given: backward() reads x as it was; give another array");
    }
    const Arrays hT = memory.empty(state_shape(*rows), scalar);
    if (tape != nullptr) tape->clear();  // a failing call leaves the tape empty
    DeviceBatch batch;
    const auto view = [&](const Arrays& array) { return rows->template view<Real>(array); };
    const auto state = [&](const Arrays& array) { return state_view(rows->batch().rows, array); };
    const bool chosen = call.automatic && tape == nullptr && call.restarts.is_none();
    {
      const nb::gil_scoped_release unlocked;
      Execution on = call.execution;
      if (chosen) on.device = device_for(rows->batch(), on);
      batch = DeviceBatch(memory.stream(), *rows);
      Wait results(memory.stream());
      const std::shared_lock lock(mutex_);
      const bool on_copy = call.on_copy || on.device.is_cuda();
      const Recurrent<Real>& network = on_copy ? current_copy(on.device).network : network_;
      network.forward(batch.batch(), view(x), view(y), state_view(state_rows(rows->batch()), h0), state(hT),
                      tape == nullptr ? nullptr : &tape->content, on);
      results.now();
    }
    const nb::object result = fresh ? y.object() : nb::borrow(call.out);
    if (tape != nullptr) {
      if constexpr (std::is_same_v<Arrays, Array>) {
        tape->some_x = rows->template sample<Real>(x);
        if (reads_outputs_) tape->some_y = rows->template sample<Real>(y);
      }
      tape->rows = std::move(rows);
      tape->template sequences<Arrays>() = {std::move(x), std::move(y)};
      tape->batch = std::move(batch);
      tape->execution = call.execution;
      tape->of_copy = call.on_copy;
    }
    return nb::make_tuple(result, hT.object());
  }

  template <class Memory>
  nb::tuple backward_in(const Memory& memory, nb::handle dy_in, nb::handle dstate_in, Tape<Real>& tape,
                        bool input_gradient) {
    using Arrays = typename Memory::Arrays;
    const Rows& rows = *tape.rows;
    const Arrays& x = tape.template sequences<Arrays>().x;
    if constexpr (std::is_same_v<Arrays, Array>) {
      check_unchanged(rows, x, tape.some_x, "x");
      if (reads_outputs_) check_unchanged(rows, tape.on_cpu.y, tape.some_y, "y");
    }
    const Scalar type = memory.type_of(x, scalar);
    const Arrays dy = dy_in.is_none() ? memory.zeros(rows.shape(spec().output_size()), type)
                                      : memory.read(dy_in, "dy", type).with_whole_rows();
    rows.check(dy, spec().output_size());
    const Arrays dhT = read_state(memory, dstate_in, state_shape(rows), rows.one_row(), "dstate");
    const Arrays dx = input_gradient ? memory.empty(rows.shape(spec().input_size), type) : Arrays();
    const bool restarts = rows.batch().restarts != Restarts::zeros;
    const Arrays dh0 = memory.empty(state_shape(rows), scalar);
    const Arrays drestarts = restarts ? memory.empty(restarts_shape(rows, rows.batch().restarts), scalar) : Arrays();
    const Arrays both = restarts ? memory.empty(entering_shape(rows), scalar) : Arrays();
    const auto view = [&](const Arrays& array) { return rows.template view<Real>(array); };
    const auto state = [&](const Arrays& array) { return state_view(rows.batch().rows, array); };
    const auto run = [&](Recurrent<Real>& network) {
      network.backward(tape.batch.batch(), view(x), view(dy), state(dhT), view(dx),
                       state_view(state_rows(rows.batch()), restarts ? both : dh0), tape.content, tape.execution);
      if (!restarts) return;
      divide(rows, both, dh0, drestarts,
             [&](const void* from, void* to, std::size_t bytes) { memory.copy(to, from, bytes); });
    };
    {
      const nb::gil_scoped_release unlocked;
      Wait results(memory.stream());
      const std::unique_lock lock(mutex_);
      if (!tape.of_copy) {
        run(network_);
      } else {
        Recurrent<Real>& network = current_copy(tape.execution.device).network;
        network.zero_gradients();
        run(network);
        results.now();
        add_gradients_of(network);
      }
    }
    if (tape.of_copy) tape.clear();  // kernels have worked in it
    return nb::make_tuple(dx.object(), dh0.object(), drestarts.object());
  }

  /// Returns the states before a call as the library takes them, [S * layers * directions, B + n, H]: behind those of
  /// h0, zeros if it is no array, those of resets. Without states of resets, returns h0.
  template <class Memory, class Arrays = typename Memory::Arrays>
  Arrays with_restarts(const Memory& memory, Rows& rows, Arrays h0, nb::handle object) const {
    if (object.is_none()) return h0;
    const Arrays restarts = memory.read_states(object, "reset_to", scalar).contiguous();
    Restarts kind = Restarts::one;
    for (const Restarts other : {Restarts::rows, Restarts::steps}) {
      if (restarts.shape().size() == restarts_shape(rows, other).size()) kind = other;
    }
    restarts.require_shape(restarts_shape(rows, kind), restarts_axes(rows.one_row()));
    rows.restart(kind);
    Arrays all = h0 ? memory.empty(entering_shape(rows), scalar) : memory.zeros(entering_shape(rows), scalar);
    Wait copies(memory.stream());
    divide(rows, all, h0, restarts,
           [&](void* to, const void* from, std::size_t bytes) { memory.copy(to, from, bytes); });
    copies.now();
    return all;
  }

  /// Calls copy(address in `entering`, address in the other array, bytes) for all parts of h0, if there is one, and of
  /// the states of resets.
  template <class Arrays, class Copy>
  void divide(const Rows& rows, const Arrays& entering, const Arrays& h0, const Arrays& restarts, Copy copy) const {
    const std::size_t row = static_cast<std::size_t>(spec().hidden_size) * sizeof(Real);
    const std::size_t first = static_cast<std::size_t>(rows.batch().rows) * row;
    const std::size_t more = static_cast<std::size_t>(state_rows(rows.batch())) * row - first;
    auto* at = entering.template as<std::byte>();
    for (std::size_t block = 0; block < static_cast<std::size_t>(states_ * slots()); ++block, at += first + more) {
      if (h0) copy(at, h0.template as<std::byte>() + block * first, first);
      copy(at + first, restarts.template as<std::byte>() + block * more, more);
    }
  }

  /// Returns a state as the library takes it, [S, layers * directions, B, H].
  auto state_view(Index rows, const auto& state) const {
    return states_view<Real>(state, {states_, slots(), rows, spec().hidden_size});
  }

  /// Adds the gradients of a copy to those of the network. The caller holds the writer lock.
  void add_gradients_of(const Recurrent<Real>& copy) {
    std::vector<Real> numbers;
    for (auto& parameter : network_.parameters()) {
      numbers.resize(parameter.gradient.size());
      copy.read_gradient(parameter.name, numbers);
      std::ranges::transform(numbers, parameter.gradient, parameter.gradient.begin(), std::plus<>());
    }
  }

  /// Throws Error(invalid_argument) if an array of a tape has been written to. A change of few values may go unnoticed.
  static void check_unchanged(const Rows& rows, const Array& array, const std::vector<Real>& values, const char* name) {
    const std::vector<Real> now = rows.template sample<Real>(array);
    if (std::memcmp(now.data(), values.data(), sizeof(Real) * now.size()) == 0) return;  // NaNs included
    refuse(std::string(name) + " must be as forward() left it, and has been written to since: change a copy, or call " +
           "forward() again");
  }

  /// Returns [S, layers * directions, B, H]: without S for cells with one state, without the axis of layers for single
  /// cells, and without B for one row.
  Shape state_shape(Index rows, bool one_row) const { return shape_of(one_row ? Shape() : Shape{rows}); }
  Shape state_shape(const Rows& rows) const { return state_shape(rows.batch().rows, rows.one_row()); }
  /// Returns the shape of the states of resets, without B for one row.
  Shape restarts_shape(const Rows& rows, Restarts restarts) const {
    Shape axes;
    if (restarts != Restarts::one && !rows.one_row()) axes.push_back(rows.batch().rows);
    if (restarts == Restarts::steps) axes.push_back(rows.batch().steps);
    return shape_of(axes);
  }
  Shape entering_shape(const Rows& rows) const {
    return {states_ * slots(), state_rows(rows.batch()), spec().hidden_size};
  }
  /// Returns [S, layers * directions, axes, H], as state_shape() has the first two.
  Shape shape_of(const Shape& axes) const {
    Shape shape;
    if (states_ > 1) shape.push_back(states_);
    if (stacked_) shape.push_back(slots());
    shape.insert(shape.end(), axes.begin(), axes.end());
    shape.push_back(spec().hidden_size);
    return shape;
  }
  Index slots() const { return spec().layers * spec().directions(); }

  const char* restarts_axes(bool one_row) const {
    return one_row ? "of a state, (..., H) or (..., T, H)" : "of a state, (..., H), (..., B, H) or (..., B, T, H)";
  }

  const char* state_axes(bool one_row) const {
    if (stacked_) {
      if (states_ > 1) return one_row ? "(S, layers, H)" : "(S, layers, B, H)";
      return one_row ? "(layers, H)" : "(layers, B, H)";
    }
    if (states_ > 1) return one_row ? "(S, H)" : "(S, B, H)";
    return one_row ? "(H,)" : "(B, H)";
  }

  template <class Memory>
  typename Memory::Arrays read_state(const Memory& memory, nb::handle object, const Shape& shape, bool one_row,
                                     const char* name) const {
    if (object.is_none()) return {};
    auto state = memory.read_states(object, name, scalar).contiguous();
    state.require_shape(shape, state_axes(one_row));
    return state;
  }

  /// Marks all copies of the weights as outdated. The caller holds the writer lock.
  void weights_are_new() {
    network_.weights_changed();
    for (auto& [number, copy] : copies_) copy->is_current = false;
  }

  Device device_for(const Batch& batch, const Execution& execution) const {
    if (batch.rows < 1 || batch.steps < 1) return Device::cpu();
    return choose(batch.rows, batch.steps, execution).device;
  }

  /// Returns the stream of the copy of the network on a device.
  std::shared_ptr<Stream> stream_of(Device device) {
    const nb::gil_scoped_release unlocked;
    const std::lock_guard lock(copies_mutex_);
    return copy_on(device).stream;
  }

  /// Returns the up-to-date copy of the network on a device. The caller holds the reader lock.
  DeviceCopy<Real>& current_copy(Device device) {
    const std::lock_guard lock(copies_mutex_);
    DeviceCopy<Real>& copy = copy_on(device);
    if (!copy.is_current) {
      for (const auto& parameter : network_.parameters()) copy.network.write(parameter.name, parameter.value);
      copy.is_current = true;
    }
    return copy;
  }

  /// Returns the copy of the network on a device; the first call makes it. The caller holds copies_mutex_.
  DeviceCopy<Real>& copy_on(Device device) {
    if (scalar == Scalar::f64 && device.is_cuda()) {
      throw Error(ErrorCode::unsupported, "dtype must be 'float32' on a GPU, which does not compute in float64");
    }
    auto& copy = copies_[device.is_cuda() ? device.index : -1];
    if (!copy) copy = std::make_unique<DeviceCopy<Real>>(spec(), device, seed_);
    return *copy;
  }

  Recurrent<Real> network_;
  std::uint64_t seed_;
  std::mutex copies_mutex_;
  std::map<int, std::unique_ptr<DeviceCopy<Real>>> copies_;  // key: number of the GPU, -1 for the CPU
  Index states_;
  bool reads_outputs_;  // in the backward pass
  bool stacked_;
  std::shared_mutex mutex_;
};

}  // namespace penstock::python
