// A scan cell with its input product. The sums of a tile (steps x one vector of channels x all gates) stay in registers
// throughout the product. A function of the cell then takes them from the first-level cache into the recurrence. Gates
// are never written elsewhere unless training asks for them.

/// Sites of a tile: a multiple of them is computed at a time. Nine of three gates would fill the registers to the last,
/// and g++ then keeps two sums in memory throughout the innermost loop: a tenth of the time in floats, a quarter in
/// bfloat16.
template <class Panel, int G>
constexpr int ScanTileRows = PanelTraits<Panel>::padding == 32 ? 32
                                                               : std::min(24 / G, MaxStridedRows<RealOf<Panel>, G>());

/// Destination of one step of one row.
template <class Real>
struct ScanSite {
  Real* y;                    // [H]
  std::uint16_t* y_bf16;      // [H], instead of y
  Real* wx;                   // [G, H] or null
  std::uint16_t* rounded_wx;  // the same in bfloat16, or null
  Real* carry;                // [H] of its row
  bool restarts;              // the state starts again before it
  const Real* restart;        // [H] with this one, or null for zeros
};

/// Steps whose inputs lie evenly spaced in memory, in the order in which they are computed.
template <class Real>
struct ScanSites {
  Index first = 0, stride = 0, count = 0;  // first: of x
  ScanSite<Real> site[kScanSites];
};

/// Collects up to `most` sites from (slot, step) on and moves that position behind them.
template <class Real>
void NextSites(const ScanLayer<Real>& job, const ScanLayerPart& part, Index most, Index& slot, Index& step,
               ScanSites<Real>& sites) {
  const RowPlan& plan = job.plan;
  sites.count = 0;
  while (slot < part.slot_end && sites.count < most) {
    if (step >= std::min(part.end, plan.length[slot])) {
      ++slot;
      step = part.begin;
      continue;
    }
    const Index row = plan.row_of[slot], t = plan.time(slot, step);
    const Index x = job.x_map.at(row, t);
    if (sites.count == 0) sites.first = x;
    if (sites.count == 1) sites.stride = x - sites.first;
    if (x != sites.first + sites.count * sites.stride && sites.count > 0) return;
    ScanSite<Real>& site = sites.site[sites.count++];
    site.y = job.y.data == nullptr ? nullptr : job.y.at(row, t);
    site.y_bf16 = job.y_bf16.data == nullptr ? nullptr : job.y_bf16.at(row, t);
    const Index gates = plan.cells.at(row, t) * job.gates * job.hidden;
    site.wx = job.wx == nullptr ? nullptr : job.wx + gates;
    site.rounded_wx = job.rounded_wx == nullptr ? nullptr : job.rounded_wx + gates;
    site.carry = job.carry + slot * job.hidden;
    site.restarts = plan.resets(slot, step);
    site.restart = site.restarts ? job.restarts.at(row, t) : nullptr;
    ++step;
  }
}

/// The steps of a tile, each computed when it is needed. There are others for cells whose equations are in the job.
template <class Real, class Cell>
struct TileSteps {
  using V = typename Lanes<Real>::V;
  using Gates = V[Cell::gates];

  HWY_INLINE TileSteps(const ScanLayer<Real>&, ScanPlace, const Gates* tile, int) : gates(tile) {}
  HWY_INLINE AffineStep<V, false> operator[](int m) const { return StepOf<Cell>(gates[m]); }

  const Gates* gates;
};

/// Takes the gates of `rows` sites for one vector of channels into the recurrence, and to memory where training wants
/// them. Tiles call it by a pointer. They are therefore compiled once for all cells with as many gates.
template <class Panel, class Cell>
void RunSiteGates(const ScanLayer<RealOf<Panel>>& job, const ScanSite<RealOf<Panel>>* site, int rows, Index channel,
                  Index count, const typename Lanes<RealOf<Panel>>::V (*gates)[Cell::gates]) {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;
  const bool has_outputs = job.has_outputs();
  const Index hidden = job.hidden;
  Real* carry = site[0].carry + channel;
  V h = has_outputs ? L::load(carry, count) : V(0);
  const TileSteps<Real, Cell> steps(job, {channel, count}, gates, rows);
  for (int m = 0; m < rows; ++m) {
    if (site[m].wx != nullptr) {
      for (int g = 0; g < Cell::gates; ++g) L::store(gates[m][g], site[m].wx + g * hidden + channel, count);
    }
    if constexpr (RoundsOperands<Panel>) {
      if (site[m].rounded_wx != nullptr) {
        for (int g = 0; g < Cell::gates; ++g) {
          StoreStored(gates[m][g], site[m].rounded_wx + g * hidden + channel, count);
        }
      }
    }
    if (!has_outputs) continue;
    if (site[m].carry + channel != carry) {
      L::store(h, carry, count);
      carry = site[m].carry + channel;
      h = L::load(carry, count);
    }
    if (site[m].restarts) h = Restarted<Real>(site[m].restart, channel, count);
    h = steps[m].advance(h);
    if constexpr (RoundsOperands<Panel>) {
      if (site[m].y_bf16 != nullptr) {
        StoreStored(h, site[m].y_bf16 + channel, count);
        continue;
      }
    }
    L::store(h, site[m].y + channel, count);
  }
  if (has_outputs) L::store(h, carry, count);
}

