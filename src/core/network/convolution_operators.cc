// Convolutions as products: of the weights with the input itself, which is padded so that each place in the window is
// the whole map at another offset; or, where there are few results, of windows with panels of the weights.

#include <algorithm>
#include <cstring>
#include <utility>

#include "network/contraction.h"
#include "network/preparation.h"
#include "network/window.h"

namespace penstock::network {

namespace {

/// Columns of a product at once: what a map of them takes stays in the first cache.
constexpr Index kChunk = 512;

struct Convolution {
  Index images = 1, groups = 1, channels = 1, maps = 1;  // of a group
  Windows windows;
  bool few = false;     // windows with panels
  bool padded = false;  // the input is copied first
  // Each channel is copied to a plane for each phase: rows and columns that a stride steps over together.
  std::vector<std::pair<Index, Index>> phases = {{0, 0}};
  Index rows = 0, columns = 0;  // of a plane
  std::vector<Index> offsets;   // of the channels and places of a window, in planes of a group
  Index at_results = 0;         // in the scratch, in floats

  Index places() const { return windows.h.size * windows.w.size; }
  Index inner() const { return channels * places(); }
  Index results() const { return windows.h.out * windows.w.out; }
  Index inputs() const { return windows.h.in * windows.w.in; }
  /// Results of a map, with the columns between its rows.
  Index flat() const { return (windows.h.out - 1) * columns + windows.w.out; }
  /// Results lie as they are computed.
  bool direct() const { return windows.h.out == 1 || columns == windows.w.out; }
  Index rows_at_once() const { return std::clamp<Index>(kChunk / columns, 1, windows.h.out); }
};

/// One row of a plane: columns of a phase, zeros where the input has none.
void fill_row(const Window& w, Index phase, Index columns, const float* x, float* y) {
  if (x == nullptr) return static_cast<void>(std::fill_n(y, columns, 0.0f));
  if (w.up > 1) {
    std::fill_n(y, columns, 0.0f);
    for (Index i = 0; i < w.in; ++i) {
      const Index at = i * w.up + w.before;
      if (at >= 0 && at < columns) y[at] = x[i];
    }
    return;
  }
  // Column c of the phase is element c * stride + phase - before of the input.
  const Index shift = w.before - phase;
  const Index begin = std::clamp<Index>(shift <= 0 ? 0 : (shift + w.stride - 1) / w.stride, 0, columns);
  const Index end = std::clamp<Index>((w.in + shift + w.stride - 1) / w.stride, begin, columns);
  std::fill_n(y, begin, 0.0f);
  const float* from = x + begin * w.stride - shift;
  if (w.stride == 1) {
    std::copy_n(from, end - begin, y + begin);
  } else {
    for (Index c = begin; c < end; ++c, from += w.stride) y[c] = *from;
  }
  std::fill_n(y + end, columns - end, 0.0f);
}

/// All channels of an image as planes.
void fill_planes(const Convolution& plan, const float* x, float* y) {
  const Window &h = plan.windows.h, &w = plan.windows.w;
  for (Index channel = 0; channel < plan.groups * plan.channels; ++channel, x += plan.inputs()) {
    for (const auto& [phase_h, phase_w] : plan.phases) {
      for (Index row = 0; row < plan.rows; ++row, y += plan.columns) {
        const Index at = row * h.stride + phase_h - h.before;
        const bool there = at >= 0 && at % h.up == 0 && at / h.up < h.in;
        fill_row(w, phase_w, plan.columns, there ? x + at / h.up * w.in : nullptr, y);
      }
    }
  }
}

void end(const Step& step, const Memory& memory, Index n, const float* x, float* y) {
  memory.kernels.unary(step.ending.op, n, x, y, step.ending.alpha, step.ending.beta);
}

/// The results of a group, some columns at a time. `job` has all but those.
void run_group(const Step& step, const Memory& memory, const Convolution& plan, Product job, const float* planes,
               float* y) {
  const Index out = plan.windows.w.out, results = plan.results();
  if (plan.direct()) {
    job.c_stride = results;
    for (Index begin = 0; begin < results; begin += kChunk) {
      job.columns = std::min(kChunk, results - begin);
      job.b = planes + begin, job.c = y + begin;
      memory.kernels.multiply(job);
      if (step.ending.op == Unary::none) continue;
      for (Index map = 0; map < plan.maps; ++map) {
        end(step, memory, job.columns, job.c + map * results, job.c + map * results);
      }
    }
    return;
  }
  const Index rows_at_once = plan.rows_at_once();
  job.c = step.spare(memory) + plan.at_results;
  job.c_stride = rows_at_once * plan.columns;
  for (Index row = 0; row < plan.windows.h.out; row += rows_at_once) {
    const Index rows = std::min(rows_at_once, plan.windows.h.out - row);
    job.columns = (rows - 1) * plan.columns + out;
    job.b = planes + row * plan.columns;
    memory.kernels.multiply(job);
    for (Index map = 0; map < plan.maps; ++map) {
      for (Index i = 0; i < rows; ++i) {
        end(step, memory, out, job.c + map * job.c_stride + i * plan.columns, y + map * results + (row + i) * out);
      }
    }
  }
}

const float* bias_of(const Step& step, const Memory& memory) {
  if (!step.bias.empty()) return step.bias.data();
  return step.reads.size() > 2 ? step.floats(2, memory) : nullptr;
}

void run_maps_at_offsets(const Step& step, const Memory& memory) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  const float* weights = step.packed.empty() ? step.floats(1, memory) : step.packed.data();
  const float* bias = bias_of(step, memory);
  const Index plane = plan.rows * plan.columns * static_cast<Index>(plan.phases.size());
  Product job;
  job.rows = plan.maps, job.inner = job.a_stride = plan.inner();
  job.offset = plan.offsets.data();
  for (Index image = 0; image < plan.images; ++image) {
    const float* planes = step.floats(0, memory) + image * plan.groups * plan.channels * plan.inputs();
    if (plan.padded) {
      fill_planes(plan, planes, step.spare(memory));
      planes = step.spare(memory);
    }
    for (Index group = 0; group < plan.groups; ++group) {
      job.a = weights + group * plan.maps * job.inner;
      job.row_bias = bias == nullptr ? nullptr : bias + group * plan.maps;
      run_group(step, memory, plan, job, planes + group * plan.channels * plane,
                step.result(0, memory) + (image * plan.groups + group) * plan.maps * plan.results());
    }
  }
}

/// Elements of a window's row that the input has: [begin, end) of `size`, from column `at` on.
void copy_window_row(const Window& w, Index at, const float* x, float* y) {
  if (w.dilation == 1 && at >= 0 && at + w.size <= w.in) {
    for (Index k = 0; k < w.size; ++k) y[k] = x[at + k];
    return;
  }
  for (Index k = 0; k < w.size; ++k) {
    const Index column = at + k * w.dilation;
    y[k] = column >= 0 && column < w.in ? x[column] : 0.0f;
  }
}

void run_windows(const Step& step, const Memory& memory) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  const Window &h = plan.windows.h, &w = plan.windows.w;
  const Index results = plan.results(), inner = plan.inner();
  float* windows = step.spare(memory);
  Product job;
  job.rows = results, job.columns = plan.maps, job.inner = job.a_stride = job.b_column = inner;
  job.b_row = memory.kernels.panel_columns;
  job.a = windows, job.b = step.packed.data();
  job.column_bias = bias_of(step, memory);
  job.c = windows + plan.at_results, job.c_stride = plan.maps;
  for (Index image = 0; image < plan.images; ++image) {
    const float* x = step.floats(0, memory) + image * plan.channels * plan.inputs();
    float* to = windows;
    for (Index i = 0; i < results; ++i) {
      const Index row = i / w.out * h.stride - h.before, column = i % w.out * w.stride - w.before;
      for (Index channel = 0; channel < plan.channels; ++channel) {
        for (Index k = 0; k < h.size; ++k, to += w.size) {
          const Index at = row + k * h.dilation;
          if (at < 0 || at >= h.in) {
            std::fill_n(to, w.size, 0.0f);
          } else {
            copy_window_row(w, column, x + channel * plan.inputs() + at * w.in, to);
          }
        }
      }
    }
    memory.kernels.multiply(job);
    end(step, memory, results * plan.maps, job.c, job.c);
    float* y = step.result(0, memory) + image * plan.maps * results;
    for (Index map = 0; map < plan.maps; ++map) {
      for (Index i = 0; i < results; ++i) y[map * results + i] = job.c[i * plan.maps + map];
    }
  }
}

