// Convolutions as products: of the weights with the input itself, which is padded so that each place in the window is
// the whole map at another offset; or, where there are few results, of windows with panels of the weights; or of tiles
// of images, by Winograd's algorithm.

#include <algorithm>
#include <cstring>
#include <utility>

#include "network/contraction.h"
#include "network/convolution.h"

namespace penstock::network {

namespace {

/// One row of a plane: columns of a phase, zeros where the input has none. `has_zeros`: these are there already.
void fill_row(const Window& w, Index phase, Index columns, const float* x, float* y, bool has_zeros) {
  if (x == nullptr || w.up > 1) {
    if (!has_zeros) std::fill_n(y, columns, 0.0f);
    for (Index i = 0; x != nullptr && i < w.in; ++i) {
      const Index at = i * w.up + w.before;
      if (at >= 0 && at < columns) y[at] = x[i];
    }
    return;
  }
  // Column c of the phase is element c * stride + phase - before of the input.
  const Index shift = w.before - phase;
  const Index begin = std::clamp<Index>(shift <= 0 ? 0 : (shift + w.stride - 1) / w.stride, 0, columns);
  const Index end = std::clamp<Index>((w.in + shift + w.stride - 1) / w.stride, begin, columns);
  if (!has_zeros) {
    std::fill_n(y, begin, 0.0f);
    std::fill_n(y + end, columns - end, 0.0f);
  }
  const float* from = x + begin * w.stride - shift;
  if (w.stride == 1) {
    std::copy_n(from, end - begin, y + begin);
  } else if (w.stride == 2) {  // a constant, by vectors
    for (Index c = begin; c < end; ++c) y[c] = from[2 * (c - begin)];
  } else {
    for (Index c = begin; c < end; ++c, from += w.stride) y[c] = *from;
  }
}

/// Rows of all channels of an image as planes, from `first` on.
void fill_planes(const Convolution& plan, Index first, const float* x, float* y) {
  const Window &h = plan.windows.h, &w = plan.windows.w;
  for (Index channel = 0; channel < plan.groups * plan.channels; ++channel, x += plan.inputs()) {
    for (const auto& [phase_h, phase_w] : plan.phases) {
      for (Index row = 0; row < plan.rows; ++row, y += plan.columns) {
        const Index at = (first + row) * h.stride + phase_h - h.before;
        const bool there = at >= 0 && at % h.up == 0 && at / h.up < h.in;
        fill_row(w, phase_w, plan.columns, there ? x + at / h.up * w.in : nullptr, y, plan.has_zeros);
      }
    }
  }
}

/// Columns of planes are computed by whole vectors, a quarter of a panel: those behind a row are scratch as well.
Index in_vectors(Index columns, Index panel) { return (columns + panel / 4 - 1) / (panel / 4) * (panel / 4); }

Index columns_at_once(const Convolution& plan, Index panel) {
  return in_vectors(plan.rows_at_once() * plan.columns, panel);
}

/// The results of a group, some columns at a time: `all` rows of them. `job` has all but those.
void run_group(const Step& step, const Memory& memory, const Convolution& plan, Product job, const float* planes,
               Index all, float* y) {
  const Index out = plan.windows.w.out, results = plan.results();
  if (plan.direct()) {
    job.c_stride = results;
    for (Index begin = 0; begin < results; begin += kChunk) {
      job.columns = std::min(kChunk, results - begin);
      job.b = planes + begin, job.c = y + begin;
      memory.kernels.multiply(job);
      if (step.ending.op == Unary::none) continue;
      for (Index map = 0; map < plan.maps; ++map) {
        apply_ending(step, memory, job.columns, job.c + map * results, job.c + map * results);
      }
    }
    return;
  }
  const Index rows_at_once = plan.rows_at_once();
  job.c = step.spare(memory) + plan.at_results;
  job.c_stride = columns_at_once(plan, memory.kernels.panel_columns);
  for (Index row = 0; row < all; row += rows_at_once) {
    const Index rows = std::min(rows_at_once, all - row);
    job.columns = (rows - 1) * plan.columns + out;
    if (plan.padded) job.columns = in_vectors(job.columns, memory.kernels.panel_columns);
    job.b = planes + row * plan.columns;
    memory.kernels.multiply(job);
    for (Index map = 0; map < plan.maps; ++map) {
      for (Index i = 0; i < rows; ++i) {
        apply_ending(step, memory, out, job.c + map * job.c_stride + i * plan.columns,
                     y + map * results + (row + i) * out);
      }
    }
  }
}

void run_maps_at_offsets(const Step& step, const Memory& memory) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  const float* weights = step.packed.empty() ? step.floats(1, memory) : step.packed.data();
  const float* bias = bias_of(step, memory);
  const Index plane = plan.rows * plan.columns * static_cast<Index>(plan.phases.size());
  Product job;
  job.rows = plan.maps, job.inner = job.a_stride = plan.inner();
  job.offset = plan.offsets.data();
  const Index blocks = plan.blocks();
  for (Index i = 0; i < plan.images * blocks; ++i) {
    const Index image = i / blocks, row = i % blocks * plan.block;
    const float* planes = step.floats(0, memory) + image * plan.groups * plan.channels * plan.inputs();
    if (plan.padded) {
      fill_planes(plan, row, planes, step.spare(memory));
      planes = step.spare(memory);
    }
    if (plan.single_rows()) {
      float* const y = step.result(0, memory) + image * plan.groups * plan.results();
      job.groups = plan.groups, job.b_group = plan.channels * plane, job.columns = plan.results();
      job.a = weights, job.row_bias = bias, job.b = planes, job.c = y;
      memory.kernels.multiply(job);
      if (step.ending.op != Unary::none) apply_ending(step, memory, plan.groups * plan.results(), y, y);
      continue;
    }
    for (Index group = 0; group < plan.groups; ++group) {
      job.a = weights + group * plan.maps * job.inner;
      job.row_bias = bias == nullptr ? nullptr : bias + group * plan.maps;
      run_group(step, memory, plan, job, planes + group * plan.channels * plane,
                std::min(plan.block, plan.windows.h.out - row),
                step.result(0, memory) + (image * plan.groups + group) * plan.maps * plan.results() +
                    row * plan.windows.w.out);
    }
  }
}

/// The windows of an image that lies so: [results, h, w, channels]. Returns the end.
float* copy_windows(const Convolution& plan, const float* image, float* to) {
  const Window &h = plan.windows.h, &w = plan.windows.w;
  const Index pieces = w.dilation == 1 ? 1 : w.size, piece = w.size / pieces * plan.channels;
  for (Index i = 0; i < plan.results(); ++i) {
    const Index first = i / w.out * h.stride - h.before, column = i % w.out * w.stride;
    for (Index k = 0; k < h.size; ++k) {
      const Index row = first + k * h.dilation;
      const float* from = image + (row * plan.columns + column) * plan.channels;
      for (Index part = 0; part < pieces; ++part, from += w.dilation * plan.channels) {
        to = row < 0 || row >= h.in ? std::fill_n(to, piece, 0.0f) : std::copy_n(from, piece, to);
      }
    }
  }
  return to;
}

/// Windows of several images go together: a product of many rows reads the weights less often.
void run_windows(const Step& step, const Memory& memory) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  const Index results = plan.results();
  float *const windows = step.spare(memory), *const image = windows + plan.at_image;
  Product job = product_of_windows(step, memory, plan);
  const float* x = step.floats(0, memory);
  float* y = step.result(0, memory);
  for (Index begin = 0; begin < plan.images; begin += plan.images_at_once) {
    const Index images = std::min(plan.images_at_once, plan.images - begin);
    float* to = windows;
    for (Index i = 0; i < images; ++i, x += plan.channels * plan.inputs()) {
      lay_by_columns(plan, x, image);
      to = copy_windows(plan, image, to);
    }
    job.rows = images * results;
    memory.kernels.multiply(job);
    apply_ending(step, memory, job.rows * plan.maps, job.c, job.c);
    for (Index i = 0; i < images; ++i, y += plan.maps * results) {
      transpose(results, plan.maps, job.c + i * results * plan.maps, plan.maps, y);
    }
  }
}