template <class Panel, int G>
using SiteGates = void (*)(const ScanLayer<RealOf<Panel>>& job, const ScanSite<RealOf<Panel>>* site, int rows,
                           Index channel, Index count, const typename Lanes<RealOf<Panel>>::V (*gates)[G]);

template <class Real, int G>
HWY_INLINE void LoadScanBias(const ScanLayer<Real>& job, Index channel, Index count,
                             typename Lanes<Real>::V (&bias)[G]) {
  for (int g = 0; g < G; ++g) {
    bias[g] = job.bias == nullptr ? typename Lanes<Real>::V(0)
                                  : Lanes<Real>::load(job.bias + g * job.hidden + channel, count);
  }
}

/// Inputs of sites for products, `stride` apart.
template <class Panel>
struct SiteOperands {
  const OperandOf<Panel>* rows;
  Index stride;
};

template <class Panel>
HWY_INLINE SiteOperands<Panel> OperandsOf(const ScanLayer<RealOf<Panel>>& job, const ScanLayerPart& part,
                                          const ScanSites<RealOf<Panel>>& sites) {
  if constexpr (RoundsOperands<Panel> || Int8<Panel>) {
    const Index inputs = OperandInputs<Panel>(job.input);
    auto* const rounded =
        reinterpret_cast<OperandOf<Panel>*>(job.rounded) + part.thread * (kScanSites + kRoundedRows) * inputs;
    for (Index i = 0; i < sites.count; ++i) {
      const Index from = sites.first + i * sites.stride;
      auto* const to = rounded + i * inputs;
      if constexpr (RoundsOperands<Panel>) {
        if (job.x_bf16 != nullptr) {
          std::fill_n(std::copy_n(job.x_bf16 + from, job.input, to), inputs - job.input, std::uint16_t{0});
          continue;
        }
      }
      RoundRow(job.x + from, job.input, inputs, to);
    }
    return {rounded, inputs};
  } else {
    return {job.x + sites.first, sites.stride};
  }
}

template <class Panel, int G, int rows>
HWY_INLINE void ScanTile(const ScanLayer<RealOf<Panel>>& job, const ScanSites<RealOf<Panel>>& sites,
                         const SiteOperands<Panel>& x, Index first, Index block, SiteGates<Panel, G> run) {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;
  const Index channel = block * L::lanes, count = std::min<Index>(L::lanes, job.hidden - channel);
  V bias[G], acc[rows][G], sums[rows][G];
  LoadScanBias(job, channel, count, bias);
  for (int m = 0; m < rows; ++m) {
    for (int g = 0; g < G; ++g) acc[m][g] = bias[g];
  }
  AccumulateRows<Real, rows, G>(
      x.rows + first * x.stride, x.stride, job.input,
      reinterpret_cast<const Panel*>(job.packed) + block * PanelInputs<Panel>(job.input) * G * L::lanes, acc);
  CopySums<Real>(acc, sums);
  run(job, sites.site + first, rows, channel, count, sums);
}

