// Scan layers by AMX: the gates of up to 32 sites and one vector of channels go through memory, in the first-level
// cache, on their way into the recurrence.

template <int G>
void RunSites(const ScanLayer<float>& job, const ScanLayerPart& part, const ScanSites<float>& sites,
              const SiteOperands<Bf16Tile>& x, SiteGates<Bf16Tile, G> run) {
  TileSums<G> gates;
  for (Index block = part.block_begin; block < part.block_end; ++block) {
    const Index channel = block * Simd::lanes, count = std::min<Index>(Simd::lanes, job.hidden - channel);
    const auto* panel = reinterpret_cast<const Bf16Tile*>(job.packed) + block * x.stride * G * Simd::lanes;
    Simd bias[G];
    LoadScanBias(job, channel, count, bias);
    for (Index first = 0; first < sites.count; first += 2 * kTileRows) {
      const Index rows = std::min(2 * kTileRows, sites.count - first);
      gates.multiply(rows, {x.rows + first * x.stride, x.stride, job.input}, panel, bias);
      run(job, sites.site + first, static_cast<int>(rows), channel, count, gates.sum);
    }
  }
}