// Winograd's tiles --------------------------------------------------------------------------------------------------

constexpr Index kTile = 16;  // products for 2 x 2 results of windows of 3 x 3, which take 36 otherwise
/// Values of channels and maps at once, for each of kTile: they stay in the second-level cache.
constexpr Index kTileValues = 48 << 10;

/// Returns whether there are at least 8 x 8 results, 16 channels and 16 maps. Streams of a few frames have fewer
/// results.
bool is_for_tiles(const Convolution& plan) {
  const Window &h = plan.windows.h, &w = plan.windows.w;
  const bool dense = std::max({h.stride, w.stride, h.dilation, w.dilation, h.up, w.up}) == 1;
  const bool fits = h.size == 3 && w.size == 3 && dense;
  return fits && plan.groups == 1 && std::min(plan.channels, plan.maps) >= 16 && std::min(h.out, w.out) >= 8;
}

/// [maps, channels, 3, 3] -> [kTile, maps, channels]
void pack_tiles(const Convolution& plan, const float* weights, AlignedVector<float>& packed) {
  const Index count = plan.maps * plan.channels;
  packed.resize(static_cast<std::size_t>(kTile * count));
  const auto transform = [](const float* g, Index step, float* u, Index to_step) {
    const float sum = g[0] + g[2 * step], middle = g[step];
    u[0] = g[0], u[to_step] = (sum + middle) / 2, u[2 * to_step] = (sum - middle) / 2, u[3 * to_step] = g[2 * step];
  };
  for (Index i = 0; i < count; ++i) {
    float rows[12];
    for (Index column = 0; column < 3; ++column) transform(weights + i * 9 + column, 3, rows + column, 3);
    for (Index row = 0; row < 4; ++row) transform(rows + 3 * row, 1, packed.data() + 4 * row * count + i, count);
  }
}

