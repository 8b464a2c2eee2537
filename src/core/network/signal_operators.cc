// Fourier transforms, as products with matrices that are made once, and windows.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "network/contraction.h"
#include "network/preparation.h"

namespace penstock::network {

namespace {

/// A transform of `length` elements to `bins`.
struct Transform {
  Index used = 0, length = 0, bins = 0;  ///< Elements beyond `used` are zero.
  bool complex = false, inverse = false;
  const float* window = nullptr;  ///< [used], or null
  /// Numbers of a bin. 1: it is real, and stands for the elements beyond `used`, which mirror the others.
  Index numbers = 2;
};

/// [used, 1 or 2, bins, numbers].
Status matrix_of(const Preparation& p, const Transform& transform, std::vector<float>& matrix) {
  const Index parts = transform.complex ? 2 : 1;
  PENSTOCK_TRY(check_shape(Type::f32, {transform.used, parts, transform.bins, transform.numbers}));
  if (transform.used * transform.bins > (Index{1} << 26)) return p.unsupported("over more than 8192 elements");
  matrix.resize(static_cast<std::size_t>(transform.used * parts * transform.bins * transform.numbers));
  float* out = matrix.data();
  for (Index n = 0; n < transform.used; ++n) {
    for (Index part = 0; part < parts; ++part) {
      for (Index k = 0; k < transform.bins; ++k) {
        const double turn = static_cast<double>(n * k % transform.length) / static_cast<double>(transform.length);
        const double angle = 2 * std::numbers::pi * turn * (transform.inverse ? 1 : -1);
        double scale = transform.inverse ? 1.0 / static_cast<double>(transform.length) : 1.0;
        if (transform.numbers == 1 && n > 0 && 2 * n != transform.length) scale *= 2;
        if (transform.window != nullptr) scale *= static_cast<double>(transform.window[n]);
        const double real = std::cos(angle) * scale, imaginary = std::sin(angle) * scale;
        *out++ = static_cast<float>(part == 0 ? real : -imaginary);
        if (transform.numbers == 2) *out++ = static_cast<float>(part == 0 ? imaginary : real);
      }
    }
  }
  return {};
}

/// The letters of a transform: `n` moves so far in the input and `k` in the result.
void add_transform(const Transform& t, Index n, Index k, std::vector<Letter>& letters) {
  const Index parts = t.complex ? 2 : 1;
  letters.push_back({t.used, n, parts * t.bins * t.numbers, 0, true, true, false});
  letters.push_back({parts, 1, t.bins * t.numbers, 0, true, true, false});
  letters.push_back({t.bins, 0, t.numbers, k, false, true, true});
  letters.push_back({t.numbers, 0, 1, 1, false, true, true});
}

Status one_integer(const Preparation& p, std::size_t i, std::string_view what, Index otherwise, Index& value) {
  value = otherwise;
  if (!p.has(i)) return {};
  std::vector<Index> values;
  PENSTOCK_TRY(p.known_integers(i, what, values));
  if (values.size() != 1) return p.refuse(std::string(what) + " is not one number");
  value = values[0];
  return {};
}

Status prepare_dft(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  Index axis = 0, length = 0;
  PENSTOCK_TRY(one_integer(p, 2, "'axis'", -2, axis));
  const Index rank = p.rank(0);
  if (!normalise_axis(axis, rank) || axis == rank - 1 || p.extent(0, -1) < 1 || p.extent(0, -1) > 2) {
    return p.refuse("an input of shape " + text_of(p.shape(0)) + " has no real or complex numbers along that axis");
  }
  const Index extent = p.shape(0)[axis];
  const bool one_sided = p.integer("onesided", 0) != 0, inverse = p.integer("inverse", 0) != 0;
  const bool mirrors = one_sided && inverse;
  PENSTOCK_TRY(one_integer(p, 1, "'dft_length'", mirrors ? 2 * extent - 2 : extent, length));
  if (length < 1 || length > (Index{1} << 24)) return p.refuse("'dft_length' is " + text_of(length));
  const Index half = length / 2 + 1;
  Transform t{std::min(mirrors ? half : length, extent), length, one_sided && !inverse ? half : length};
  t.complex = p.extent(0, -1) == 2, t.inverse = inverse, t.numbers = mirrors ? 1 : 2;
  std::vector<float> matrix;
  PENSTOCK_TRY(matrix_of(p, t, matrix));
  Shape shape = p.shape(0);
  shape[axis] = t.bins, shape.back() = t.numbers;
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  const Shape from = strides_of(p.shape(0)), to = strides_of(shape);
  std::vector<Letter> letters;
  for (Index i = 0; i + 1 < rank; ++i) {
    if (i != axis) letters.push_back({shape[i], from[i], 0, to[i], true, false, true});
  }
  add_transform(t, from[axis], to[axis], letters);
  contract(p, letters, matrix.data());
  return {};
}

Status prepare_stft(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  Index step = 0, length = 0;
  PENSTOCK_TRY(one_integer(p, 1, "'frame_step'", 0, step));
  PENSTOCK_TRY(one_integer(p, 3, "'frame_length'", p.has(2) ? p.count(2) : 0, length));
  const Shape& x = p.shape(0);
  if (x.size() < 2 || x.size() > 3 || (x.size() == 3 && x[2] != 1)) {
    return p.unsupported("of a signal of shape " + text_of(x) + "; supported: [batch, length] and [batch, length, 1]");
  }
  if (step < 1 || length < 1 || length > x[1]) {
    return p.refuse("frames of " + text_of(length) + " at steps of " + text_of(step) + " do not fit a signal of " +
                    text_of(x[1]));
  }
  if (p.has(2) && (p.known(2) == nullptr || p.type(2) != Type::f32 || p.count(2) != length)) {
    return p.unsupported("its window must be a constant of as many floats as a frame has");
  }
  const bool one_sided = p.integer("onesided", 1) != 0;
  const Transform t{length, length, one_sided ? length / 2 + 1 : length, false, false, p.known_floats(2)};
  std::vector<float> matrix;
  PENSTOCK_TRY(matrix_of(p, t, matrix));
  const Index frames = (x[1] - length) / step + 1;
  PENSTOCK_TRY(p.write(0, Type::f32, {x[0], frames, t.bins, 2}));
  std::vector<Letter> letters = {{x[0], x[1], 0, frames * t.bins * 2, true, false, true},
                                 {frames, step, 0, t.bins * 2, true, false, true}};
  add_transform(t, 1, 2, letters);
  contract(p, letters, matrix.data());
  return {};
}

enum Form : int { kHann, kHamming, kBlackman };

void run_window(const Step& step, const Memory& memory) {
  constexpr double weights[][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
  const double* w = weights[step.variant];
  const auto period = static_cast<double>(std::max<Index>(step.n[0] - (step.n[1] != 0 ? 0 : 1), 1));
  for (Index i = 0; i < step.n[0]; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / period;
    set_real(step.write_type(0), step.write(0, memory), i, w[0] - w[1] * std::cos(angle) + w[2] * std::cos(2 * angle));
  }
}

Status prepare_window(Preparation& p) {
  Index size = 0;
  PENSTOCK_TRY(one_integer(p, 0, "'size'", 0, size));
  const Index number = p.integer("output_datatype", 1);
  if (number != 1 && number != 11) return p.unsupported("of type number " + text_of(number) + "; supported: 1 and 11");
  PENSTOCK_TRY(p.write(0, number == 1 ? Type::f32 : Type::f64, {size}));
  p.run(&run_window).n = {size, p.integer("periodic", 1)};
  p.step.variant = p.variant();
  return {};
}

}  // namespace

Operators signal_operators() {
  static constexpr Operator operators[] = {
      {"DFT", prepare_dft, 1, 3},
      {"STFT", prepare_stft, 2, 4},
      {"HannWindow", prepare_window, 1, 1, kHann},
      {"HammingWindow", prepare_window, 1, 1, kHamming},
      {"BlackmanWindow", prepare_window, 1, 1, kBlackman},
  };
  return operators;
}

}  // namespace penstock::network