/// The number of vector operations for each place of a window: in windows with panels, or over whole maps.
bool has_few_results(const Convolution& plan, Index lanes) {
  if (plan.groups != 1) return false;
  const Index of_windows = plan.results() * ((plan.maps + lanes - 1) / lanes);
  const Index of_maps = plan.maps * ((plan.flat() + lanes - 1) / lanes);
  return 4 * of_windows < 3 * of_maps;
}

/// Planes, phases and offsets.
void lay_out(Convolution& plan) {
  const Window &h = plan.windows.h, &w = plan.windows.w;
  plan.padded =
      h.stride * w.stride * h.up * w.up != 1 || h.before != 0 || w.before != 0 || h.after != 0 || w.after != 0;
  plan.rows = plan.padded ? h.out + (h.reach() - 1) / h.stride : h.in;
  plan.columns = plan.padded ? w.out + (w.reach() - 1) / w.stride : w.in;
  plan.phases.clear();
  std::vector<Index> places;
  for (Index i = 0; i < plan.places(); ++i) {
    const Index row = i / w.size * h.dilation, column = i % w.size * w.dilation;
    const std::pair phase(row % h.stride, column % w.stride);
    const auto found = std::ranges::find(plan.phases, phase);
    const Index number = found - plan.phases.begin();
    if (found == plan.phases.end()) plan.phases.push_back(phase);
    places.push_back((number * plan.rows + row / h.stride) * plan.columns + column / w.stride);
  }
  const Index plane = plan.rows * plan.columns * static_cast<Index>(plan.phases.size());
  for (Index channel = 0; channel < plan.channels; ++channel) {
    for (const Index place : places) plan.offsets.push_back(channel * plane + place);
  }
}

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
Status finish(Preparation& p, const std::shared_ptr<Convolution>& plan, const float* weights) {
  const Windows& windows = plan->windows;
  const Index maps = plan->groups * plan->maps;
  Shape shape = {plan->images, maps, windows.w.out};
  if (p.rank(0) == 4) shape.insert(shape.begin() + 2, windows.h.out);
  if (p.has(2) && (p.rank(2) != 1 || p.count(2) != maps)) {
    return p.refuse("the bias has shape " + text_of(p.shape(2)) + ", not [" + text_of(maps) + "]");
  }
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  Step& step = p.step;
  plan->rows = windows.h.out + windows.h.reach() - 1, plan->columns = windows.w.out + windows.w.reach() - 1;
  const Index panel = p.kernels().panel_columns, inner = plan->inner();
  plan->few = weights != nullptr && windows.w.up == 1 && windows.h.up == 1 && has_few_results(*plan, panel / 4);
  Index scratch = 0;
  if (plan->few) {
    StridedLoop loop;
    loop.add(inner, {maps, 1, 0, 0});
    loop.add(maps, {1, inner, 0, 0});
    pack_panels(weights, inner, maps, loop, panel, 1, step.packed.own());
    step.product.b_row = panel;
    PENSTOCK_TRY(check_shape(Type::f32, {plan->results(), inner}));
    plan->at_results = (plan->results() * inner + 15) / 16 * 16;
    scratch = plan->at_results + plan->results() * maps;
  } else {
    lay_out(*plan);
    const auto phases = static_cast<Index>(plan->phases.size());
    PENSTOCK_TRY(check_shape(Type::f32, {plan->groups * plan->channels, phases, plan->rows, plan->columns}));
    PENSTOCK_TRY(check_shape(Type::f32, {plan->maps, plan->rows_at_once(), plan->columns}));
    const Index plane = plan->rows * plan->columns * phases;
    if (plan->padded) scratch = (plan->groups * plan->channels * plane + 15) / 16 * 16;
    plan->at_results = scratch;
    if (!plan->direct()) scratch += plan->maps * plan->rows_at_once() * plan->columns;
    if (weights != nullptr) step.packed.own().assign(weights, weights + maps * inner);
  }
  p.run(plan->few ? &run_windows : &run_maps_at_offsets, static_cast<std::size_t>(scratch) * sizeof(float));
  if (p.known(2) != nullptr) step.bias.assign(p.known_floats(2), p.known_floats(2) + maps);
  step.takes_ending = true;
  if (weights != nullptr && (!p.has(2) || p.known(2) != nullptr)) step.absorb = &absorb_maps;
  step.plan = plan;
  return {};
}