bool absorb_into_tiles(Step& step, Index channels, const float* gain, const float* shift) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  if (channels != plan.maps) return false;
  step.bias.resize(static_cast<std::size_t>(channels));
  for (Index map = 0; map < channels; ++map) step.bias[map] = step.bias[map] * gain[map] + shift[map];
  for (Index i = 0; i < kTile * channels; ++i) {
    float* const row = step.packed.own().data() + i * plan.channels;
    for (Index k = 0; k < plan.channels; ++k) row[k] *= gain[i % channels];
  }
  return true;
}

/// The even and the odd rows and columns of the input lie in planes of their own: element (r, c) of a tile's 4 x 4 is
/// in plane (r % 2, c % 2), side by side with that of the next tile. The factors lie as panels of the product.
void run_tiles(const Step& step, const Memory& memory) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  const Index out_h = plan.windows.h.out, out_w = plan.windows.w.out, plane = plan.rows * plan.columns;
  const Index all = (out_h + 1) / 2, stride = plan.tile_stride, panel = memory.kernels.panel_columns;
  float *const planes = step.spare(memory), *const inputs = planes + plan.at_results;
  float *const products = inputs + kTile * plan.channels * stride, *const results =
                                                                       products + kTile * plan.maps * stride;
  Product job;
  job.rows = plan.maps, job.columns = job.c_stride = stride;
  job.inner = job.a_stride = job.b_column = plan.channels, job.b_row = panel;
  for (Index image = 0; image < plan.images; ++image) {
    float* const y = step.result(0, memory) + image * plan.maps * plan.results();
    for (Index row = 0; row < all; row += plan.tile_rows) {
      const Index rows = std::min(plan.tile_rows, all - row);
      const Index tiles = rows * plan.columns - 1;
      fill_planes(plan, row, step.floats(0, memory) + image * plan.channels * plan.inputs(), planes);
      for (Index at = 0; at < tiles; at += panel) {
        for (Index channel = 0; channel < plan.channels; ++channel) {
          memory.kernels.to_tiles(std::min(panel, tiles - at), planes + 4 * channel * plane + at, plane, plan.columns,
                                  inputs + at * plan.channels + channel * panel, plan.channels * stride);
        }
      }
      for (Index i = 0; i < kTile; ++i) {
        job.a = step.packed.data() + i * plan.maps * plan.channels;
        job.b = inputs + i * plan.channels * stride, job.c = products + i * plan.maps * stride;
        memory.kernels.multiply(job);
      }
      for (Index map = 0; map < plan.maps; ++map) {
        memory.kernels.from_tiles(tiles, products + map * stride, plan.maps * stride,
                                  step.bias.empty() ? 0.0f : step.bias[map], results, results + 2 * stride);
        for (Index i = 2 * row; i < std::min(2 * (row + rows), out_h); ++i) {
          apply_ending(step, memory, out_w, results + i % 2 * 2 * stride + (i / 2 - row) * 2 * plan.columns,
                       y + map * plan.results() + i * out_w);
        }
      }
    }
  }
}

