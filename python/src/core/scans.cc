#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <map>
#include <memory>
#include <tuple>

#include "bindings.h"
#include "sequences.h"

namespace penstock::python {
namespace {

using Terms = std::tuple<nb::object, nb::object, nb::object>;

/// The arrays of one scan call, forward or backward, with one element type.
template <class Real>
class ScanCall {
 public:
  /// `terms` are a, b, and the factor of b or None.
  ScanCall(ScanForm form, const Terms& terms, nb::handle h0, nb::handle which, bool time_first)
      : a_(read(std::get<0>(terms), form == ScanForm::linear ? "a" : "log_a")),
        b_(read(std::get<1>(terms), form == ScanForm::linear ? "b" : "log_b")),
        rows_(a_.shape(), a_.name(), time_first ? Layout::time_first : Layout::batch_first, which) {
    rows_.check(b_, channels());
    if (const nb::object& factor = std::get<2>(terms); !factor.is_none()) {
      factor_ = read(factor, "sign");
      rows_.check(factor_, channels());
    }
    h0_ = read_state(h0, "h0");
  }

  nb::tuple forward(const Scan<Real>& scan, nb::handle out, const Execution& execution) const {
    Array h = out.is_none() ? Array::empty(rows_.shape(channels()), scalar)
                            : Array::output(out, "out", scalar).with_whole_rows();
    if (!out.is_none()) rows_.check(h, channels());
    const Array hT = Array::empty(state_shape(), scalar);
    {
      const nb::gil_scoped_release unlocked;
      scan.forward(rows_.batch(), terms(), rows_.view<Real>(h), data(h0_), hT.as<Real>(), execution);
    }
    return nb::make_tuple(out.is_none() ? h.object() : nb::borrow(out), hT.object());
  }

  /// `outputs` are h, its gradient, and the gradient of the last state or None.
  nb::tuple backward(const Scan<Real>& scan, const Terms& outputs, const Execution& execution) const {
    const Array h = read(std::get<0>(outputs), "h"), dh = read(std::get<1>(outputs), "dh");
    const Array dhT = read_state(std::get<2>(outputs), "dhT");
    rows_.check(h, channels());
    rows_.check(dh, channels());
    const Shape shape = rows_.shape(channels());
    const Array da = Array::empty(shape, scalar), db = Array::empty(shape, scalar);
    const Array dfactor = factor_ ? Array::empty(shape, scalar) : Array();
    const Array dh0 = Array::empty(state_shape(), scalar);
    {
      const nb::gil_scoped_release unlocked;
      const typename Scan<Real>::TermGradients gradients = {rows_.view<Real>(da), rows_.view<Real>(db),
                                                            rows_.view<Real>(dfactor)};
      scan.backward(rows_.batch(), terms(), rows_.view<const Real>(h), data(h0_), rows_.view<const Real>(dh), data(dhT),
                    gradients, dh0.as<Real>(), execution);
    }
    return nb::make_tuple(da.object(), db.object(), dfactor.object(), dh0.object());
  }

  Index channels() const { return a_.shape().back(); }

 private:
  static constexpr Scalar scalar = scalar_of<Real>();

  static Array read(nb::handle object, const char* name) {
    Array array = Array(object, name, scalar).with_whole_rows();
    if (array.rank() == 0) refuse(std::string(name) + " must have the shape (T, C) or (B, T, C), not ()");
    return array;
  }
  static const Real* data(const Array& array) { return array ? array.as<const Real>() : nullptr; }

  Shape state_shape() const { return rows_.one_row() ? Shape{channels()} : Shape{rows_.batch().rows, channels()}; }
  Array read_state(nb::handle object, const char* name) const {
    if (object.is_none()) return {};
    Array state = Array(object, name, scalar).contiguous();
    state.require_shape(state_shape(), rows_.one_row() ? "(C,)" : "(B, C)");
    return state;
  }
  typename Scan<Real>::Terms terms() const {
    return {rows_.view<const Real>(a_), rows_.view<const Real>(b_), rows_.view<const Real>(factor_)};
  }

  Array a_, b_, factor_, h0_;
  Rows rows_;
};

/// Returns a scan from a cache: making one takes longer than a short call. The GIL protects the cache.
template <class Real>
std::shared_ptr<const Scan<Real>> scan_of(Index channels, ScanForm form, bool reverse) {
  static auto* known = new std::map<std::tuple<Index, ScanForm, bool>, std::shared_ptr<const Scan<Real>>>();
  constexpr std::size_t most = 256;
  if (known->size() >= most) known->clear();
  auto& scan = (*known)[{channels, form, reverse}];
  if (!scan) scan = std::make_shared<const Scan<Real>>(channels, form, reverse);
  return scan;
}

/// Calls run(call, scan) for the arguments that the passes share, in the element type of the arrays.
template <class Run>
nb::tuple with_scan(nb::handle terms, nb::handle h0, bool logarithmic, bool reverse, nb::handle which, bool time_first,
                    const CallExecution& execution, const Run& run) {
  if (execution.on.device.is_cuda()) {
    throw Error(ErrorCode::unsupported, "device must be 'cpu' for a scan of arrays in the memory of the CPU");
  }
  const Terms given = nb::cast<Terms>(terms);
  const ScanForm form = logarithmic ? ScanForm::logarithmic : ScanForm::linear;
  const auto in_type = [&]<class Real>(Real) {
    const ScanCall<Real> call(form, given, h0, which, time_first);
    return run(call, *scan_of<Real>(call.channels(), form, reverse));
  };
  if (floats_of(std::get<0>(given)) == Scalar::f64) return in_type(double());
  return in_type(float());
}

}  // namespace

void bind_scans(nb::module_& module) {
  module.def(
      "scan",
      [](nb::handle terms, nb::handle h0, nb::handle out, bool logarithmic, bool reverse, nb::handle which,
         bool time_first, const CallExecution& execution) {
        const auto run = [&](const auto& call, const auto& scan) { return call.forward(scan, out, execution.on); };
        return with_scan(terms, h0, logarithmic, reverse, which, time_first, execution, run);
      },
      nb::arg("terms"), nb::arg("h0").none(), nb::arg("out").none(), nb::arg("logarithmic"), nb::arg("reverse"),
      nb::arg("which").none(), nb::arg("time_first"), nb::arg("execution"));
  module.def(
      "scan_backward",
      [](nb::handle terms, nb::handle h0, nb::handle gradients, bool logarithmic, bool reverse, nb::handle which,
         bool time_first, const CallExecution& execution) {
        const Terms outputs = nb::cast<Terms>(gradients);
        const auto run = [&](const auto& call, const auto& scan) { return call.backward(scan, outputs, execution.on); };
        return with_scan(terms, h0, logarithmic, reverse, which, time_first, execution, run);
      },
      nb::arg("terms"), nb::arg("h0").none(), nb::arg("gradients"), nb::arg("logarithmic"), nb::arg("reverse"),
      nb::arg("which").none(), nb::arg("time_first"), nb::arg("execution"));
}

}  // namespace penstock::python