/// Leaves out the places of windows that lie in the padding of every result.
void trim(Window& window, Index& first) {
  for (; window.size > 1 && (window.out - 1) * window.stride < window.before; ++first) {
    --window.size, window.before -= window.dilation;
  }
  for (; window.size > 1 && (window.size - 1) * window.dilation - window.before >= window.in; --window.size) {
    window.after -= window.dilation;
  }
}

Status check_tensors(const Preparation& p, Index& groups) {
  for (std::size_t i = 0; i < p.reads(); ++i) PENSTOCK_TRY(p.only(i, {Type::f32}));
  groups = p.integer("group", 1);
  if (p.rank(1) != p.rank(0) || p.rank(0) < 3 || groups < 1 || p.count(1) == 0) {
    return p.refuse("weights of shape " + text_of(p.shape(1)) + " do not fit an input of shape " + text_of(p.shape(0)) +
                    " in " + text_of(groups) + " groups");
  }
  return {};
}

Status prepare_conv(Preparation& p) {
  Index groups = 1;
  PENSTOCK_TRY(check_tensors(p, groups));
  const Shape &x = p.shape(0), &w = p.shape(1);
  if (w[1] * groups != x[1] || w[0] % groups != 0) {
    return p.refuse("weights of shape " + text_of(w) + " do not fit an input of shape " + text_of(x) + " in " +
                    text_of(groups) + " groups");
  }
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

Status prepare_conv_transpose(Preparation& p) {
  Index groups = 1;
  PENSTOCK_TRY(check_tensors(p, groups));
  const Shape &x = p.shape(0), &w = p.shape(1);
  if (w[0] != x[1] || w[0] % groups != 0) {
    return p.refuse("weights of shape " + text_of(w) + " do not fit an input of shape " + text_of(x) + " in " +
                    text_of(groups) + " groups");
  }
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

// Pools -----------------------------------------------------------------------------------------------------------

struct Pool {
  Windows windows;
  bool averages = false, counts_padding = false;
};

/// The part of a window that the input has.
void there(const Window& w, Index result, Index& begin, Index& end) {
  const Index first = result * w.stride - w.before;
  begin = first < 0 ? (-first + w.dilation - 1) / w.dilation : 0;
  end = std::clamp<Index>((w.in - first + w.dilation - 1) / w.dilation, begin, std::max(begin, w.size));
}

/// Places of a window that padding has, but nothing behind it.
Index counted(const Window& w, Index result) {
  const Index first = result * w.stride, rest = w.in + w.before + w.after - first;
  return std::clamp<Index>((rest + w.dilation - 1) / w.dilation, 0, w.size);
}

/// Pools the columns of x to a row of results. For place k of the window, results [begin, end) have a column.
void pool_row(const Pool& pool, const Kernels& kernels, const float* x, float* y) {
  const Window& w = pool.windows.w;
  const Binary join = pool.averages ? Binary::add : Binary::maximum;
  std::fill_n(y, w.out, pool.averages ? 0.0f : -HUGE_VALF);
  for (Index k = 0; k < w.size; ++k) {
    const Index shift = k * w.dilation - w.before;  // column c reads element c * stride + shift
    const Index begin = shift < 0 ? std::min(w.out, (w.stride - 1 - shift) / w.stride) : 0;
    const Index end = std::clamp<Index>((w.in - shift + w.stride - 1) / w.stride, begin, w.out);
    if (begin == end) continue;
    const float* from = x + begin * w.stride + shift;
    if (w.stride == 1) {
      kernels.binary(join, end - begin, y + begin, 1, from, 1, y + begin);
    } else {
      for (Index c = begin; c < end; ++c, from += w.stride) {
        if (pool.averages) {
          y[c] += *from;
        } else if (*from > y[c] || *from != *from) {
          y[c] = *from;
        }
      }
    }
  }
}

/// Along rows first, then along columns.
void run_pool(const Step& step, const Memory& memory) {
  const auto& pool = *static_cast<const Pool*>(step.plan.get());
  const Window &h = pool.windows.h, &w = pool.windows.w;
  const Binary join = pool.averages ? Binary::add : Binary::maximum;
  const float* x = step.floats(0, memory);
  float *rows = step.spare(memory), *y = step.result(0, memory);
  for (Index map = 0; map < step.n[0]; ++map) {
    for (Index row = 0; row < h.in; ++row, x += w.in) pool_row(pool, memory.kernels, x, rows + row * w.out);
    for (Index row = 0; row < h.out; ++row, y += w.out) {
      Index top = 0, bottom = 0;
      there(h, row, top, bottom);
      std::fill_n(y, w.out, pool.averages ? 0.0f : -HUGE_VALF);
      for (Index i = top; i < bottom; ++i) {
        const float* from = rows + (row * h.stride - h.before + i * h.dilation) * w.out;
        memory.kernels.binary(join, w.out, y, 1, from, 1, y);
      }
      for (Index column = 0; pool.averages && column < w.out; ++column) {
        Index left = 0, right = 0;
        there(w, column, left, right);
        const Index all = pool.counts_padding ? counted(h, row) * counted(w, column) : (bottom - top) * (right - left);
        y[column] /= static_cast<float>(all);
      }
    }
  }
}

Status prepare_pool(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  const auto pool = std::make_shared<Pool>();
  PENSTOCK_TRY(read_windows(p, {}, pool->windows));
  pool->averages = p.variant() != 0;
  pool->counts_padding = p.integer("count_include_pad", 0) != 0;
  Shape shape = p.shape(0);
  shape.back() = pool->windows.w.out;
  if (p.rank(0) == 4) shape[2] = pool->windows.h.out;
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  const Index rows = pool->windows.h.in * pool->windows.w.out;
  PENSTOCK_TRY(check_shape(Type::f32, {rows}));
  p.run(&run_pool, static_cast<std::size_t>(rows) * sizeof(float)).n = {shape[0] * shape[1]};
  p.step.plan = pool;
  return {};
}

}  // namespace

Operators convolution_operators() {
  static constexpr Operator operators[] = {
      {"Conv", prepare_conv, 2, 3},
      {"ConvTranspose", prepare_conv_transpose, 2, 3},
      {"MaxPool", prepare_pool, 1, 1, 0},
      {"AveragePool", prepare_pool, 1, 1, 1},
  };
  return operators;
}

}  // namespace penstock::network