/// Planes and the scratch, in floats.
Index lay_out_tiles(Convolution& plan, Index panel) {
  Window &h = plan.windows.h, &w = plan.windows.w;
  h.stride = w.stride = 2;  // of the planes
  plan.phases = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  plan.columns = (w.out + 1) / 2 + 1;
  // Products run over whole panels, so that as many rows go together as leave little of the last one empty.
  const Index all = (h.out + 1) / 2;
  Index least = 0;
  for (Index rows = 1; rows <= all; ++rows) {
    const Index stride = (rows * plan.columns + panel - 1) / panel * panel, work = (all + rows - 1) / rows * stride;
    if (rows > 1 && stride * (plan.channels + plan.maps) > kTileValues) break;
    if (rows == 1 || work < least) plan.tile_rows = rows, plan.tile_stride = stride, least = work;
  }
  plan.rows = plan.tile_rows + 1;
  plan.at_results = (4 * plan.channels * plan.rows * plan.columns + 15) / 16 * 16;
  return plan.at_results + (kTile * (plan.channels + plan.maps) + 4) * plan.tile_stride;
}

/// The number of vector operations for each place of a window: in windows with panels, or over whole maps.
bool has_few_results(const Convolution& plan, Index lanes) {
  if (plan.groups != 1) return false;
  // Where an image is one window, images together are as many rows. Sums of one part have the bits of single images.
  if (plan.in_place() && plan.results() * plan.places() == 1 && plan.channels <= kPartOfProduct) return true;
  const Index of_windows = plan.results() * ((plan.maps + lanes - 1) / lanes);
  const Index of_maps = plan.maps * ((plan.flat() + lanes - 1) / lanes);
  return 4 * of_windows < 3 * of_maps;
}

/// Planes, phases and offsets.
void lay_out(Convolution& plan) {
  const Window &h = plan.windows.h, &w = plan.windows.w;
  plan.padded =
      h.stride * w.stride * h.up * w.up != 1 || h.before != 0 || w.before != 0 || h.after != 0 || w.after != 0;
  plan.columns = plan.padded ? w.out + (w.reach() - 1) / w.stride : w.in;
  plan.phases.clear();
  std::vector<Index> numbers;
  for (Index i = 0; i < plan.places(); ++i) {
    const std::pair phase(i / w.size * h.dilation % h.stride, i % w.size * w.dilation % w.stride);
    const auto found = std::ranges::find(plan.phases, phase);
    numbers.push_back(found - plan.phases.begin());
    if (found == plan.phases.end()) plan.phases.push_back(phase);
  }
  const Index more = (h.reach() - 1) / h.stride, phases = static_cast<Index>(plan.phases.size());
  plan.block = std::max<Index>(h.out, 1);
  if (plan.padded && !plan.direct()) {
    const Index of_row = plan.groups * plan.channels * phases * plan.columns, at_once = plan.rows_at_once();
    plan.block = std::clamp((kFloatsOfPlanes / of_row - more) / at_once * at_once, at_once, plan.block);
  }
  plan.rows = plan.padded ? plan.block + more : h.in;
  const Index map = plan.rows * plan.columns;
  for (Index channel = 0; channel < plan.channels; ++channel) {
    for (Index i = 0; i < plan.places(); ++i) {
      const Index row = i / w.size * h.dilation / h.stride, column = i % w.size * w.dilation / w.stride;
      plan.offsets.push_back((channel * phases + numbers[i]) * map + row * plan.columns + column);
    }
  }
}

#if !PENSTOCK_RUNTIME
/// What the places of zeros in the planes depend on.
std::vector<Index> places_of_zeros(const Convolution& plan, Index scratch) {
  std::vector<Index> all = {scratch, plan.groups * plan.channels, plan.rows, plan.columns};
  for (const auto& [phase_h, phase_w] : plan.phases) all.insert(all.end(), {phase_h, phase_w});
  for (const Window* window : {&plan.windows.h, &plan.windows.w}) {
    all.insert(all.end(), {window->stride, window->before, window->in, window->up});
  }
  return all;
}
#endif

/// y = gain y + shift for each map.
bool absorb_maps(Step& step, Index channels, const float* gain, const float* shift) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  const Index maps = plan.groups * plan.maps, inner = plan.inner();
  if (channels != maps) return false;
  step.bias.resize(static_cast<std::size_t>(maps));
  for (Index map = 0; map < maps; ++map) {
    step.bias[map] = step.bias[map] * gain[map] + shift[map];
    const Index panel = step.product.b_row;
    float* first = step.packed.own().data() + (plan.few ? map / panel * panel * inner + map % panel : map * inner);
    for (Index k = 0; k < inner; ++k) first[plan.few ? k * panel : k] *= gain[map];
  }
  return true;
}

