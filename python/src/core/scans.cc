#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bindings.h"
#include "tapes.h"

namespace penstock::python {
namespace {

using Terms = std::tuple<nb::object, nb::object, nb::object>;

/// The arrays of one scan call, forward or backward, with one element type. States on a GPU are floats.
template <class Real, class Memory>
class ScanCall {
  using Arrays = typename Memory::Arrays;

 public:
  /// `terms` are a, b, and the factor of b or None.
  ScanCall(Memory memory, ScanForm form, const Terms& terms, nb::handle h0, nb::handle which, bool time_first)
      : memory_(std::move(memory)),
        a_(read(std::get<0>(terms), form == ScanForm::linear ? "a" : "log_a", memory_.sequences(scalar))),
        type_(memory_.type_of(a_, scalar)),
        b_(read(std::get<1>(terms), form == ScanForm::linear ? "b" : "log_b", type_)),
        rows_(a_.shape(), a_.name(), time_first ? Layout::time_first : Layout::batch_first, which, memory_.stream()) {
    rows_.check(b_, channels());
    if (const nb::object& factor = std::get<2>(terms); !factor.is_none()) {
      factor_ = read(factor, "sign", type_);
      rows_.check(factor_, channels());
    }
    h0_ = read_state(h0, "h0");
  }

  nb::tuple forward(const Scan<Real>& scan, nb::handle out, const Execution& execution) const {
    const Arrays h = out.is_none() ? memory_.empty(rows_.shape(channels()), type_)
                                   : memory_.output(out, "out", type_).with_whole_rows();
    if (!out.is_none()) rows_.check(h, channels());
    const Arrays hT = memory_.empty(state_shape(), scalar);
    run([&](const auto& batch, const auto& terms, const auto& view, const auto& state) {
      scan.forward(batch, terms, view(h), state(h0_), state(hT), execution);
    });
    return nb::make_tuple(out.is_none() ? h.object() : nb::borrow(out), hT.object());
  }

  /// `outputs` are h, its gradient, and the gradient of the last state or None.
  nb::tuple backward(const Scan<Real>& scan, const Terms& outputs, const Execution& execution) const {
    const Arrays h = read(std::get<0>(outputs), "h", type_), dh = read(std::get<1>(outputs), "dh", type_);
    const Arrays dhT = read_state(std::get<2>(outputs), "dhT");
    rows_.check(h, channels());
    rows_.check(dh, channels());
    const Shape shape = rows_.shape(channels());
    const Arrays da = memory_.empty(shape, type_), db = memory_.empty(shape, type_);
    const Arrays dfactor = factor_ ? memory_.empty(shape, type_) : Arrays();
    const Arrays dh0 = memory_.empty(state_shape(), scalar);
    run([&](const auto& batch, const auto& terms, const auto& view, const auto& state) {
      scan.backward(batch, terms, view(h), state(h0_), view(dh), state(dhT), {view(da), view(db), view(dfactor)},
                    state(dh0), execution);
    });
    return nb::make_tuple(da.object(), db.object(), dfactor.object(), dh0.object());
  }

  Index channels() const { return a_.shape().back(); }

 private:
  static constexpr Scalar scalar = scalar_of<Real>;

  Arrays read(nb::handle object, const char* name, Scalar type) const {
    Arrays array = memory_.read(object, name, type).with_whole_rows();
    if (array.shape().empty()) refuse(std::string(name) + " must have the shape (T, C) or (B, T, C), not ()");
    return array;
  }

  Shape state_shape() const { return rows_.one_row() ? Shape{channels()} : Shape{rows_.batch().rows, channels()}; }
  Arrays read_state(nb::handle object, const char* name) const {
    if (object.is_none()) return {};
    Arrays state = memory_.read(object, name, scalar).contiguous();
    state.require_shape(state_shape(), rows_.one_row() ? "(C,)" : "(B, C)");
    return state;
  }

