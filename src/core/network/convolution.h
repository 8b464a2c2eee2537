#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "network/preparation.h"
#include "network/transpose.h"
#include "network/window.h"

namespace penstock::network {

/// Columns of a product at once: what a map of them takes stays in the first cache.
constexpr Index kChunk = 512;
/// Planes of at most so many floats keep their zeros from run to run: frames of streams are copied sooner so.
constexpr Index kFloatsOfZeros = 1 << 14;
/// Planes of so many floats stay in the second-level cache: larger ones are made for some rows of results at a time.
constexpr Index kFloatsOfPlanes = 96 << 10;
/// Windows of a product at once: a few tiles of rows.
constexpr Index kWindowsAtOnce = 24;
/// The least number of images whose windows fill a tile of rows.
constexpr Index kImagesInPlace = 6;

/// What a step of a convolution needs to know: its Step::plan.
struct Convolution {
  Index images = 1, groups = 1, channels = 1, maps = 1;  // of a group
  Windows windows;
  bool few = false;        // windows with panels
  bool padded = false;     // the input is copied first
  bool has_zeros = false;  // around the input, from run to run
  // Each channel is copied to a plane for each phase: rows and columns that a stride steps over together.
  std::vector<std::pair<Index, Index>> phases = {{0, 0}};
  Index rows = 0, columns = 0;         // of a plane
  Index block = 1;                     // rows of results whose planes are there at once
  std::vector<Index> offsets;          // of the channels and places of a window, in planes of a group
  Index at_image = 0, at_results = 0;  // in the scratch, in floats; the former of windows: an image by columns
  Index images_at_once = 1;            // of windows
  Index tile_rows = 0;                 // at once; 0: there are no tiles
  Index tile_stride = 0;               // of so many floats

  Index places() const { return windows.h.size * windows.w.size; }
  Index inner() const { return channels * places(); }
  Index results() const { return windows.h.out * windows.w.out; }
  Index inputs() const { return windows.h.in * windows.w.in; }
  /// Results of a map, with the columns between its rows.
  Index flat() const { return (windows.h.out - 1) * columns + windows.w.out; }
  /// Windows with panels are parts of images by columns.
  bool in_place() const {
    return !kIsRuntime && windows.in_rows() && windows.w.dilation == 1 && images >= kImagesInPlace;
  }
  /// Results lie as they are computed.
  bool direct() const { return windows.h.out == 1 || columns == windows.w.out; }
  /// Each group is a product of one row.
  bool single_rows() const { return groups > 1 && maps == 1 && direct() && inner() <= kPartOfProduct; }
  Index rows_at_once() const { return std::clamp<Index>(kChunk / columns, 1, windows.h.out); }
  Index blocks() const { return (windows.h.out + block - 1) / block; }
};

/// Applies the function that ends a step to n results.
inline void apply_ending(const Step& step, const Memory& memory, Index n, const float* x, float* y) {
  memory.kernels.unary(step.ending.op, n, x, y, step.ending.alpha, step.ending.beta);
}

/// Returns the bias of all maps, or null.
inline const float* bias_of(const Step& step, const Memory& memory) {
  if (!step.bias.empty()) return step.bias.data();
  return step.reads.size() > 2 ? step.floats(2, memory) : nullptr;
}

/// An image [channels, H, W] as [H, columns, channels]: those that windows read, with zeros where the input has none.
inline void lay_by_columns(const Convolution& plan, const float* x, float* y) {
  const Window& w = plan.windows.w;
  const Index begin = std::clamp<Index>(w.before, 0, plan.columns);
  const Index end = std::clamp<Index>(w.in + w.before, begin, plan.columns);
  for (Index row = 0; row < plan.windows.h.in; ++row, x += w.in, y += plan.columns * plan.channels) {
    std::fill_n(y, begin * plan.channels, 0.0f);
    transpose(plan.channels, end - begin, x + begin - w.before, plan.inputs(), y + begin * plan.channels);
    std::fill_n(y + end * plan.channels, (plan.columns - end) * plan.channels, 0.0f);
  }
}

/// A product of windows with panels of the weights.
inline Product product_of_windows(const Step& step, const Memory& memory, const Convolution& plan) {
  Product job;
  job.columns = job.c_stride = plan.maps, job.inner = job.a_stride = job.b_column = plan.inner();
  job.a = step.spare(memory), job.b = step.packed.data(), job.b_row = memory.kernels.panel_columns;
  job.column_bias = bias_of(step, memory), job.c = step.spare(memory) + plan.at_results;
  return job;
}

/// Windows in place, where Convolution::in_place() says so. The C runtime does not have this function.
void run_windows_in_place(const Step& step, const Memory& memory);

}  // namespace penstock::network
