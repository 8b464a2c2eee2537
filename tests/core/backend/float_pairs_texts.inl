// The texts of the kernels that multiply pairs, in namespace PENSTOCK_CASE, which has their constants.

#define PENSTOCK_JOIN_(a, b) a##b
#define PENSTOCK_JOIN(a, b) PENSTOCK_JOIN_(a, b)

namespace PENSTOCK_CASE {

namespace of_a {
constexpr bool kTransposed = kTransposedA, kSums = kSumsOfA, kNarrow = false;
constexpr int kPiece = kPieceA;
#define SplitPairs PENSTOCK_JOIN(SplitPairsA, PENSTOCK_CASE)
#include "backend/cuda/kernels/product/split_pairs.cuh"
const auto kernel = SplitPairs;
#undef SplitPairs
}  // namespace of_a

namespace of_b {
constexpr bool kTransposed = !kTransposedB, kSums = false, kNarrow = true;
constexpr int kPiece = kPieceB;
#define SplitPairs PENSTOCK_JOIN(SplitPairsB, PENSTOCK_CASE)
#include "backend/cuda/kernels/product/split_pairs.cuh"
const auto kernel = SplitPairs;
#undef SplitPairs
}  // namespace of_b

namespace product {
constexpr int kSharedBytes = penstock::test::kSharedBytes;
#define FloatPairs PENSTOCK_JOIN(FloatPairs, PENSTOCK_CASE)
#include "backend/cuda/kernels/product/float_pairs.cuh"
const auto kernel = FloatPairs;
#undef FloatPairs
}  // namespace product

namespace repair {
#define RepairProduct PENSTOCK_JOIN(RepairProduct, PENSTOCK_CASE)
#include "backend/cuda/kernels/product/repair_product.cuh"
const auto kernel = RepairProduct;
#undef RepairProduct
}  // namespace repair

/// Runs a kernel with the parameters that the library has launched it with.
template <class Parameters>
void run_text(void (*kernel)(Parameters), unsigned blocks, int threads, const void* parameters) {
  std::remove_cv_t<Parameters> copy;
  std::memcpy(static_cast<void*>(&copy), parameters, sizeof copy);
  penstock::test::run_kernel(kernel, static_cast<int>(blocks), threads, copy);
}

/// What a case has to run, and what the library must have told the compiler for it.
const Texts texts{
    .split_a = [](unsigned blocks, const void* p) { run_text(of_a::kernel, blocks, of_a::kThreads, p); },
    .split_b = [](unsigned blocks, const void* p) { run_text(of_b::kernel, blocks, of_b::kThreads, p); },
    // Fewer blocks than the library launches, so that each makes several tiles.
    .multiply = [](unsigned blocks, const void* p) { run_text(product::kernel, std::min(blocks, 2u), 384, p); },
    .repair = [](unsigned blocks,
                 const void* p) { run_text(repair::kernel, blocks, repair::kLines * repair::kParts, p); },
    .of_split_a = fmt::format("{} {} {} {}", kTransposedA, kPieceA, kSumsOfA, false),
    .of_split_b = fmt::format("{} {} {} {}", !kTransposedB, kPieceB, false, true),
    .of_product = fmt::format("{} {} {} {} {}", kTilesN, kDepth, kVector, kBias, kSumsOfA)};

}  // namespace PENSTOCK_CASE

#undef PENSTOCK_CASE