/// Prepares the rest once windows and sizes are known. `weights` [maps, inner]: null if they are not known.
[[gnu::cold]] Status finish(Preparation& p, const std::shared_ptr<Convolution>& plan, const float* weights) {
  const Windows& windows = plan->windows;
  const Index maps = plan->groups * plan->maps;
  Shape shape = {plan->images, maps, windows.w.out};
  if (p.rank(0) == 4) shape.insert(shape.begin() + 2, windows.h.out);
  if (p.has(2) && (p.rank(2) != 1 || p.count(2) != maps)) {
    return p.refuse("the bias has shape " + text_of(p.shape(2)) + ", not [" + text_of(maps) + "]");
  }
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  const PrepareSpectrum prepare_spectrum = p.kernels().prepare_spectrum;
  if (!kIsRuntime && prepare_spectrum != nullptr && weights != nullptr && prepare_spectrum(p, windows, weights))
    return {};
  Step& step = p.step;
  plan->rows = windows.h.out + windows.h.reach() - 1, plan->columns = windows.w.out + windows.w.reach() - 1;
  const Index panel = p.kernels().panel_columns, inner = plan->inner();
  plan->few = weights != nullptr && windows.w.up == 1 && windows.h.up == 1 && has_few_results(*plan, panel / 4);
  Index scratch = 0;
  if (plan->few) {
    StridedLoop loop;  // [h, w, channels]
    loop.add(plan->places(), {plan->channels * maps, 1, 0, 0});
    loop.add(plan->channels, {maps, plan->places(), 0, 0});
    loop.add(maps, {1, inner, 0, 0});
    pack_panels(weights, inner, maps, loop, panel, 1, step.packed.own());
    step.product.b_row = panel;
    plan->columns = (windows.w.out - 1) * windows.w.stride + windows.w.reach();
    const Index results = std::max<Index>(plan->results(), 1), images = std::max<Index>(plan->images, 1);
    const bool in_place = plan->in_place();
    plan->images_at_once = std::clamp<Index>(kWindowsAtOnce / (in_place ? 1 : results), 1, images);
    const Index rows = plan->images_at_once * plan->results();
    const Shape laid = {in_place ? plan->images_at_once : 1, plan->channels, windows.h.in, plan->columns};
    PENSTOCK_TRY(check_shape(Type::f32, {rows, inner}));
    PENSTOCK_TRY(check_shape(Type::f32, laid));
    plan->at_image = in_place ? 0 : (rows * inner + 15) / 16 * 16;
    plan->at_results = plan->at_image + (elements(laid) + 15) / 16 * 16;
    scratch = plan->at_results + rows * maps;
    if (in_place) {
      PENSTOCK_TRY(check_shape(Type::f32, {images, plan->channels, plan->columns}));
      const Index before = windows.w.before;
      if (before >= 0 && before + windows.w.in <= plan->columns) step.images.reads = {plan->columns, before};
      step.images.has_rows = plan->columns == 1 && windows.w.in == 1 && before == 0;
      step.images.can_write_rows = true;
      if (plan->results() == 1) step.images.writes = {1, 0};
    }
  } else if (weights != nullptr && is_for_tiles(*plan) && (!p.has(2) || p.known(2) != nullptr)) {
    scratch = lay_out_tiles(*plan, panel);
    PENSTOCK_TRY(check_shape(Type::f32, {scratch}));
    pack_tiles(*plan, weights, step.packed.own());
  } else {
    lay_out(*plan);
    const auto phases = static_cast<Index>(plan->phases.size());
    PENSTOCK_TRY(check_shape(Type::f32, {plan->groups * plan->channels, phases, plan->rows, plan->columns}));
    PENSTOCK_TRY(check_shape(Type::f32, {plan->maps, columns_at_once(*plan, panel)}));
    const Index plane = plan->rows * plan->columns * phases;
    if (plan->padded) scratch = (plan->groups * plan->channels * plane + 15) / 16 * 16;
    step.keeps_scratch = plan->has_zeros = plan->padded && plan->blocks() == 1 && scratch <= kFloatsOfZeros;
    plan->at_results = scratch;
    if (!plan->direct()) scratch += plan->maps * columns_at_once(*plan, panel);
    if (weights != nullptr) step.packed.own().assign(weights, weights + maps * inner);
  }
  const bool tiled = plan->tile_rows > 0;
  Run run = plan->few ? &run_windows : tiled ? &run_tiles : &run_maps_at_offsets;
  if constexpr (!kIsRuntime) {
    if (plan->few && plan->in_place()) run = &run_windows_in_place;
  }
  p.run(run, static_cast<std::size_t>(scratch) * sizeof(float));
#if !PENSTOCK_RUNTIME
  if (plan->has_zeros) step.zeros = places_of_zeros(*plan, scratch);
#endif
  if (p.known(2) != nullptr) step.bias.assign(p.known_floats(2), p.known_floats(2) + maps);
  step.takes_ending = true;
  if (weights != nullptr && (!p.has(2) || p.known(2) != nullptr))
    step.absorb = tiled ? &absorb_into_tiles : &absorb_maps;
  step.plan = plan;
  return {};
}

