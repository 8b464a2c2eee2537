// Which part of a product a block makes: of tiles of kTileM x kTileN.

/// Where a block's tile begins, and its slab of K.
struct TilePlace {
  Index m, n, k, k_end;
  int slab;

  __device__ __forceinline__ explicit TilePlace(const FloatProductArguments& args) {
    // Tiles that need the same part of A run side by side.
    const unsigned tiles = (unsigned)args.tiles_m * args.tiles_n, tile = blockIdx.x % tiles;
    slab = (int)(blockIdx.x / tiles);
    m = (Index)(tile / args.tiles_n) * kTileM;
    n = (Index)(tile % args.tiles_n) * kTileN;
    k = slab * args.slab;
    k_end = min(k + args.slab, args.k);
  }
};