/// A single site: several vectors of channels at once.
template <class Panel, int G, int blocks>
HWY_INLINE void ScanSingle(const ScanLayer<RealOf<Panel>>& job, const OperandOf<Panel>* x,
                           const ScanSite<RealOf<Panel>>& site, Index block, SiteGates<Panel, G> run) {
  using Real = RealOf<Panel>;
  using L = Lanes<Real>;
  using V = typename L::V;
  const Index panel_size = PanelInputs<Panel>(job.input) * G * L::lanes;
  V acc[blocks][G], sums[blocks][G];
  for (int p = 0; p < blocks; ++p) {
    const Index channel = (block + p) * L::lanes;
    LoadScanBias(job, channel, std::min<Index>(L::lanes, job.hidden - channel), acc[p]);
  }
  AccumulatePanels<Real, blocks, G>(x, job.input, reinterpret_cast<const Panel*>(job.packed) + block * panel_size,
                                    panel_size, acc);
  CopySums<Real>(acc, sums);
  for (int p = 0; p < blocks; ++p) {
    const Index channel = (block + p) * L::lanes, count = std::min<Index>(L::lanes, job.hidden - channel);
    run(job, &site, 1, channel, count, &sums[p]);
  }
}

/// All vectors of channels of a part for sites whose inputs are at `x`.
template <int G, class Panel>
void RunSites(const ScanLayer<RealOf<Panel>>& job, const ScanLayerPart& part, const ScanSites<RealOf<Panel>>& sites,
              const SiteOperands<Panel>& x, SiteGates<Panel, G> run) {
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    ForEachTile<ScanTileRows<Panel, G>>(0, sites.count, [&](auto rows, Index first) HWY_ATTR {
      ScanTile<Panel, G, decltype(rows)::value>(job, sites, x, first, block, run);
    });
  }
}

template <class Panel, int G>
HWY_NOINLINE void RunSitesOfPart(const ScanLayer<RealOf<Panel>>& job, const ScanLayerPart& part,
                                 SiteGates<Panel, G> run) {
  using Real = RealOf<Panel>;
  constexpr int rows = ScanTileRows<Panel, G>;
  PanelUse<Panel> use;
  use.set_rows(kScanSites);
  ScanSites<Real> sites;
  Index slot = part.slot_begin, step = part.begin;
  for (;;) {
    NextSites(job, part, kScanSites / rows * rows, slot, step, sites);
    if (sites.count == 0) return;
    const SiteOperands<Panel> x = OperandsOf<Panel>(job, part, sites);
    if (sites.count == 1) {
      ForEachTile<4>(part.block_begin, part.block_end, [&](auto blocks, Index block) HWY_ATTR {
        ScanSingle<Panel, G, decltype(blocks)::value>(job, x.rows, sites.site[0], block, run);
      });
      continue;
    }
    RunSites<G>(job, part, sites, x, run);
  }
}

template <class Panel, class Cell>
void RunScanLayer(const ScanLayer<RealOf<Panel>>& job, const ScanLayerPart& part) {
  RunSitesOfPart<Panel, Cell::gates>(job, part, &RunSiteGates<Panel, Cell>);
}

/// Panels of weight_ih [G*H, I]: for each vector of channels, for each input, the gates side by side.
template <class Panel, class Cell>
std::size_t ScanPanels(Index input, Index hidden) {
  constexpr Index lanes = Lanes<RealOf<Panel>>::lanes;
  return PanelReals<Panel>((hidden + lanes - 1) / lanes * lanes * Cell::gates * PanelInputs<Panel>(input));
}

template <class Panel, class Cell>
void PackScan(Index input, Index hidden, StoredWeights<RealOf<Panel>> weight_ih, RealOf<Panel>* packed) {
  constexpr Index lanes = Lanes<RealOf<Panel>>::lanes;
  const PanelShape vectors{.blocks_per_head = (hidden + lanes - 1) / lanes, .units = lanes};
  WithStored<Panel>(weight_ih, input, [&](auto weights) {
    FillPanels(vectors, Cell::gates, input, hidden, reinterpret_cast<Panel*>(packed), [&](Index) {
      return PanelWeights{weights, hidden * input, Index{1}, input};
    });
  });
}

template <class Panel, class Cell>
void FillScanLayerCell(CellKernels<RealOf<Panel>>& kernels) {
  FillRoundedInputs<Panel>(kernels);
  kernels.scan_panels = &ScanPanels<Panel, Cell>;
  kernels.pack_scan = &PackScan<Panel, Cell>;
  kernels.step_panels = &ScanStepPanels<Panel, Cell>;
  kernels.pack_step = &PackScanStep<Panel, Cell>;
  kernels.step = &RunScanStep<Panel, Cell>;
  kernels.scan_layer = &RunScanLayer<Panel, Cell>;
}

template <class Panel>
void FillScanLayersAs(int cell, CellKernels<RealOf<Panel>>& kernels) {
  WithScanCell(cell, [&](auto tag) { FillScanLayerCell<Panel, typename decltype(tag)::type>(kernels); });
}
