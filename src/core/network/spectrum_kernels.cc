// Convolutions whose filters are those of a windowed Fourier transform: a fast transform (Stockham's, of radix 4) with
// a frame in each lane.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "network/spectrum_kernels.cc"

#include <limits>
#include <memory>
#include <numbers>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/kernels.h"
#include "network/spectrum.h"

#include "backend/cpu/every_target.inl"

#ifndef PENSTOCK_SPECTRUM_JOB
#define PENSTOCK_SPECTRUM_JOB

namespace penstock::network {

constexpr Index kMostLanes = 16;

/// The transform of as many real frames as a vector has lanes.
struct FrameTransform {
  Index size = 0, bins = 0;  ///< N, a power of two from 64; frequencies, up to N / 2 + 1.
  const float* constants;    ///< As constants_of() has them.
  const float* frames[kMostLanes];
  float sign = 1;  ///< 1: filters are minus sines; -1: sines.
  bool magnitudes = false;
  float* spare = nullptr;  ///< [2, N, lanes]
  float* c = nullptr;      ///< [2 bins, lanes]: products with cosines, then with sines; or [bins, lanes]: magnitudes.
};

struct SpectrumKernel {
  void (*run)(const FrameTransform& job) = nullptr;
  /// Copies c [maps, lanes] of some frames to rows of maps.
  void (*to_rows)(Index maps, const float* c, Index frames, float* const* rows) = nullptr;
  Index lanes = 0;
};

}  // namespace penstock::network

#endif

HWY_BEFORE_NAMESPACE();
namespace penstock::cpu::HWY_NAMESPACE {

namespace {

#include "backend/cpu/dense/panel_packing.inl"

using V = Simd;
using L = Lanes<float>;
using network::FrameTransform;

/// y [N, lanes] = the frames, times the window.
void LoadFrames(const FrameTransform& job, float* y) {
  for (Index n = 0; n < job.size; n += V::lanes) {
    V square[V::lanes];
    const V window = L::load(job.constants + n);
    for (Index lane = 0; lane < V::lanes; ++lane) square[lane] = L::load(job.frames[lane] + n) * window;
#if HWY_TARGET != HWY_SCALAR
    Transpose(square);
#endif
    for (Index i = 0; i < V::lanes; ++i) L::store(square[i], y + (n + i) * V::lanes);
  }
}

struct Complex {
  V re, im;

