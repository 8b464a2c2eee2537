// Work of warpgroups, on threads of the CPU.

#include "backend/cuda/kernels/product/shared_matrix.cuh"

constexpr int kWarpgroup = 128;

template <int kRegisters, bool kMore>
PENSTOCK_DEVICE void SetRegisters() {}

PENSTOCK_DEVICE void BeginMultiplying() {}
PENSTOCK_DEVICE void CommitMultiplying() {}
/// A warp waits as a whole.
template <int kPending = 0>
PENSTOCK_DEVICE void WaitForProducts() {
  __syncwarp();
}
PENSTOCK_DEVICE void Settle(float&) {}

PENSTOCK_DEVICE void WaitForTurn(int group) {
  penstock::test::current_block()->named[1 + group].arrive(2 * kWarpgroup, true);
}
PENSTOCK_DEVICE void PassTurn(int group) {
  penstock::test::current_block()->named[1 + group].arrive(2 * kWarpgroup, false);
}

/// Returns a float16 of a matrix in shared memory that was described: of a row (or column), and of K.
PENSTOCK_DEVICE float FactorAt(unsigned long long description, int row, int k) {
  const unsigned lines_of_eight = (unsigned)(description >> 32 & 0x3fff) << 4, order = (unsigned)(description >> 62);
  unsigned at = (unsigned)(description & 0x3fff) << 4;
  at += (unsigned)row / 8 * lines_of_eight + (unsigned)row % 8 * (lines_of_eight / 8) + (unsigned)k * 2;
  if (order == 1) at ^= (at >> 7 & 7) << 4;  // 128 bytes a line: bits of the line change those of the piece
  unsigned short half;
  std::memcpy(&half, memory + at, sizeof half);
  return F16::widen(half);
}

/// A sum and sixteen products as tensor cores add them that align all to the largest and cut off what lies below its
/// last bit as a float. Hopper's keep two bits more.
PENSTOCK_DEVICE float CutSum(float sum, const double (&product)[16]) {
  double largest = std::fabs((double)sum);
  for (const double p : product) largest = std::fmax(largest, std::fabs(p));
  if (!(largest > 0) || std::isinf(largest)) {
    for (const double p : product) sum += (float)p;
    return sum;
  }
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 23);
  double all = std::trunc(sum / unit);
  for (const double p : product) all += std::trunc(p / unit);
  all *= unit;
  const float rounded = (float)all;
  return std::fabs((double)rounded) > std::fabs(all) ? std::nextafterf(rounded, 0.0f) : rounded;
}

/// wgmma.mma_async.m64nNk16: a thread's sums of 64 rows by twice as many columns as it has sums, divided by 64 rows.
template <int kSumsOfThread>
PENSTOCK_DEVICE void MultiplyShared(float (&sum)[kSumsOfThread], unsigned long long a, unsigned long long b, int add) {
  const int lane = (int)threadIdx.x % 32, first_row = (int)threadIdx.x % kWarpgroup / 32 * 16 + lane / 4;
  for (int i = 0; i < kSumsOfThread; ++i) {
    const int row = first_row + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    double product[16];
    for (int k = 0; k < 16; ++k) product[k] = (double)FactorAt(a, row, k) * (double)FactorAt(b, column, k);
    sum[i] = CutSum(add ? sum[i] : 0.0f, product);
  }
}
