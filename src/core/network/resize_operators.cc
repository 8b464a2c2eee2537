// Resize: other numbers of elements along axes, from the nearest one or between two.

#include <algorithm>
#include <cmath>

#include "network/maps.h"
#include "network/preparation.h"

namespace penstock::network {

namespace {

/// How positions of an axis are found in the input.
struct Axis {
  Index in = 1, out = 1;
  double scale = 1;
};

/// Where position `i` of the result lies in the input.
double place_of(std::string_view mode, const Axis& axis, Index i) {
  const double x = static_cast<double>(i), centre = (x + 0.5) / axis.scale - 0.5;
  const auto in = static_cast<double>(axis.in);
  const double exact = axis.scale * in, out = static_cast<double>(axis.out);
  if (mode == "asymmetric") return x / axis.scale;
  if (mode == "align_corners") return axis.out == 1 ? 0 : x * (in - 1) / (exact - 1);
  if (mode == "pytorch_half_pixel") return axis.out > 1 ? centre : 0;
  if (mode == "half_pixel_symmetric") return in / 2 * (1 - out / exact) + centre;
  return centre;
}

double rounded(std::string_view mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  return mode == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
}

/// Extents of the result, and scales.
Status read_axes(const Preparation& p, std::vector<Axis>& resized) {
  std::vector<Index> axes = p.integers("axes");
  if (axes.empty()) {
    for (Index i = 0; i < p.rank(0); ++i) axes.push_back(i);
  }
  const bool has_sizes = p.has(3) && p.count(3) > 0, has_scales = p.has(2) && p.count(2) > 0;
  const std::size_t read = has_sizes ? 3 : 2;
  if (has_sizes == has_scales) return p.refuse("it needs either scales or sizes");
  if (p.known(read) == nullptr) return p.unsupported("its sizes depend on what is in the inputs; supported: constants");
  if (p.count(read) != static_cast<Index>(axes.size())) return p.refuse("its sizes do not fit its axes");
  if (p.text("keep_aspect_ratio_policy", "stretch") != "stretch") {
    return p.unsupported("'keep_aspect_ratio_policy' other than stretch");
  }
  for (Index i = 0; i < p.rank(0); ++i) resized.push_back({p.shape(0)[i], p.shape(0)[i], 1});
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (!normalise_axis(axes[i], p.rank(0))) return p.refuse("axis " + text_of(axes[i]) + " does not exist");
    Axis& axis = resized[axes[i]];
    const double value = real_at(p.type(read), p.known(read), static_cast<Index>(i));
    if (!(value > 0 && value < 1e9) || axis.in == 0) return p.refuse("a scale or size is not positive");
    axis.scale = has_sizes ? value / static_cast<double>(axis.in) : value;
    axis.out = static_cast<Index>(has_sizes ? value : std::floor(static_cast<double>(axis.in) * value));
  }
  return {};
}

/// n: number of axes, then for each of them blocks, extents before and after, and elements behind it; then for all
/// positions the lower neighbour. f: the weight of the upper neighbour.
void run_linear(const Step& step, const Memory& memory) {
  const Index *n = step.n.data() + 1, *low = step.n.data() + 1 + 4 * step.n[0];
  const float *x = step.floats(0, memory), *share = step.f.data();
  float* spare[2] = {step.spare(memory), step.spare(memory) + step.scratch_bytes / 2 / sizeof(float)};
  for (Index axis = 0; axis < step.n[0]; ++axis, n += 4) {
    const Index in = n[1], out = n[2], inner = n[3];
    float* result = axis + 1 == step.n[0] ? step.result(0, memory) : spare[axis % 2];
    float* y = result;
    for (Index block = 0; block < n[0]; ++block, x += in * inner) {
      for (Index i = 0; i < out; ++i, y += inner) {
        const float *a = x + low[i] * inner, *b = x + std::min(low[i] + 1, in - 1) * inner;
        for (Index k = 0; k < inner; ++k) y[k] = a[k] + share[i] * (b[k] - a[k]);
      }
    }
    x = result, low += out, share += out;
  }
}

Status prepare_linear(Preparation& p, const std::vector<Axis>& axes, std::string_view places) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  Step& step = p.run(&run_linear);
  Shape shape = p.shape(0);
  std::vector<Index> low;
  step.n = {0};
  std::size_t largest = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Axis& axis = axes[i];
    if (axis.in == axis.out && axis.scale == 1) continue;
    shape[i] = axis.out;
    ++step.n[0];
    step.n.insert(step.n.end(), {elements(shape, 0, i), axis.in, axis.out, elements(shape, i + 1)});
    PENSTOCK_TRY(check_shape(Type::f32, shape));
    largest = std::max(largest, bytes_of(Type::f32, shape));
    for (Index k = 0; k < axis.out; ++k) {
      const double place = std::clamp(place_of(places, axis, k), 0.0, static_cast<double>(axis.in - 1));
      low.push_back(static_cast<Index>(place));
      step.f.push_back(static_cast<float>(place - std::floor(place)));
    }
  }
  if (step.n[0] == 0) {
    p.view(0);
    return {};
  }
  step.n.insert(step.n.end(), low.begin(), low.end());
  step.scratch_bytes = 2 * ((largest + 63) / 64 * 64);
  return {};
}

Status prepare_resize(Preparation& p) {
  std::vector<Axis> axes;
  PENSTOCK_TRY(read_axes(p, axes));
  const std::string_view mode = p.text("mode", "nearest");
  const std::string_view places = p.text("coordinate_transformation_mode", "half_pixel");
  if (places == "tf_crop_and_resize") return p.unsupported("'coordinate_transformation_mode' tf_crop_and_resize");
  if ((mode != "nearest" && mode != "linear") || p.integer("antialias", 0) != 0) {
    return p.unsupported("mode '" + std::string(mode) + "'" +
                         (p.integer("antialias", 0) != 0 ? " with antialias" : "") + "; supported: nearest and linear");
  }
  Shape shape;
  for (const Axis& axis : axes) shape.push_back(axis.out);
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  if (mode == "linear") return prepare_linear(p, axes, places);
  AxisMaps maps;
  for (const Axis& axis : axes) {
    std::vector<Index>& map = maps.emplace_back();
    for (Index i = 0; i < axis.out; ++i) {
      const double place = rounded(p.text("nearest_mode", "round_prefer_floor"), place_of(places, axis, i));
      map.push_back(static_cast<Index>(std::clamp(place, 0.0, static_cast<double>(axis.in - 1))));
    }
  }
  take_from(p, maps, false);
  return {};
}

}  // namespace

Operators resize_operators() {
  static constexpr Operator operators[] = {{"Resize", prepare_resize, 1, 4}};
  return operators;
}

}  // namespace penstock::network