  /// Calls pass(batch, terms, view, state) without the GIL, and waits; view(array) and state(array) are what the
  /// library takes for a sequence and for a state.
  template <class Pass>
  void run(const Pass& pass) const {
    const nb::gil_scoped_release unlocked;
    const DeviceBatch batch(memory_.stream(), rows_);
    Wait results(memory_.stream());
    const auto view = [&](const Arrays& array) { return rows_.template view<Real>(array); };
    const auto state = [&](const Arrays& array) { return states_view<Real>(array, {rows_.batch().rows, channels()}); };
    constexpr bool on_device = std::is_same_v<Arrays, DeviceArray>;
    using Views = std::conditional_t<on_device, typename Scan<Real>::TensorTerms, typename Scan<Real>::Terms>;
    pass(batch.batch(), Views{view(a_), view(b_), view(factor_)}, view, state);
    results.now();
  }

  Memory memory_;
  Arrays a_;
  Scalar type_;  // of sequences
  Arrays b_, factor_, h0_;
  Rows rows_;
};

/// Returns a scan from a cache: making one takes longer than a short call. `stream`: null for the CPU. The GIL protects
/// the cache.
template <class Real>
std::shared_ptr<const Scan<Real>> scan_of(Index channels, ScanForm form, bool reverse,
                                          const std::shared_ptr<Stream>& stream) {
  static auto* known = new std::map<std::tuple<Index, ScanForm, bool, Stream*>, std::shared_ptr<const Scan<Real>>>();
  constexpr std::size_t most = 256;
  if (known->size() >= most) known->clear();
  auto& scan = (*known)[{channels, form, reverse, stream.get()}];
  if (!scan) {
    scan = stream ? std::make_shared<const Scan<Real>>(channels, *stream, form, reverse)
                  : std::make_shared<const Scan<Real>>(channels, form, reverse);
  }
  return scan;
}

/// Returns the stream of all scans on a device. The GIL protects the list.
std::shared_ptr<Stream> stream_on(Device device) {
  static auto* known = new std::map<std::string, std::shared_ptr<Stream>>();
  auto& stream = (*known)[to_string(device)];
  if (!stream) stream = std::make_shared<Stream>(device);
  return stream;
}

/// Runs a pass in the element type and on the device of its arrays. `given` is what forward() or backward() of a
/// ScanCall takes besides. For tests, `copied` treats an array of DLPack on the CPU like one on a GPU.
template <bool is_backward>
nb::tuple run_scan(nb::handle terms, nb::handle h0, nb::handle given, bool logarithmic, bool reverse, nb::handle which,
                   bool time_first, const CallExecution& asked, bool copied) {
  const Terms inputs = nb::cast<Terms>(terms);
  const nb::object& first = std::get<0>(inputs);
  const ScanForm form = logarithmic ? ScanForm::logarithmic : ScanForm::linear;
  const std::optional<Device> place = place_of(first, logarithmic ? "log_a" : "a", copied);
  Execution execution = asked.on;
  if (execution.device.is_cuda() && execution.device != place) {
    throw Error(ErrorCode::unsupported, "device must be that of the arrays, '" + to_string(place.value_or(Device())) +
                                            "', or 'auto' for a scan, not '" + to_string(execution.device) + "'");
  }
  const auto in_memory = [&]<class Real>(Real, auto memory) {
    const auto stream = memory.stream();
    const ScanCall<Real, decltype(memory)> call(std::move(memory), form, inputs, h0, which, time_first);
    const auto scan = scan_of<Real>(call.channels(), form, reverse, stream);
    if constexpr (is_backward) {
      return call.backward(*scan, nb::cast<Terms>(given), execution);
    } else {
      return call.forward(*scan, given, execution);
    }
  };
  const auto in_type = [&](auto real) {
    if (!place) return in_memory(real, CpuMemory());
    execution.device = *place;
    return in_memory(real, DeviceMemory(stream_on(*place)));
  };
  if (floats_of(first) == Scalar::f64) return in_type(double());
  return in_type(float());
}

}  // namespace

void bind_scans(nb::module_& module) {
  const auto bind = [&](const char* name, const auto& run) {
    module.def(name, run, nb::arg("terms"), nb::arg("h0").none(), nb::arg("given").none(), nb::arg("logarithmic"),
               nb::arg("reverse"), nb::arg("which").none(), nb::arg("time_first"), nb::arg("execution"),
               nb::arg("copied") = false);
  };
  bind("scan", &run_scan<false>);
  bind("scan_backward", &run_scan<true>);
}

}  // namespace penstock::python