  HWY_INLINE Complex() = default;
  HWY_INLINE Complex(V a, V b) : re(a), im(b) {}
  static HWY_INLINE Complex load(const float* z, Index i) {
    return {L::load(z + 2 * i * V::lanes), L::load(z + (2 * i + 1) * V::lanes)};
  }
  HWY_INLINE void store(float* z, Index i) const {
    L::store(re, z + 2 * i * V::lanes);
    L::store(im, z + (2 * i + 1) * V::lanes);
  }
  /// Times factor[0] + i factor[1].
  HWY_INLINE Complex times(const float* factor) const {
    const V a(factor[0]), b(factor[1]);
    return {re * a - im * b, MulAdd(re, b, im * a)};
  }
  friend HWY_INLINE Complex operator+(Complex x, Complex y) { return {x.re + y.re, x.im + y.im}; }
  friend HWY_INLINE Complex operator-(Complex x, Complex y) { return {x.re - y.re, x.im - y.im}; }
};

/// A pass over `apart` interleaved transforms of n numbers each, which leaves four times as many of n / 4.
template <bool last>
void Pass(Index n, Index apart, const float* factors, const float* x, float* y) {
  const Index quarter = n / 4;
  for (Index p = 0; p < quarter; ++p, factors += 6) {
    for (Index q = 0; q < apart; ++q) {
      const auto read = [&](Index i) HWY_ATTR { return Complex::load(x, q + apart * (p + i * quarter)); };
      const Complex a = read(0), b = read(1), c = read(2), d = read(3);
      const Complex even = a + c, odd = b + d, low = a - c, high = b - d;
      const Complex turned(high.im, V(0.0f) - high.re);  // times -i
      const Index at = q + 4 * apart * p;
      (even + odd).store(y, at);
      const auto write = [&](Complex value, Index i)
                             HWY_ATTR { (last ? value : value.times(factors + 2 * (i - 1))).store(y, at + i * apart); };
      write(low + turned, 1);
      write(even - odd, 2);
      write(low - turned, 3);
    }
  }
}

/// Pairs of even and odd samples were transformed as complex numbers z [N / 2]: makes the frequencies of real frames.
void Unfold(const FrameTransform& job, const float* factors, const float* z) {
  const Index half = job.size / 2;
  const V sign(job.sign), two(2.0f);
  const auto put = [&](Index k, V re, V im) HWY_ATTR {
    if (k >= job.bins) return;
    if (job.magnitudes) return L::store(Sqrt(re * re + im * im), job.c + k * V::lanes);
    L::store(re, job.c + k * V::lanes);
    L::store(im * sign, job.c + (job.bins + k) * V::lanes);
  };
  const Complex first = Complex::load(z, 0), middle = Complex::load(z, half / 2);
  put(0, (first.re + first.im) * two, V(0.0f));
  put(half, (first.re - first.im) * two, V(0.0f));
  put(half / 2, middle.re * two, V(-2.0f) * middle.im);
  for (Index k = 1; k < half / 2; ++k) {
    const Complex a = Complex::load(z, k), b = Complex::load(z, half - k);
    const Complex even(a.re + b.re, a.im - b.im), odd(a.im + b.im, b.re - a.re);
    const Complex turned = odd.times(factors + 2 * k);
    put(k, even.re + turned.re, even.im + turned.im);
    put(half - k, even.re - turned.re, turned.im - even.im);
  }
}

void Run(const FrameTransform& job) {
  float *x = job.spare, *y = x + job.size * V::lanes;
  LoadFrames(job, x);
  const float* factors = job.constants + job.size;
  Index n = job.size / 2, apart = 1;
  for (; n >= 4; n /= 4, apart *= 4) {
    n == 4 ? Pass<true>(n, apart, factors, x, y) : Pass<false>(n, apart, factors, x, y);
    factors += n / 4 * 6;
    std::swap(x, y);
  }
  if (n == 2) {
    for (Index q = 0; q < apart; ++q) {
      const Complex a = Complex::load(x, q), b = Complex::load(x, q + apart);
      (a + b).store(y, q);
      (a - b).store(y, q + apart);
    }
    std::swap(x, y);
  }
  Unfold(job, factors, x);
}

void ToRows(Index maps, const float* c, Index frames, float* const* rows) {
  for (Index map = 0; map < maps; map += V::lanes) {
    const Index count = std::min<Index>(V::lanes, maps - map);
    V square[V::lanes];
    for (Index i = 0; i < V::lanes; ++i) square[i] = L::load(c + (map + std::min(i, count - 1)) * V::lanes);
#if HWY_TARGET != HWY_SCALAR
    Transpose(square);
#endif
    for (Index frame = 0; frame < frames; ++frame) L::store(square[frame], rows[frame] + map, count);
  }
}

}  // namespace

void FillSpectrum(network::SpectrumKernel& kernel) {
  static_assert(V::lanes <= network::kMostLanes);
  kernel = {&Run, &ToRows, V::lanes};
}

}  // namespace penstock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace penstock::cpu {

HWY_EXPORT(FillSpectrum);

static network::SpectrumKernel spectrum_in_use() {
  network::SpectrumKernel kernel;
  HWY_DYNAMIC_DISPATCH(FillSpectrum)(kernel);
  return kernel;
}

}  // namespace penstock::cpu

