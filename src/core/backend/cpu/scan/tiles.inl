// Scan layers by AMX: the gates of up to 32 sites and one vector of channels go through memory, in the first-level
// cache, on their way into the recurrence.

template <int G, Tiled Panel>
void RunSites(const ScanLayer<float>& job, const ScanLayerPart& part, const ScanSites<float>& sites,
              const SiteOperands<Panel>& x, SiteGates<Panel, G> run) {
  // Panels of one gate are multiplied together, so that inputs are loaded a quarter as often.
  ForEachTile<G == 1 ? 4 : 1>(part.block_begin, part.block_end, [&](auto together, Index block) HWY_ATTR {
    constexpr int blocks = decltype(together)::value, vectors = blocks * G;
    const Index size = PanelInputs<Panel>(job.input) * G * Simd::lanes, channel = block * Simd::lanes;
    const TilePanels<Panel, G> panels{reinterpret_cast<const Panel*>(job.packed) + block * size, size};
    const auto count = [&](int b) { return std::min<Index>(Simd::lanes, job.hidden - channel - b * Simd::lanes); };
    alignas(64) Simd gates[blocks][2 * kTileRows][G];
    Simd bias[blocks][G];
    float* sums[vectors];
    for (int b = 0; b < blocks; ++b) {
      LoadScanBias(job, channel + b * Simd::lanes, count(b), bias[b]);
      for (int g = 0; g < G; ++g) sums[b * G + g] = reinterpret_cast<float*>(&gates[b][0][g]);
    }
    for (Index first = 0; first < sites.count; first += 2 * kTileRows) {
      const Index rows = std::min(2 * kTileRows, sites.count - first);
      const TileOperands<Panel> a{x.rows + first * x.stride, x.stride, job.input};
      MultiplyTileRows(rows, a, panels, bias[0], sums, G * Simd::lanes);
      for (int b = 0; b < blocks; ++b) {
        run(job, sites.site + first, static_cast<int>(rows), channel + b * Simd::lanes, count(b), gates[b]);
      }
    }
  });
}
