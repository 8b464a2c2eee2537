// Which part of a product a block makes: of tiles of kTileM x kTileN.

/// Start of a block's tile, and its split of K.
struct TilePlace {
  Index m, n, k, k_end;
  int split;

  __device__ __forceinline__ explicit TilePlace(const FloatProductArguments& args) {
    // Tiles that need the same part of A run side by side.
    const unsigned tiles = (unsigned)args.tiles_m * args.tiles_n, tile = blockIdx.x % tiles;
    split = (int)(blockIdx.x / tiles);
    m = (Index)(tile / args.tiles_n) * kTileM;
    n = (Index)(tile % args.tiles_n) * kTileN;
    k = split * args.split_k;
    k_end = min(k + args.split_k, args.k);
  }
};