Status check_tensors(const Preparation& p, bool transposed, Index& groups) {
  for (std::size_t i = 0; i < p.reads(); ++i) PENSTOCK_TRY(p.only(i, {Type::f32}));
  groups = p.integer("group", 1);
  const Shape &x = p.shape(0), &w = p.shape(1);
  const bool fits = w.size() == x.size() && x.size() >= 3 && groups >= 1 && p.count(1) > 0;
  if (fits && w[0] % groups == 0 && (transposed ? w[0] : w[1] * groups) == x[1]) return {};
  return p.refuse("weights of shape " + text_of(w) + " do not fit an input of shape " + text_of(x) + " in " +
                  text_of(groups) + " groups");
}

[[gnu::cold]] Status prepare_conv(Preparation& p) {
  Index groups = 1;
  PENSTOCK_TRY(check_tensors(p, false, groups));
  const Shape &x = p.shape(0), &w = p.shape(1);
  const auto plan = std::make_shared<Convolution>();
  PENSTOCK_TRY(read_windows(p, {w.begin() + 2, w.end()}, plan->windows));
  plan->images = x[0], plan->groups = groups, plan->channels = w[1], plan->maps = w[0] / groups;
  if (p.known(1) == nullptr) return finish(p, plan, nullptr);
  Window &h = plan->windows.h, &wide = plan->windows.w;
  const Index rows = h.size, columns = wide.size;
  Index row = 0, column = 0;
  trim(h, row), trim(wide, column);
  AlignedVector<float> weights;
  for (Index i = 0; i < w[0] * w[1]; ++i) {
    for (Index k = 0; k < h.size; ++k) {
      const float* from = p.known_floats(1) + (i * rows + row + k) * columns + column;
      weights.insert(weights.end(), from, from + wide.size);
    }
  }
  return finish(p, plan, weights.data());
}

[[gnu::cold]] Status prepare_conv_transpose(Preparation& p) {
  Index groups = 1;
  PENSTOCK_TRY(check_tensors(p, true, groups));
  const Shape &x = p.shape(0), &w = p.shape(1);
  if (p.known(1) == nullptr) return p.unsupported("its weights depend on the inputs; supported: constants");
  const auto plan = std::make_shared<Convolution>();
  PENSTOCK_TRY(read_transposed_windows(p, {w.begin() + 2, w.end()}, plan->windows));
  plan->images = x[0], plan->groups = groups, plan->channels = w[0] / groups, plan->maps = w[1];
  // [channel of all, map of a group, places] -> [map of all, channel of a group, places backwards]
  const Index places = plan->places();
  AlignedVector<float> turned(static_cast<std::size_t>(p.count(1)));
  for (Index i = 0; i < p.count(1); ++i) {
    const Index place = i % places, map = i / places % plan->maps, channel = i / places / plan->maps;
    const Index of_all = channel / plan->channels * plan->maps + map;
    turned[(of_all * plan->channels + channel % plan->channels) * places + places - 1 - place] = p.known_floats(1)[i];
  }
  return finish(p, plan, turned.data());
}

}  // namespace

Operators convolution_operators() {
  static constexpr Operator operators[] = {
      {"Conv", prepare_conv, 2, 3},
      {"ConvTranspose", prepare_conv_transpose, 2, 3},
  };
  return operators;
}

}  // namespace penstock::network
