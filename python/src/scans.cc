#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "sequences.h"

namespace penstock::python {
namespace {

/// A scan over arrays of one type, forward and backward.
template <class Real>
class ScanCall {
 public:
  ScanCall(ScanForm form, nb::handle a, nb::handle b, nb::handle factor, nb::handle h0, nb::handle lengths,
           nb::handle cu_seqlens, nb::handle reset_mask, const std::string& layout)
      : a_(read(a, form == ScanForm::linear ? "a" : "log_a")),
        b_(read(b, form == ScanForm::linear ? "b" : "log_b")),
        rows_(a_, parse_layout(layout), lengths, cu_seqlens, reset_mask) {
    rows_.check(b_, channels());
    if (!factor.is_none()) {
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

  nb::tuple backward(const Scan<Real>& scan, nb::handle h_in, nb::handle dh_in, nb::handle dhT_in,
                     const Execution& execution) const {
    const Array h = read(h_in, "h"), dh = read(dh_in, "dh"), dhT = read_state(dhT_in, "dhT");
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

template <class Real>
void bind_scan(nb::module_& module, const char* forward, const char* backward) {
  module.def(
      forward,
      [](bool logarithmic, nb::handle a, nb::handle b, nb::handle factor, nb::handle h0, nb::handle out, bool reverse,
         nb::handle lengths, nb::handle cu_seqlens, nb::handle reset_mask, const std::string& layout,
         const std::string& mode, const std::string& device, int threads, bool exact) {
        const ScanForm form = logarithmic ? ScanForm::logarithmic : ScanForm::linear;
        const ScanCall<Real> call(form, a, b, factor, h0, lengths, cu_seqlens, reset_mask, layout);
        return call.forward(Scan<Real>(call.channels(), form, reverse), out,
                            execution_from(threads, mode, exact, "full", device));
      },
      nb::arg("logarithmic"), nb::arg("a"), nb::arg("b"), nb::arg("factor").none(), nb::arg("h0").none(),
      nb::arg("out").none(), nb::arg("reverse"), nb::arg("lengths").none(), nb::arg("cu_seqlens").none(),
      nb::arg("reset_mask").none(), nb::arg("layout"), nb::arg("mode"), nb::arg("device"), nb::arg("threads"),
      nb::arg("exact"));
  module.def(
      backward,
      [](bool logarithmic, nb::handle a, nb::handle b, nb::handle factor, nb::handle h0, nb::handle h, nb::handle dh,
         nb::handle dhT, bool reverse, nb::handle lengths, nb::handle cu_seqlens, nb::handle reset_mask,
         const std::string& layout, const std::string& mode, const std::string& device, int threads, bool exact) {
        const ScanForm form = logarithmic ? ScanForm::logarithmic : ScanForm::linear;
        const ScanCall<Real> call(form, a, b, factor, h0, lengths, cu_seqlens, reset_mask, layout);
        return call.backward(Scan<Real>(call.channels(), form, reverse), h, dh, dhT,
                             execution_from(threads, mode, exact, "full", device));
      },
      nb::arg("logarithmic"), nb::arg("a"), nb::arg("b"), nb::arg("factor").none(), nb::arg("h0").none(), nb::arg("h"),
      nb::arg("dh"), nb::arg("dhT").none(), nb::arg("reverse"), nb::arg("lengths").none(), nb::arg("cu_seqlens").none(),
      nb::arg("reset_mask").none(), nb::arg("layout"), nb::arg("mode"), nb::arg("device"), nb::arg("threads"),
      nb::arg("exact"));
}

}  // namespace

void bind_scans(nb::module_& module) {
  bind_scan<float>(module, "scan_f32", "scan_backward_f32");
  bind_scan<double>(module, "scan_f64", "scan_backward_f64");
}

}  // namespace penstock::python
