#include "sequences.h"

#include <nanobind/stl/tuple.h>

#include <tuple>

namespace penstock::python {

namespace {
using Which = std::tuple<nb::object, nb::object, nb::object>;
}

Rows::Rows(std::span<const Index> shape, const char* name, Layout layout, nb::handle which,
           const std::shared_ptr<Stream>& stream)
    : layout_(layout), stream_(stream) {
  nb::object lengths = nb::none(), cu_seqlens = nb::none(), reset_mask = nb::none();
  if (!which.is_none()) std::tie(lengths, cu_seqlens, reset_mask) = nb::cast<Which>(which);
  const bool packed = !cu_seqlens.is_none();
  if (packed) {
    if (shape.size() != 2)
      refuse(std::string(name) + " of packed rows must have the shape (total, C), not " + text_of(shape));
    total_ = shape[0];
    read_packed(cu_seqlens);
  } else if (shape.size() == 2) {
    one_row_ = true;
    batch_.rows = 1;
    batch_.steps = shape[0];
  } else if (shape.size() == 3) {
    batch_.rows = shape[layout == Layout::time_first ? 1 : 0];
    batch_.steps = shape[layout == Layout::time_first ? 0 : 1];
  } else {
    refuse(std::string(name) + " must have the shape (T, C) or " +
           (layout == Layout::time_first ? "(T, B, C)" : "(B, T, C)") + ", not " + text_of(shape));
  }
  if (batch_.rows < 1 || batch_.steps < 1) {
    refuse(std::string(name) + " must have at least one row and one step, not the shape " + text_of(shape));
  }
  if (!lengths.is_none()) {
    if (packed) refuse("lengths and cu_seqlens cannot be given both");
    read_lengths(lengths);
  }
  if (!reset_mask.is_none()) read_resets(reset_mask);
}

Array Rows::read(nb::handle object, const char* name, Scalar scalar) const {
  if (!stream_ || device_of(object, name) != stream_->device()) return Array(object, name, scalar);
  return Array(DeviceArray(object, name, scalar, stream_).contiguous().numpy(), name, scalar);
}

void Rows::read_lengths(nb::handle object) {
  lengths_ = read(object, "lengths", Scalar::i64).contiguous();
  lengths_.require_shape(Shape{batch_.rows}, "(B,)");
  for (const Index length : lengths_.values<Index>()) {
    if (length < 0 || length > batch_.steps) {
      refuse("lengths must be 0 to T = " + std::to_string(batch_.steps) + ", not " + std::to_string(length));
    }
  }
  batch_.lengths = lengths_.as<const Index>();
}

void Rows::read_packed(nb::handle object) {
  cu_seqlens_ = read(object, "cu_seqlens", Scalar::i64).contiguous();
  if (cu_seqlens_.rank() != 1 || cu_seqlens_.size() < 2) {
    refuse("cu_seqlens must have the shape (B + 1,) with B at least 1, not " + text_of(cu_seqlens_.shape()));
  }
  const auto ends = cu_seqlens_.values<Index>();
  Index longest = 0;
  if (ends.front() != 0) refuse("cu_seqlens must start at 0, not " + std::to_string(ends.front()));
  for (std::size_t b = 1; b < ends.size(); ++b) {
    if (ends[b] < ends[b - 1]) refuse("cu_seqlens must never fall, as it does at " + std::to_string(b));
    longest = std::max(longest, ends[b] - ends[b - 1]);
  }
  if (ends.back() != total_) {
    refuse("cu_seqlens must end at the number of steps in x, " + std::to_string(total_) + ", not at " +
           std::to_string(ends.back()));
  }
  batch_.rows = static_cast<Index>(ends.size()) - 1;
  batch_.steps = longest;
  batch_.cu_seqlens = ends.data();
}

void Rows::read_resets(nb::handle object) {
  reset_ = read(object, "reset_mask", Scalar::u8).contiguous();
  if (packed() || one_row_) {
    reset_.require_shape(Shape{packed() ? total_ : batch_.steps}, packed() ? "(total,)" : "(T,)");
  } else if (layout_ == Layout::batch_first) {
    reset_.require_shape(Shape{batch_.rows, batch_.steps}, "(B, T)");
  } else {
    reset_.require_shape(Shape{batch_.steps, batch_.rows}, "(T, B)");
    const nb::object transposed = nb::module_::import_("numpy").attr("transpose")(reset_.object());
    reset_ = Array(transposed, "reset_mask", Scalar::u8).contiguous();
  }
  batch_.reset = reset_.as<const std::uint8_t>();
}

void Rows::restart(Restarts restarts) {
  if (batch_.reset == nullptr) refuse("reset_to needs reset_mask, which says where the states start again");
  if (packed()) refuse("reset_to and cu_seqlens cannot be given both: make each part a row, with its state in h0");
  batch_.restarts = restarts;
}

Shape Rows::shape(Index channels) const {
  if (packed()) return {total_, channels};
  if (one_row_) return {batch_.steps, channels};
  if (layout_ == Layout::time_first) return {batch_.steps, batch_.rows, channels};
  return {batch_.rows, batch_.steps, channels};
}

const char* Rows::axes() const {
  if (packed()) return "(total, C)";
  if (one_row_) return "(T, C)";
  return layout_ == Layout::time_first ? "(T, B, C)" : "(B, T, C)";
}

}  // namespace penstock::python
