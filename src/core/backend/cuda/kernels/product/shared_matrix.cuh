// Matrices in shared memory as tensor cores read them, and rings of such places.

/// Counts places of shared memory in a ring.
struct RingPlace {
  int place = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void next(int places) {
    if (++place == places) place = 0, parity ^= 1;
  }
};

/// Columns of a matrix in shared memory as the tensor cores read them: `kBytes` of each, column after column, the
/// pieces of 16 bytes of a column in an order that goes round with its number: where 128 bytes are a column, piece p of
/// column n lies at p ^ (n % 8). Begins at a multiple of 1,024 bytes.
template <int kBytes>
struct MatrixOfColumnsOf {
  static constexpr int bytes = kBytes;
  static_assert(kBytes == 128 || kBytes == 64, "orders that Hopper has");

  /// Returns the place of a piece of 16 bytes of a column.
  PENSTOCK_DEVICE int place(int column, int piece) {
    static_assert(kBytes == 128, "the order above");
    return column * bytes + ((piece ^ (column & 7)) << 4);
  }

  /// The description of it from `offset` bytes within those of a column on.
  PENSTOCK_DEVICE unsigned long long describe(const char* matrix, int offset) {
    constexpr unsigned long long eight_columns = 8 * bytes / 16, order = kBytes == 128 ? 1 : 2;
    const unsigned address = (unsigned)__cvta_generic_to_shared(matrix) + offset;
    return (address & 0x3ffff) >> 4 | 1ull << 16 | eight_columns << 32 | order << 62;
  }
};
using MatrixOfColumns = MatrixOfColumnsOf<128>;
