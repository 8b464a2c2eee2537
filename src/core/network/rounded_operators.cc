// Convolutions and products with constants of eight bits whose inputs become eight bits, too: each window, or row of a
// product, has a range of its own. So a result depends on its window alone: it has the same bits in any batch, and in
// chunks of any length.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "network/byte_layer.h"
#include "network/contraction.h"

namespace penstock::network {

namespace {

struct FloatRange {
  float low, high;
};

struct RoundedLayer : ByteImages {
  bool bytes = false;
  Index images_at_once = 1;
  std::size_t scales = 0;                                                // in the packed weights
  Index ranges = 0, rounded = 0, of_rows = 0, results_at = 0, room = 0;  // places in the scratch, in floats

  /// Numbers of a rounded row.
  Index stride() const { return bytes ? (inner() + 3) / 4 * 4 : inner(); }
  /// Places have so many channels that windows join their ranges. Those of fewer find theirs anew.
  bool has_places() const { return channels >= 16; }
  /// Windows are rows of the input.
  bool is_product() const { return rows() * columns() == 1; }
};

/// How a range becomes 0 to 255: x times `inverse`, rounded, plus `zero`.
struct Rounding {
  float inverse = 0, scale = 0;
  std::int32_t zero = 0;

  explicit Rounding(const FloatRange& range) {
    constexpr float least = 1e-30f;  // smaller products would vanish next to any bias
    const float width = range.high - range.low;
    if (!(width <= std::numeric_limits<float>::max())) scale = std::numeric_limits<float>::quiet_NaN();
    if (!(width >= least && width <= std::numeric_limits<float>::max())) return;
    inverse = 255.0f / width, scale = width / 255.0f;
    zero = static_cast<std::int32_t>(std::nearbyint(-range.low * inverse));
  }
};

FloatRange find_float_range(const Kernels& kernels, Index n, const float* x) {
  FloatRange range{0, 0};
  if (kernels.find_range != nullptr) {
    kernels.find_range(n, x, &range.low, &range.high);
    return range;
  }
  float others = 0;  // NaN if a number is not finite
  for (Index i = 0; i < n; ++i) {
    range.low = std::min(range.low, x[i]), range.high = std::max(range.high, x[i]);
    others += x[i] * 0.0f;
  }
  if (others != others) range.high = std::numeric_limits<float>::infinity();
  return range;
}

/// Rows of a product that are rounded, and what is to be multiplied once there are enough of them.
class RoundedRows {
 public:
  RoundedRows(const Step& step, const Memory& memory, const RoundedLayer& layer)
      : kernels_(memory.kernels),
        layer_(layer),
        scales_(step.packed.data() + layer.scales),
        panels_(step.packed.data()),
        rounded_(step.spare(memory) + layer.rounded),
        of_rows_(reinterpret_cast<ByteProduct::Row*>(step.spare(memory) + layer.of_rows)) {}

  /// Begins a row, of at most kRowsOfBytes.
  void begin(const FloatRange& range) {
    rounding_ = Rounding(range);
    of_rows_[count_++] = {0, 128 - rounding_.zero, rounding_.scale, 0};
    filled_ = 0;
    const Index inner = layer_.inner(), stride = layer_.stride();
    std::fill_n(bytes() + (count_ - 1) * stride + inner, layer_.bytes ? stride - inner : 0, std::int8_t{0});
  }
  void add(Index n, const float* x) {
    const Index at = (count_ - 1) * layer_.stride() + filled_;
    filled_ += n;
    if (layer_.bytes) {
      of_rows_[count_ - 1].sum += kernels_.round_range(n, x, rounding_.inverse, rounding_.zero - 128, bytes() + at);
      return;
    }
    float* const y = rounded_ + at;
    kernels_.binary(Binary::multiply, n, x, 1, &rounding_.inverse, 0, y);
    kernels_.unary(Unary::round, n, y, y, 0, 0);
    const auto most = static_cast<float>(255 - rounding_.zero);
    for (Index i = 0; i < n; ++i) y[i] = std::min(y[i], most);
  }
  /// c [rows, maps] gets the results of all.
  void multiply(float* c) {
    const Index maps = layer_.maps, inner = layer_.inner(), rows = std::exchange(count_, 0);
    const float* const bias = scales_ + maps;
    if (layer_.bytes) {
      kernels_.multiply_bytes({rows, maps, inner, bytes(), of_rows_, layer_.stride(), panels_, scales_, bias, c, maps});
      return;
    }
    Product job;
    job.rows = rows, job.columns = job.c_stride = maps, job.inner = job.a_stride = job.b_column = inner;
    job.a = rounded_, job.b = panels_, job.b_row = kernels_.panel_columns, job.c = c;
    kernels_.multiply(job);
    for (Index row = 0; row < rows; ++row) {
      float* const y = c + row * maps;
      for (Index map = 0; map < maps; ++map) y[map] = bias[map] + y[map] * (of_rows_[row].scale * scales_[map]);
    }
  }

