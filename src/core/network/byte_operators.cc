// Products and convolutions of bytes with a dynamic range and constants of eight bits: x becomes bytes where it is laid
// out for them, channels side by side, and sums are integers.

#include <algorithm>
#include <memory>
#include <vector>

#include "network/byte_layer.h"
#include "network/transpose.h"

namespace penstock::network {

namespace {

struct ByteLayer : ByteImages {
  Index ranges = 1, images_of_range = 1;  // image i has range i / images_of_range % ranges
  std::int32_t weight_offset = 0;         // weights are those of the panels plus this
  std::size_t scales = 0, biases = 0;     // in the packed weights: ones and zeros
  Index sums = 0, floats = 0, windows_at = 0, of_rows = 0, results_at = 0,
        scratch = 0;  // places in the scratch, in floats

  Index stride() const { return (inner() + 3) / 4 * 4; }
};

/// Lays an image out as bytes [rows, columns, channels], with those of zero around it, and sums up each place.
void lay_out(const ByteLayer& layer, const Kernels& kernels, float scale, float zero, const float* x, float* row,
             std::int8_t* image, std::int32_t* sums) {
  const Window &h = layer.windows.h, &w = layer.windows.w;
  const Index channels = layer.channels, count = layer.rows() * layer.columns();
  const auto padding = static_cast<std::int8_t>(static_cast<int>(zero) - 128);
  if (count > h.in * w.in) {
    std::fill_n(image, count * channels, padding);
    std::fill_n(sums, count, static_cast<std::int32_t>(channels) * padding);
  }
  for (Index i = 0; i < h.in; ++i) {
    const Index at = (i + h.before) * layer.columns() + w.before;
    transpose(channels, w.in, x + i * w.in, h.in * w.in, row);
    kernels.round_to_bytes(scale, zero, w.in * channels, row, image + at * channels);
    for (Index column = 0; column < w.in; ++column) {
      std::int32_t sum = 0;
      for (const std::int8_t* from = image + (at + column) * channels; from < image + (at + column + 1) * channels;
           ++from)
        sum += *from;
      sums[at + column] = sum;
    }
  }
}

/// Copies the window of a result. Returns its sum.
std::int32_t copy_window(const ByteLayer& layer, Index result, const std::int8_t* image, const std::int32_t* sums,
                         std::int8_t* to) {
  const Window &h = layer.windows.h, &w = layer.windows.w;
  const Index first = result / w.out * h.stride * layer.columns() + result % w.out * w.stride;
  const Index pieces = w.dilation == 1 ? 1 : w.size, piece = w.size / pieces * layer.channels;
  std::int32_t sum = 0;
  for (Index row = 0; row < h.size; ++row) {
    const Index begin = first + row * h.dilation * layer.columns();
    for (Index part = 0; part < pieces; ++part) {
      to = std::copy_n(image + (begin + part * w.dilation) * layer.channels, piece, to);
    }
    for (Index column = 0; column < w.size; ++column) sum += sums[begin + column * w.dilation];
  }
  return sum;
}

/// Reads x, its scales and zero points, the weights and their zero point.
void run_bytes(const Step& step, const Memory& memory) {
  const auto& layer = *static_cast<const ByteLayer*>(step.plan.get());
  const Index results = layer.results(), inner = layer.inner(), stride = layer.stride(), maps = layer.maps;
  float* const spare = step.spare(memory);
  auto* const image = reinterpret_cast<std::int8_t*>(spare);
  auto* const sums = reinterpret_cast<std::int32_t*>(spare + layer.sums);
  auto* const windows = reinterpret_cast<std::int8_t*>(spare + layer.windows_at);
  auto* const of_rows = reinterpret_cast<ByteProduct::Row*>(spare + layer.of_rows);
  float* const c = results == 1 ? nullptr : spare + layer.results_at;
  std::fill_n(windows, kRowsOfBytes * stride, std::int8_t{0});
  const float* x = step.floats(0, memory);
  float* y = step.result(0, memory);
  ByteProduct job{0,
                  maps,
                  inner,
                  windows,
                  of_rows,
                  stride,
                  step.packed.data(),
                  step.packed.data() + layer.scales,
                  step.packed.data() + layer.biases,
                  c,
                  maps};
  const auto add_row = [&](Index row, std::int32_t sum, std::int32_t shift) {
    const std::int32_t levels = sum + shift * static_cast<std::int32_t>(inner);
    of_rows[row] = {sum, shift, 1.0f, layer.weight_offset * levels};
  };
  for (Index i = 0; i < layer.images; ++i, x += layer.channels * layer.windows.h.in * layer.windows.w.in) {
    const Index range = i / layer.images_of_range % layer.ranges;
    const auto zero = static_cast<float>(integer_at(Type::u8, step.read(2, memory), range));
    const std::int32_t shift = 128 - static_cast<std::int32_t>(zero);
    lay_out(layer, memory.kernels, step.floats(1, memory)[range], zero, x, spare + layer.floats, image, sums);
    if (results == 1) {  // an image is a row of a product
      const Index row = i % kRowsOfBytes;
      add_row(row, copy_window(layer, 0, image, sums, windows + row * stride), shift);
      if (row + 1 < kRowsOfBytes && i + 1 < layer.images) continue;
      job.rows = row + 1, job.c = y + (i - row) * maps;
      memory.kernels.multiply_bytes(job);
      continue;
    }
    for (Index begin = 0; begin < results; begin += kRowsOfBytes) {
      job.rows = std::min(kRowsOfBytes, results - begin), job.c = c + begin * maps;
      for (Index row = 0; row < job.rows; ++row) {
        add_row(row, copy_window(layer, begin + row, image, sums, windows + row * stride), shift);
      }
      memory.kernels.multiply_bytes(job);
    }
    transpose(results, maps, c, maps, y);
    y += maps * results;
  }
}

/// Packs weights, whose element (map, k) is `number(map, k)`, behind their offset; and ones and zeros.
Status pack(Preparation& p, ByteLayer& layer, const auto& number) {
  const Index maps = layer.maps, inner = layer.inner();
  const bool has_sign = p.type(3) == Type::i8;
  const Index zero = p.has(4) ? integer_at(p.type(4), p.known(4), 0) : 0, offset = has_sign ? 0 : 128;
  layer.weight_offset = static_cast<std::int32_t>(offset - zero);
  const std::vector<float> weights = byte_weights(p, 3, layer, offset, number);
  AlignedVector<float>& packed = p.step.packed.own();
  layer.scales = static_cast<std::size_t>(p.kernels().byte_panels(inner, maps));
  layer.biases = layer.scales + static_cast<std::size_t>(maps);
  packed.assign(layer.biases + static_cast<std::size_t>(maps), 0.0f);
  p.kernels().pack_bytes(inner, maps, weights.data(), packed.data());
  std::fill_n(packed.data() + layer.scales, maps, 1.0f);

  ScratchPlaces scratch;
  const Index places = layer.rows() * layer.columns();
  scratch.take((places * layer.channels + 3) / 4);
  layer.sums = scratch.take(places);
  layer.floats = scratch.take(layer.windows.w.in * layer.channels);
  layer.windows_at = scratch.take(kRowsOfBytes * layer.stride() / 4);
  layer.of_rows = scratch.take(kRowsOfBytes * static_cast<Index>(sizeof(ByteProduct::Row) / sizeof(float)));
  layer.results_at = scratch.take(layer.results() == 1 ? 0 : layer.results() * maps);
  layer.scratch = scratch.floats;
  PENSTOCK_TRY(check_shape(Type::f32, {layer.scratch}));
  return {};
}

void finish(Preparation& p, const std::shared_ptr<ByteLayer>& layer) {
  layer->ranges = p.count(1);
  p.run(&run_bytes, static_cast<std::size_t>(layer->scratch) * sizeof(float));
  p.step.plan = layer;
}

Status check_types(const Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  PENSTOCK_TRY(p.only(3, {Type::u8, Type::i8}));
  return p.has(4) ? p.only(4, {p.type(3)}) : Status();
}

/// A convolution of x [images, channels, h, w] with weights [maps, channels, h, w].
Status prepare_convolution(Preparation& p) {
  PENSTOCK_TRY(check_types(p));
  const auto layer = std::make_shared<ByteLayer>();
  PENSTOCK_TRY(read_byte_convolution(p, 3, *layer));
  PENSTOCK_TRY(pack(p, *layer, [&](Index map, Index k) { return layer->weight(map, k); }));
  finish(p, layer);
  return {};
}

/// A product of x [..., inner] with weights [inner, columns]: an image for each row.
Status prepare_product(Preparation& p) {
  PENSTOCK_TRY(check_types(p));
  const Shape &x = p.shape(0), &w = p.shape(3);
  if (x.empty() || w.size() != 2 || w[0] != x.back()) {
    return p.refuse("a product of shapes " + text_of(x) + " and " + text_of(w));
  }
  const auto layer = std::make_shared<ByteLayer>();
  layer->channels = w[0], layer->maps = w[1];
  layer->images = elements(x, 0, x.size() - 1);
  if (const Index axis = p.integer("rows", -1); axis >= 0 && axis + 1 < p.rank(0)) {
    layer->images_of_range = std::max<Index>(elements(x, static_cast<std::size_t>(axis) + 1, x.size() - 1), 1);
  }
  Shape shape = x;
  shape.back() = w[1];
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  PENSTOCK_TRY(pack(p, *layer, [&](Index map, Index k) { return k * w[1] + map; }));
  finish(p, layer);
  return {};
}

}  // namespace

Status read_byte_convolution(Preparation& p, std::size_t weights, ByteImages& layer) {
  const Shape &x = p.shape(0), &w = p.shape(weights);
  if (x.size() != w.size() || x.size() < 3 || w[1] != x[1]) {
    return p.refuse("weights of shape " + text_of(w) + " do not fit an input of shape " + text_of(x));
  }
  PENSTOCK_TRY(read_windows(p, {w.begin() + 2, w.end()}, layer.windows));
  for (const Window* window : {&layer.windows.h, &layer.windows.w}) {
    const Index there = window->in + window->before + window->after;
    if ((window->out - 1) * window->stride + window->reach() > there)
      return p.unsupported("windows beyond the padding");
  }
  layer.images = x[0], layer.channels = x[1], layer.maps = w[0];
  Shape shape = {x[0], w[0], layer.windows.w.out};
  if (x.size() == 4) shape.insert(shape.begin() + 2, layer.windows.h.out);
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  return check_shape(Type::f32, {x[1], layer.rows(), layer.columns()});
}

Operators byte_operators() {
  static constexpr Operator operators[] = {
      {"ByteConv", prepare_convolution, 4, 5},
      {"ByteMatMul", prepare_product, 4, 5},
  };
  return operators;
}

}  // namespace penstock::network
