// Scan layers by AMX: the gates of up to 32 sites and one vector of channels go through memory, in the first-level
// cache, on their way into the recurrence.

template <std::same_as<Bf16Tile> Panel, class Cell>
void WalkSites(const ScanLayer<float>& job, const ScanLayerPart& part, const ScanSites<float>& sites,
               const SiteOperands<Panel>& x) {
  constexpr int G = Cell::gates;
  TileSums<G> gates;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    const Index channel = block * Simd::lanes, count = std::min<Index>(Simd::lanes, job.hidden - channel);
    const Panel* panel = reinterpret_cast<const Panel*>(job.packed) + block * x.stride * G * Simd::lanes;
    Simd bias[G];
    LoadScanBias<float, Cell>(job, channel, count, bias);
    for (Index first = 0; first < sites.count; first += 2 * kTileRows) {
      const Index rows = std::min(2 * kTileRows, sites.count - first);
      gates.multiply(rows, {x.rows + first * x.stride, x.stride, job.input}, panel, bias);
      ForEachTile<16>(0, rows, [&](auto some, Index m) HWY_ATTR {
        WalkGates<Panel, Cell, decltype(some)::value>(job, sites.site + first + m, channel, count, gates.sum + m);
      });
    }
  }
}