 private:
  std::int8_t* bytes() const { return reinterpret_cast<std::int8_t*>(rounded_); }

  const Kernels& kernels_;
  const RoundedLayer& layer_;
  const float *scales_, *panels_;
  float* rounded_;
  ByteProduct::Row* of_rows_;
  Rounding rounding_{{0, 0}};
  Index count_ = 0, filled_ = 0;
};

void transpose_to(const Kernels& kernels, Index rows, Index columns, const float* x, Index x_stride, float* y,
                  Index y_stride) {
  if (kernels.transpose != nullptr) return kernels.transpose(rows, columns, x, x_stride, y, y_stride);
  for (Index column = 0; column < columns; ++column) {
    for (Index row = 0; row < rows; ++row) y[column * y_stride + row] = x[row * x_stride + column];
  }
}

/// Lays an image out as [rows, columns, channels], with zeros around it, and finds the range of each place.
void lay_out_ranges(const Kernels& kernels, const RoundedLayer& layer, const float* x, float* image,
                    FloatRange* ranges) {
  const Window &h = layer.windows.h, &w = layer.windows.w;
  const Index channels = layer.channels, columns = layer.columns();
  for (Index row = 0; row < layer.rows(); ++row, image += columns * channels, ranges += columns) {
    const Index of_input = row - h.before;
    const bool there = of_input >= 0 && of_input < h.in;
    const Index begin = there ? w.before : columns, end = there ? w.before + w.in : columns;
    std::fill_n(image, begin * channels, 0.0f);
    if (there)
      transpose_to(kernels, channels, w.in, x + of_input * w.in, h.in * w.in, image + begin * channels, channels);
    std::fill_n(image + end * channels, (columns - end) * channels, 0.0f);
    if (!layer.has_places()) continue;
    std::fill_n(ranges, begin, FloatRange{0, 0});
    for (Index i = begin; i < end; ++i) ranges[i] = find_float_range(kernels, channels, image + i * channels);
    std::fill_n(ranges + end, columns - end, FloatRange{0, 0});
  }
}

/// Adds n windows of an image that is laid out, from `begin` on.
void add_windows(const Kernels& kernels, const RoundedLayer& layer, const float* image, const FloatRange* ranges,
                 Index begin, Index n, RoundedRows& rows) {
  const Window &h = layer.windows.h, &w = layer.windows.w;
  const Index pieces = w.dilation == 1 ? 1 : w.size, piece = w.size / pieces * layer.channels;
  for (Index result = begin; result < begin + n; ++result) {
    const Index first = result / w.out * h.stride * layer.columns() + result % w.out * w.stride;
    FloatRange range{0, 0};
    const auto widen = [&](const FloatRange& by) {
      range.low = std::min(range.low, by.low), range.high = std::max(range.high, by.high);
    };
    const auto each_piece = [&](const auto& use) {
      for (Index row = 0; row < h.size; ++row) {
        const Index at = first + row * h.dilation * layer.columns();
        for (Index part = 0; part < pieces; ++part) use(at + part * w.dilation);
      }
    };
    each_piece([&](Index at) {
      if (!layer.has_places()) return widen(find_float_range(kernels, piece, image + at * layer.channels));
      for (Index place = at; place < at + w.size / pieces; ++place) widen(ranges[place]);
    });
    rows.begin(range);
    each_piece([&](Index at) { rows.add(piece, image + at * layer.channels); });
  }
}

void end_rounded(const Step& step, const Memory& memory, Index n, float* y) {
  if (step.ending.op == Unary::none) return;
  memory.kernels.unary(step.ending.op, n, y, y, step.ending.alpha, step.ending.beta);
}

/// Reads x [images, channels, h, w]. Images of few results go together.
void run_rounded_convolution(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const RoundedLayer*>(step.plan.get());
  const Kernels& kernels = memory.kernels;
  const Index results = layer.results(), maps = layer.maps;
  const Index input = layer.channels * layer.windows.h.in * layer.windows.w.in;
  float* const spare = step.spare(memory);
  auto* const ranges = reinterpret_cast<FloatRange*>(spare + layer.ranges);
  float* const c = spare + layer.results_at;
  const float* x = step.floats(0, memory);
  float* y = step.result(0, memory);
  RoundedRows rows(step, memory, layer);
  for (Index image = 0, together = 0; image < layer.images; ++image, x += input) {
    lay_out_ranges(kernels, layer, x, spare, ranges);
    ++together;
    for (Index begin = 0; begin < results; begin += kRowsOfBytes) {
      const Index n = std::min(kRowsOfBytes, results - begin);
      add_windows(kernels, layer, spare, ranges, begin, n, rows);
      if (together < layer.images_at_once && image + 1 < layer.images) continue;
      rows.multiply(c);
      end_rounded(step, memory, together * n * maps, c);
      for (Index i = 0; i < together; ++i) {
        transpose_to(kernels, n, maps, c + i * n * maps, maps, y + i * maps * results + begin, results);
      }
    }
    if (together < layer.images_at_once && image + 1 < layer.images) continue;
    y += std::exchange(together, 0) * maps * results;
  }
}

/// Reads x [rows, channels].
void run_rounded_product(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const RoundedLayer*>(step.plan.get());
  const float* x = step.floats(0, memory);
  float* const y = step.result(0, memory);
  RoundedRows rows(step, memory, layer);
  for (Index i = 0; i < layer.images; ++i, x += layer.channels) {
    rows.begin(find_float_range(memory.kernels, layer.channels, x));
    rows.add(layer.channels, x);
    const Index first = i / kRowsOfBytes * kRowsOfBytes;
    if (i + 1 == layer.images || i + 1 == first + kRowsOfBytes) rows.multiply(y + first * layer.maps);
  }
  end_rounded(step, memory, layer.images * layer.maps, y);
}

/// Packs weights, whose element (map, k) is `number(map, k)`; and scales and biases.
Status finish_rounded(Preparation& p, const std::shared_ptr<RoundedLayer>& layer, const auto& number) {
  const Index maps = layer->maps, inner = layer->inner(), panel = p.kernels().panel_columns;
  for (const std::size_t read : {2, 3}) {
    if (!p.has(read)) continue;
    PENSTOCK_TRY(p.only(read, {Type::f32}));
    if (p.known(read) == nullptr) return p.unsupported("scales or biases that depend on inputs");
    if (p.rank(read) != 1 || p.count(read) != maps) {
      return p.refuse("a scale or a bias of shape " + text_of(p.shape(read)) + ", expected [" + text_of(maps) + "]");
    }
  }
  const std::vector<float> weights = byte_weights(p, 1, *layer, 0, number);
  constexpr Index most = 1 << 15;  // sums of so many products fit 32 bits
  layer->bytes = p.kernels().multiply_bytes != nullptr && inner <= most;
  AlignedVector<float>& packed = p.step.packed.own();
  if (layer->bytes) {
    packed.resize(static_cast<std::size_t>(p.kernels().byte_panels(inner, maps)));
    p.kernels().pack_bytes(inner, maps, weights.data(), packed.data());
  } else {
    StridedLoop loop;
    loop.add(inner, {maps, 1, 0, 0});
    loop.add(maps, {1, inner, 0, 0});
    pack_panels(weights.data(), inner, maps, loop, panel, 1, packed);
  }
  layer->scales = packed.size();
  packed.insert(packed.end(), p.known_floats(2), p.known_floats(2) + maps);
  p.has(3) ? void(packed.insert(packed.end(), p.known_floats(3), p.known_floats(3) + maps))
           : packed.resize(packed.size() + static_cast<std::size_t>(maps), 0.0f);

  ScratchPlaces scratch;
  const bool convolves = !layer->is_product();
  const Index places = layer->rows() * layer->columns(), results = layer->results();
  layer->images_at_once =
      std::clamp<Index>(kRowsOfBytes / std::max<Index>(results, 1), 1, std::max<Index>(layer->images, 1));
  scratch.take(convolves ? places * layer->channels : 0);
  layer->ranges = scratch.take(convolves ? 2 * places : 0);
  layer->rounded = scratch.take(kRowsOfBytes * layer->stride() / (layer->bytes ? 4 : 1));
  layer->of_rows = scratch.take(kRowsOfBytes * static_cast<Index>(sizeof(ByteProduct::Row) / sizeof(float)));
  layer->results_at = scratch.take(convolves ? std::max(kRowsOfBytes, layer->images_at_once * results) * maps : 0);
  PENSTOCK_TRY(check_shape(Type::f32, {scratch.floats}));
  p.run(convolves ? &run_rounded_convolution : &run_rounded_product,
        static_cast<std::size_t>(scratch.floats) * sizeof(float));
  p.step.takes_ending = true;
  p.step.plan = layer;
  return {};
}

Status check_rounded_weights(const Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  PENSTOCK_TRY(p.only(1, {Type::i8}));
  return p.known(1) != nullptr ? Status() : p.unsupported("weights that depend on inputs");
}

/// A convolution of x [images, channels, h, w] with weights [maps, channels, h, w], scales [maps] and a bias [maps].
Status prepare_rounded_convolution(Preparation& p) {
  PENSTOCK_TRY(check_rounded_weights(p));
  const auto layer = std::make_shared<RoundedLayer>();
  PENSTOCK_TRY(read_byte_convolution(p, 1, *layer));
  for (const Window* window : {&layer->windows.h, &layer->windows.w}) {
    if (std::min(window->before, window->after) < 0) return p.unsupported("padding that takes away");
  }
  return finish_rounded(p, layer, [&](Index map, Index k) { return layer->weight(map, k); });
}

/// A product of x [..., inner] with weights [inner, columns], or [columns, inner] with "transB"; scales and bias.
Status prepare_rounded_product(Preparation& p) {
  PENSTOCK_TRY(check_rounded_weights(p));
  const Shape &x = p.shape(0), &w = p.shape(1);
  const std::size_t inner = p.integer("transB", 0) != 0 ? 1 : 0;
  if (x.empty() || w.size() != 2 || w[inner] != x.back()) {
    return p.refuse("weights of shape " + text_of(w) + " do not fit an input of shape " + text_of(x));
  }
  const auto layer = std::make_shared<RoundedLayer>();
  layer->channels = w[inner], layer->maps = w[1 - inner];
  layer->images = elements(x, 0, x.size() - 1);
  Shape shape = x;
  shape.back() = layer->maps;
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  const Index of_map = inner == 1 ? w[1] : 1, of_k = inner == 1 ? 1 : w[1];
  return finish_rounded(p, layer, [&](Index map, Index k) { return map * of_map + k * of_k; });
}

}  // namespace

Operators rounded_operators() {
  static constexpr Operator operators[] = {
      {"RoundedConv", prepare_rounded_convolution, 3, 4},
      {"RoundedMatMul", prepare_rounded_product, 3, 4},
  };
  return operators;
}

}  // namespace penstock::network