namespace penstock::network {

namespace {

constexpr Index kLeastSize = 64, kMostSize = 1 << 14;

struct Plan {
  SpectrumKernel kernel;
  FrameTransform transform;
  Window window;
  Index images = 1, columns = 0;  // of an image with its padding
  Index at_frames = 0;            // in the scratch, behind padded images
};

double turn(Index k, Index n, Index size) {
  return 2 * std::numbers::pi * static_cast<double>(k * n % size) / static_cast<double>(size);
}

/// Returns 1 if the second half of the filters are minus sines, -1 if they are sines, and 0 if these are other filters.
float sign_of(Index size, Index bins, const float* weights) {
  constexpr double close = 4 * std::numeric_limits<float>::epsilon();
  std::vector<double> cosines, sines;
  for (Index n = 0; n < size; ++n)
    cosines.push_back(std::cos(turn(1, n, size))), sines.push_back(std::sin(turn(1, n, size)));
  const auto fits = [&](Index map, const std::vector<double>& wave, float sign) {
    const Index k = map % bins;
    for (Index n = 0; n < size; ++n) {
      const double of_window = weights[n];
      const double expected = sign * of_window * wave[static_cast<std::size_t>(k * n % size)];
      if (!(std::abs(weights[map * size + n] - expected) <= close * std::abs(of_window))) return false;
    }
    return true;
  };
  const auto all_fit = [&](Index first, const std::vector<double>& wave, float sign) {
    for (Index map = first; map < first + bins; ++map) {
      if (!fits(map, wave, sign)) return false;
    }
    return true;
  };
  if (std::count(weights, weights + size, 0.0f) == size || !all_fit(0, cosines, 1)) return 0;
  return all_fit(bins, sines, -1) ? 1 : all_fit(bins, sines, 1) ? -1 : 0;
}

/// The halved window [N], the factors of each pass, and those that unfold the result.
void pack_constants(Index size, const float* window, AlignedVector<float>& packed) {
  for (Index n = 0; n < size; ++n) packed.push_back(window[n] / 2);
  const auto add = [&](Index k, Index n) {
    packed.push_back(static_cast<float>(std::cos(turn(1, k, n))));
    packed.push_back(static_cast<float>(-std::sin(turn(1, k, n))));
  };
  for (Index n = size / 2; n >= 4; n /= 4) {
    for (Index p = 0; p < n / 4; ++p) {
      for (Index i = 1; i < 4; ++i) add(i * p, n);
    }
  }
  for (Index k = 0; k < size / 4; ++k) add(k, size);
}

/// Frames of all images, and the maps of each.
struct Frames {
  Index begin, count, maps;
};

/// Copies c [maps, lanes] of some frames to [images, maps, frames].
void write_maps(const Step& step, const Memory& memory, const Plan& plan, const Frames& of, const float* c) {
  const Index out = plan.window.out, lanes = plan.kernel.lanes;
  for (Index lane = 0; lane < of.count;) {
    const Index image = (of.begin + lane) / out, frame = (of.begin + lane) % out;
    const Index together = std::min(out - frame, of.count - lane);
    float* const y = step.result(0, memory) + image * of.maps * out + frame;
    const auto copy = [&](auto frames) {
      for (Index map = 0; map < of.maps; ++map) std::copy_n(c + map * lanes + lane, frames, y + map * out);
    };
    together == 4 ? copy(std::integral_constant<Index, 4>()) : copy(together);
    lane += together;
  }
}

/// Copies them to [images, rows, maps], with zeros around.
void write_rows(const Step& step, const Memory& memory, const Plan& plan, const Frames& of, const float* c) {
  const auto [rows, before] = step.images.writes;
  const Index out = plan.window.out;
  float* to[kMostLanes];
  for (Index lane = 0; lane < of.count; ++lane) {
    const Index image = (of.begin + lane) / out, frame = (of.begin + lane) % out;
    float* const y = step.result(0, memory) + image * rows * of.maps;
    to[lane] = y + (before + frame) * of.maps;
    if (frame == 0) std::fill_n(y, before * of.maps, 0.0f);
    if (frame + 1 == out) std::fill_n(to[lane] + of.maps, (rows - before - out) * of.maps, 0.0f);
  }
  plan.kernel.to_rows(of.maps, c, of.count, to);
}

void run_spectrum(const Step& step, const Memory& memory) {
  const auto& plan = *static_cast<const Plan*>(step.plan.get());
  const Window& window = plan.window;
  const Index lanes = plan.kernel.lanes, all = plan.images * window.out;
  const Index maps = (step.images.has_magnitudes ? 1 : 2) * plan.transform.bins;
  const float* x = step.floats(0, memory);
  if (plan.at_frames > 0) {
    float* const padded = step.spare(memory);
    std::fill_n(padded, plan.images * plan.columns, 0.0f);
    const Index skipped = std::clamp<Index>(-window.before, 0, window.in);
    const Index first = std::clamp<Index>(window.before, 0, plan.columns);
    const Index copied = std::min(window.in - skipped, plan.columns - first);
    for (Index image = 0; image < plan.images; ++image) {
      std::copy_n(x + image * window.in + skipped, copied, padded + image * plan.columns + first);
    }
    x = padded;
  }
  FrameTransform job = plan.transform;
  job.constants = step.packed.data(), job.magnitudes = step.images.has_magnitudes;
  job.spare = step.spare(memory) + plan.at_frames, job.c = job.spare + 2 * job.size * lanes;
  for (Index begin = 0; begin < all; begin += lanes) {
    const Index count = std::min(lanes, all - begin);
    for (Index lane = 0; lane < lanes; ++lane) {
      const Index frame = begin + std::min(lane, count - 1);
      job.frames[lane] = x + frame / window.out * plan.columns + frame % window.out * window.stride;
    }
    plan.kernel.run(job);
    memory.kernels.unary(step.ending.op, maps * lanes, job.c, job.c, step.ending.alpha, step.ending.beta);
    step.images.writes.rows > 0 ? write_rows(step, memory, plan, {begin, count, maps}, job.c)
                                : write_maps(step, memory, plan, {begin, count, maps}, job.c);
  }
}

}  // namespace

bool prepare_spectrum(Preparation& p, const Windows& windows, const float* weights) {
  const Window& w = windows.w;
  const Shape& y = p.result(0).shape;
  const Index images = y[0], maps = y[1], size = w.size, all = images * w.out;
  const bool in_rows = p.extent(0, 1) == 1 && windows.in_rows();
  const bool is_power = size >= kLeastSize && size <= kMostSize && std::has_single_bit(static_cast<std::size_t>(size));
  const SpectrumKernel kernel = cpu::spectrum_in_use();
  if (!in_rows || !is_power || w.dilation != 1 || w.up != 1 || p.has(2)) return false;
  if (maps % 2 != 0 || maps > size + 2 || all == 0) return false;
  // Instructions for each sample of as many frames as lanes: of their transform, and of products with all filters. The
  // number of frames does not matter: a row of a batch has the same bits, however many there are.
  const Index of_transform = 8 + 2 * std::bit_width(static_cast<std::size_t>(size));
  const Index of_products = kernel.lanes * ((maps + kernel.lanes - 1) / kernel.lanes);
  const float sign = of_transform < of_products ? sign_of(size, maps / 2, weights) : 0;
  if (sign == 0) return false;
  const auto plan = std::make_shared<Plan>();
  plan->kernel = kernel, plan->window = w, plan->images = images;
  plan->transform.size = size, plan->transform.bins = maps / 2, plan->transform.sign = sign;
  plan->columns = w.in;
  if (w.before != 0 || w.after != 0) {
    plan->columns = (w.out - 1) * w.stride + size;
    if (!check_shape(Type::f32, {images, plan->columns}).ok()) return false;
    plan->at_frames = (images * plan->columns + 15) / 16 * 16;
  }
  pack_constants(size, weights, p.step.packed.own());
  const Index scratch = plan->at_frames + (2 * size + maps) * kernel.lanes;
  p.run(&run_spectrum, static_cast<std::size_t>(scratch) * sizeof(float));
  p.step.takes_ending = p.step.images.can_write_rows = true;
  p.step.images.is_spectrum = true;
  p.step.plan = plan;
  return true;
}

}  // namespace penstock::network
#endif  // HWY_ONCE
