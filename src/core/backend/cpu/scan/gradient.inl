// Gradients from the gates of a scan layer to its input, weights and bias, for a piece of the batch small enough that
// the gates' gradients never leave the cache.
//
// Layouts, L lanes: dwx [G + K, ceil(H / L), capacity, L], with gradients of learnt vectors behind the gates (padding
// lanes are zero), x packed [ceil(I / 2L), capacity, 2L], weight panels [ceil(I / 2L), G * ceil(H / L) * L, 2L].

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

/// dx = dwx W for rows [begin, end) of the piece.
template <class Real>
void RunScanInputGradient(const ScanGradient<Real>& job, Index begin, Index end) {
  constexpr Index lanes = Lanes<Real>::lanes;
  PanelProduct<Real> product;
  product.a = job.dwx;
  product.a_stride = product.inner = lanes;
  product.blocks = job.gates * job.blocks;
  product.block_stride = job.capacity * lanes;
  product.columns = job.input;
  product.panels = job.weight_panels;
  product.c_row = job.dx_row;
  RowsTimesPanels(product, begin, end);
}

/// Adds to the gradients of weights and bias that belong to vectors of channels [begin, end) of (G + K) * ceil(H / L).
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
    if (job.weight_gradient == nullptr || gate >= job.gates) continue;
    for (Index i = 0; i < job.input; i += width) {
      const Real* x = job.x_packed + i * job.capacity;
      for (Index half = 0; half < count; half += rows) {
        Real* gradient = job.weight_gradient + (gate * job.hidden + channel + half) * job.input + i;
        TransposedTile<Real, rows>(job.cells, count - half, job.input - i, dwx + half, L::lanes, x, gradient,
                                   job.input);
      }
    }
  }
}

template <class Real>
std::size_t ScanGradientPanels(Index gates, Index input, Index hidden) {
  constexpr Index lanes = Lanes<Real>::lanes;
  return ProductPanels<Real>(gates * ((hidden + lanes - 1) / lanes * lanes), input);
}

template <class Real>
void PackScanGradient(Index gates, Index input, Index hidden, StoredWeights<Real> weight_ih, Real* packed) {
  constexpr Index lanes = Lanes<Real>::lanes;
  const Index padded = (hidden + lanes - 1) / lanes * lanes;
  FillProductPanels(gates * padded, input, packed, [&](Index k) {
    const Index gate = k / padded, channel = k % padded;
    return channel < hidden ? weight_ih.reals + (gate * hidden + channel) * input : nullptr;
  });
}
