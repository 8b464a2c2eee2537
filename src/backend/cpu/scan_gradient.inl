// What flows back from the gates of a scan layer to its input, weights and bias, for a piece of the batch small enough
// that the gates' gradients never leave the cache.
//
// Layouts, L lanes: dwx [G, ceil(H / L), capacity, L] (padding lanes are zero), x packed [ceil(I / 2L), capacity, 2L],
// weight panels [ceil(I / 2L), G * ceil(H / L) * L, 2L].

template <class Real>
constexpr Index kGradientWidth = 2 * Lanes<Real>::lanes;

/// Rows [begin, end) of the piece into their places in x packed.
template <class Real>
void PackScanInput(const ScanGradient<Real>& job, Index begin, Index end) {
  using L = Lanes<Real>;
  constexpr Index width = kGradientWidth<Real>;
  for (Index cell = begin; cell < end; ++cell) {
    const Real* row = job.x_row[cell];
    Real* to = job.x_packed + cell * width;
    for (Index i = 0; i < job.input; i += width, to += job.capacity * width) {
      for (Index v = 0; v < width; v += L::lanes) {
        const Index count = std::clamp<Index>(job.input - i - v, 0, L::lanes);
        L::store(count > 0 ? L::load(row + i + v, count) : typename L::V(0), to + v);
      }
    }
  }
}

/// dx of rows [first, first + rows) for inputs [i, i + 2L).
template <class Real, int rows>
HWY_INLINE void InputGradientTile(const ScanGradient<Real>& job, Index first, Index i, const Real* panel) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const Index vectors = job.gates * job.blocks;
  V acc[rows][2];
  for (int m = 0; m < rows; ++m) acc[m][0] = acc[m][1] = V(0);
  const Real* dwx = job.dwx + first * L::lanes;
  for (Index v = 0; v < vectors; ++v, dwx += job.capacity * L::lanes, panel += L::lanes * kGradientWidth<Real>) {
    AccumulateRows<Real, rows, 2>(dwx, L::lanes, L::lanes, panel, acc);
  }
  for (int m = 0; m < rows; ++m) {
    for (int w = 0; w < 2; ++w) {
      const Index at = i + w * L::lanes, count = std::min<Index>(L::lanes, job.input - at);
      if (count > 0) L::store(acc[m][w], job.dx_row[first + m] + at, count);
    }
  }
}

/// dx = dwx W for rows [begin, end) of the piece.
template <class Real>
void RunScanInputGradient(const ScanGradient<Real>& job, Index begin, Index end) {
  constexpr Index width = kGradientWidth<Real>;
  const Index panel_size = job.gates * job.blocks * Lanes<Real>::lanes * width;
  for (Index i = 0; i < job.input; i += width) {
    const Real* panel = job.weight_panels + i / width * panel_size;
    ForEachTile<MaxStridedRows<Real, 2>()>(begin, end, [&](auto rows, Index first) HWY_ATTR {
      InputGradientTile<Real, decltype(rows)::value>(job, first, i, panel);
    });
  }
}

/// Half a vector of channels by 2L inputs of dW += dwx^T x; `dwx` and `x` point at the first row of the piece.
template <class Real, int rows>
HWY_INLINE void WeightGradientTile(Index cells, const Real* dwx, const Real* x, Index count, Index input_left,
                                   Real* gradient, Index input) {
  using L = Lanes<Real>;
  using V = typename L::V;
  V acc[rows][2];
  for (int m = 0; m < rows; ++m) acc[m][0] = acc[m][1] = V(0);
  for (Index cell = 0; cell < cells; ++cell, dwx += L::lanes, x += 2 * L::lanes) {
    const V b[2] = {L::load(x), L::load(x + L::lanes)};
    for (int m = 0; m < rows; ++m) {
      const V a(dwx[m]);
      acc[m][0] = MulAdd(a, b[0], acc[m][0]);
      acc[m][1] = MulAdd(a, b[1], acc[m][1]);
    }
  }
  for (int m = 0; m < std::min<Index>(rows, count); ++m) {
    for (int w = 0; w < 2; ++w) {
      const Index n = std::min<Index>(L::lanes, input_left - w * L::lanes);
      Real* to = gradient + m * input + w * L::lanes;
      if (n > 0) L::store(L::load(to, n) + acc[m][w], to, n);
    }
  }
}

/// Adds to the gradients of weights and bias that belong to vectors of channels [begin, end) of G * ceil(H / L).
template <class Real>
void RunScanWeightGradient(const ScanGradient<Real>& job, Index begin, Index end) {
  using L = Lanes<Real>;
  using V = typename L::V;
  constexpr Index width = kGradientWidth<Real>;
  constexpr int rows = L::lanes > 1 ? L::lanes / 2 : 1;
  for (Index vector = begin; vector < end; ++vector) {
    const Index gate = vector / job.blocks, channel = vector % job.blocks * L::lanes;
    const Index count = std::min<Index>(L::lanes, job.hidden - channel);
    const Real* dwx = job.dwx + vector * job.capacity * L::lanes;
    if (job.bias_gradient != nullptr) {
      V sum(0);
      for (Index cell = 0; cell < job.cells; ++cell) sum = sum + L::load(dwx + cell * L::lanes);
      Real* to = job.bias_gradient + gate * job.hidden + channel;
      L::store(L::load(to, count) + sum, to, count);
    }
    if (job.weight_gradient == nullptr) continue;
    for (Index i = 0; i < job.input; i += width) {
      const Real* x = job.x_packed + i * job.capacity;
      for (Index half = 0; half < count; half += rows) {
        WeightGradientTile<Real, rows>(job.cells, dwx + half, x, count - half, job.input - i,
                                       job.weight_gradient + (gate * job.hidden + channel + half) * job.input + i,
                                       job.input);
      }
    }
  }
}

template <class Real>
std::size_t ScanGradientPanels(Index gates, Index input, Index hidden) {
  constexpr Index lanes = Lanes<Real>::lanes, width = kGradientWidth<Real>;
  return static_cast<std::size_t>((input + width - 1) / width * width * gates * ((hidden + lanes - 1) / lanes * lanes));
}

template <class Real>
void PackScanGradient(Index gates, Index input, Index hidden, const Real* weight_ih, Real* packed) {
  constexpr Index lanes = Lanes<Real>::lanes, width = kGradientWidth<Real>;
  const Index padded = (hidden + lanes - 1) / lanes * lanes;
  for (Index first = 0; first < input; first += width) {
    for (Index gate = 0; gate < gates; ++gate) {
      for (Index c = 0; c < padded; ++c) {
        for (Index i = first; i < first + width; ++i) {
          *packed++ = c < hidden && i < input ? weight_ih[(gate * hidden + c) * input + i] : Real(0);
        }
      }
    }
  }
}
