// Convolutions of many images that multiply windows where they lie. The C runtime, whose streams are single, does not
// have this file.

#include "network/convolution.h"

namespace penstock::network {

namespace {

/// Multiplies each window of all images. Leaves out the zeros of the padding: behind the input all, in front of it
/// whole parts of sums, so that finite weights give the same bits.
void multiply_in_place(const Memory& memory, const Convolution& plan, Product job) {
  const Window& w = plan.windows.w;
  const Product all = job;
  job.a_stride = plan.columns * plan.channels;
  for (Index i = 0; i < w.out; ++i) {
    const Index before = std::clamp<Index>(w.before - i * w.stride, 0, w.size);
    const Index end = std::clamp<Index>(w.in + w.before - i * w.stride, before, w.size);
    job.begin = before * plan.channels / kPartOfProduct * kPartOfProduct;
    // One part stays one, and several stay several: the place of the bias in the sum depends on it.
    const Index least = std::min(all.inner, kPartOfProduct + 1);
    job.a = all.a + i * w.stride * plan.channels, job.inner = std::max(end * plan.channels, least);
    job.c = all.c + i * plan.maps;
    for (Index row = 0; job.begin > 0 && row < job.rows; ++row) {
      float* const c = job.c + row * job.c_stride;
      job.column_bias == nullptr ? std::fill_n(c, plan.maps, 0.0f) : std::copy_n(job.column_bias, plan.maps, c);
    }
    memory.kernels.multiply(job);
  }
}

}  // namespace

/// Images may be there as rows of channels, or are written so.
void run_windows_in_place(const Step& step, const Memory& memory) {
  const auto& plan = *static_cast<const Convolution*>(step.plan.get());
  const auto [rows, before] = step.images.writes;
  const Index results = plan.results() * plan.maps, of_image = rows > 0 ? rows * plan.maps : results;
  const Index skipped = before * plan.maps;
  Product job = product_of_windows(step, memory, plan);
  job.c_stride = of_image;
  const float* x = step.floats(0, memory);
  float* y = step.result(0, memory);
  for (Index begin = 0; begin < plan.images; begin += plan.images_at_once) {
    job.rows = std::min(plan.images_at_once, plan.images - begin);
    if (step.images.has_rows) {
      job.a = x, x += job.rows * plan.columns * plan.channels;
    } else {
      float* to = step.spare(memory);
      for (Index i = 0; i < job.rows; ++i, x += plan.channels * plan.inputs(), to += plan.columns * plan.channels) {
        lay_by_columns(plan, x, to);
      }
    }
    if (rows > 0) job.c = y + skipped;
    multiply_in_place(memory, plan, job);
    apply_ending(step, memory, job.rows * of_image, job.c - skipped, job.c - skipped);
    for (Index i = 0; i < job.rows; ++i, y += of_image) {
      if (rows > 0) {
        std::fill_n(y, skipped, 0.0f);
        std::fill_n(y + skipped + results, of_image - skipped - results, 0.0f);
      } else {
        transpose(plan.results(), plan.maps, job.c + i * of_image, plan.maps, y);
      }
    }
  }
}

}  // namespace penstock::network
