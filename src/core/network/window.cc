#include "network/window.h"

#include <algorithm>
#include <utility>

namespace penstock::network {

namespace {

constexpr Index kMost = Index{1} << 24;

Status read_list(const Preparation& p, std::string_view name, std::size_t count, Index least, Index otherwise,
                 std::vector<Index>& values) {
  values = p.integers(name);
  if (values.empty()) values.assign(count, otherwise);
  const bool fits = std::ranges::all_of(values, [&](Index value) { return value >= least && value <= kMost; });
  if (values.size() == count && fits) return {};
  std::string text = "'";
  text.append(name).append("' is ").append(text_of(values)).append(", not ");
  return p.refuse(text + text_of(static_cast<Index>(count)) + " numbers of at least " + text_of(least));
}

/// Pads so that ceil(in / stride) results come out, or none.
Status pad_automatically(const Preparation& p, Window& window, std::string_view mode) {
  if (mode == "NOTSET") return {};
  window.before = window.after = 0;
  if (mode == "VALID") return {};
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER") return p.refuse("'auto_pad' is '" + std::string(mode) + "'");
  const Index results = (window.in + window.stride - 1) / window.stride;
  const Index all = std::max<Index>(0, (results - 1) * window.stride + window.reach() - window.in);
  window.before = mode == "SAME_UPPER" ? all / 2 : all - all / 2;
  window.after = all - window.before;
  return {};
}

/// Reads what both kinds have; the innermost axis is `w`.
Status read_common(const Preparation& p, Shape kernel, Window* (&axes)[2], std::size_t& count, Windows& windows) {
  if (p.rank(0) != 3 && p.rank(0) != 4) {
    return p.unsupported("over a tensor of shape " + text_of(p.shape(0)) +
                         "; supported: three axes (batch, channels, length) or four (batch, channels, height, width)");
  }
  count = static_cast<std::size_t>(p.rank(0)) - 2;
  axes[0] = count == 2 ? &windows.h : &windows.w;
  axes[1] = &windows.w;
  std::vector<Index> sizes, strides, dilations, pads;
  PENSTOCK_TRY(read_list(p, "kernel_shape", count, 1, 1, sizes));
  if (kernel.empty()) {
    if (p.integers("kernel_shape").empty()) return p.refuse("'kernel_shape' is missing");
    kernel = sizes;
  }
  if (!p.integers("kernel_shape").empty() && kernel != sizes) {
    return p.refuse("'kernel_shape' is " + text_of(sizes) + ", but the weights have " + text_of(kernel));
  }
  PENSTOCK_TRY(read_list(p, "strides", count, 1, 1, strides));
  PENSTOCK_TRY(read_list(p, "dilations", count, 1, 1, dilations));
  PENSTOCK_TRY(read_list(p, "pads", 2 * count, 0, 0, pads));
  for (std::size_t i = 0; i < count; ++i) {
    if (kernel[i] < 1 || kernel[i] > kMost) return p.refuse("a window of " + text_of(kernel[i]));
    *axes[i] = {kernel[i], strides[i], dilations[i], pads[i], pads[count + i], p.extent(0, static_cast<Index>(i) + 2)};
    if (!p.zeros.empty()) axes[i]->in += p.zeros[i + 2] + p.zeros[count + i + 4];
  }
  return {};
}

}  // namespace

Status read_windows(const Preparation& p, const Shape& kernel, Windows& windows) {
  Window* axes[2];
  std::size_t count = 0;
  PENSTOCK_TRY(read_common(p, kernel, axes, count, windows));
  for (std::size_t i = 0; i < count; ++i) {
    Window& window = *axes[i];
    PENSTOCK_TRY(pad_automatically(p, window, p.text("auto_pad", "NOTSET")));
    const Index room = window.in + window.before + window.after - window.reach();
    if (room < 0) {
      return p.refuse("a window that reaches over " + text_of(window.reach()) + " is longer than the axis of " +
                      text_of(window.in) + " with its padding");
    }
    window.out = room / window.stride + 1;
    if (p.integer("ceil_mode", 0) != 0) {
      window.out = (room + window.stride - 1) / window.stride + 1;
      // A window must not begin behind the input.
      if ((window.out - 1) * window.stride >= window.in + window.before) --window.out;
    }
    if (p.zeros.empty()) continue;
    const Index before = p.zeros[i + 2], after = p.zeros[count + i + 4];
    window.in -= before + after, window.before += before, window.after += after;
  }
  return {};
}

Status read_transposed_windows(const Preparation& p, const Shape& kernel, Windows& windows) {
  Window* axes[2];
  std::size_t count = 0;
  PENSTOCK_TRY(read_common(p, kernel, axes, count, windows));
  std::vector<Index> extra;
  PENSTOCK_TRY(read_list(p, "output_padding", count, 0, 0, extra));
  const std::vector<Index> shape = p.integers("output_shape");
  if (!shape.empty() && shape.size() < count) return p.refuse("'output_shape' is " + text_of(shape));
  const std::string_view mode = p.text("auto_pad", "NOTSET");
  for (std::size_t i = 0; i < count; ++i) {
    Window& window = *axes[i];
    const Index spread = window.in == 0 ? 0 : (window.in - 1) * window.stride + window.reach() + extra[i];
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (mode == "VALID") window.before = window.after = 0;
    window.out = spread - window.before - window.after;
    if (!shape.empty() || same) {
      window.out = shape.empty() ? window.in * window.stride : shape[shape.size() - count + i];
      const Index all = std::max<Index>(0, spread - window.out);
      window.before = mode == "SAME_UPPER" ? all / 2 : all - all / 2;
    }
    if (window.out < 1 || window.out > kMost)
      return p.refuse("an axis of the result has " + text_of(window.out) + " elements");
    window.before = window.reach() - 1 - window.before;
    window.up = std::exchange(window.stride, 1);
    window.after = window.out + window.reach() - 1 - window.before - ((window.in - 1) * window.up + 1);
  }
  return {};
}

void trim(Window& window, Index& first) {
  for (; window.size > 1 && (window.out - 1) * window.stride < window.before; ++first) {
    --window.size, window.before -= window.dilation;
  }
  for (; window.size > 1 && (window.size - 1) * window.dilation - window.before >= window.in; --window.size) {
    window.after -= window.dilation;
  }
}

}  // namespace penstock::network
