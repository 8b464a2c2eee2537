// How the backward pass by warpgroups reads the transpose of R into registers and shared memory, as threads of the host
// (kernel_on_host.h), against R itself. Needs a compiler, and no GPU.

#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/dense/warpgroup.h"
#include "backend/cuda/kernels/dense/arguments.h"
#include "backend/kernel_on_host.h"
#include "base/random.h"
#include "plan/h200.h"

namespace penstock::cuda {
namespace {

using plan::Storage;

/// A kernel in the place of the pass: block `first` + its number reads its part of the transpose, and all threads
/// compare it with R, as the rows of their warps multiply it: those of thread `lane` are row lane / 4 of the upper or
/// the lower 8 of the tile's 16. Results: values that differ, and values that were compared.
constexpr const char* kComparison = R"(
struct Found { long long differ, compared; };
/// The bits of a value of the transpose: the row's unit is that for which Multiplier adds up the products' sums.
static unsigned Wanted(const DenseBackwardArguments& args, const Team& team, int part, int row, int column) {
  const int warp = row / 16, half = row % 16 / 8, of_eight = row % 8;
  // unit_of(): a warp has 16 units in a row, or 8 of each of both blocks of a pair, as take() gives them out.
  const int of_group = kWide ? part * 64 + 16 * warp + 8 * half + of_eight : half * (64 / 2) + 8 * warp + of_eight;
  const int unit = team.group() * kShape.group_units() + of_group;
  const int of_all = team.share() * (kShape.chunks() * WarpgroupShape::chunk_units) + column;
  const int gate = of_all / kUnitsOfTeam, of_gate = of_all % kUnitsOfTeam;
  if (unit >= kHead || of_gate >= kHead) return 0;
  return ((const unsigned short*)args.recurrent)[((long long)(team.head * kGates + gate) * kHead + of_gate) * kHead + unit];
}
static void Compare(Found& found, unsigned got, unsigned want) { found.differ += got != want, ++found.compared; }

extern "C" __global__ void CompareTranspose(const __grid_constant__ DenseChipBackwardArguments all) {
  extern __shared__ __align__(1024) char memory[];
  const DenseBackwardArguments& args = all.call;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Found& found = *(Found*)args.dlearnt;
  Team team = {};
  team.head = args.heads - 1, team.member = all.first + blockIdx.x;
  const Shared shared = Shared::of(memory);
  const TeamExchange exchange = TeamExchange::of(all.exchange, 0);
  const Transpose transpose = {args, team};
  transpose.lay<kKept>(memory + kShape.matrix_at(), [](int i) { return kShape.kept_place(i); });
  transpose.lay<kStreamed>(exchange.streamed(team.member, 0), [](int i) { return kShape.streamed_place(i); });
  __syncthreads();
  const auto compare = [&](char* laid, int count, auto place_of) {
    for (int i = threadIdx.x; i < kParts * count * kDepth * 64 * 64; i += kThreads) {
      const int chunk = i / 4096, row = i / 64 % 64, column = i % 64, part = chunk / (count * kDepth);
      const int first = Product::column_of(part, place_of(chunk % (count * kDepth) / kDepth)) + chunk % kDepth * 64;
      const char* const at = laid + chunk * WarpgroupShape::matrix_chunk_bytes + MatrixOfColumns::place(row, column / 8);
      Compare(found, ((const unsigned short*)at)[column % 8], Wanted(args, team, part, row, first + column));
    }
  };
  compare(memory + kShape.matrix_at(), kKept, [](int i) { return kShape.kept_place(i); });
  compare(exchange.streamed(team.member, 0), kStreamed, [](int i) { return kShape.streamed_place(i); });
  if (warp >= kParts * 4) return;
  Multiplier multiplier{{shared.ring, shared.matrix, warp / 4, warp % 4, lane}, shared, team, exchange, args, 0};
  multiplier.take_matrix();
  for (int k = 0; k < kResident; ++k) {
    for (int i = 0; i < 8; ++i) {
      const int row = 16 * (warp % 4) + i / 2 % 2 * 8 + lane / 4;
      const int column = Product::column_of(warp / 4, kShape.held_place(k / kSteps)) + k % kSteps * 16 + lane % 4 * 2 + i / 4 * 8;
      Compare(found, multiplier.held[k][0][i / 2] >> i % 2 * 16 & 0xffff, Wanted(args, team, warp / 4, row, column + i % 2));
    }
  }
}
static void Whole(const DenseChipBackwardArguments& all) {)";

struct Size {
  std::string_view cell;
  Storage storage;
  Index head;
  int shares;
};

class TransposeOnHost : public testing::TestWithParam<Size> {};

TEST_P(TransposeOnHost, IsThatOfR) {
  const auto& [cell, storage, head, shares] = GetParam();
  plan::GpuDenseProblem problem;
  problem.cell = cell, problem.storage = storage;
  problem.rows = 64, problem.steps = 8, problem.heads = 2, problem.hidden = 2 * head;
  problem.backward = true, problem.algorithm = plan::DenseAlgorithm::warpgroup, problem.shares = shares;
  problem.alignment = common_alignment(16, {head * size_of(storage)});
  const plan::GpuDensePlan plan = plan_gpu_dense(problem, plan::h200());
  KernelSource source = dense_warpgroup_source(problem, plan);
  const std::string entry =
      "extern \"C\" __global__ void __launch_bounds__(kThreads, 1)\n    DenseWarpgroupBackward(const __grid_constant__ "
      "DenseChipBackwardArguments all) {";
  source.entry = "CompareTranspose";
  const test::HostKernel kernel(source, {{entry, kComparison}});

  const Index gates = plan::cell_traits(cell).gates(), values = 2 * gates * head * head;
  Random random(7);
  std::vector<std::uint16_t> halves(static_cast<std::size_t>(values));
  for (std::uint16_t& bits : halves) bits = static_cast<std::uint16_t>(1 + random.uniform() * 0x7000);
  std::vector<char> exchange(static_cast<std::size_t>(plan.exchange));
  struct {
    long long differ = 0, compared = 0;
  } found;
  DenseChipBackwardArguments arguments{};
  arguments.call.recurrent = reinterpret_cast<const char*>(halves.data());
  arguments.call.heads = 2;
  arguments.call.dlearnt = reinterpret_cast<float*>(&found);
  arguments.exchange = exchange.data();
  // The first blocks, and the last ones with units of the head: behind these are others that no tensor has.
  const int blocks = plan.clusters * plan.cluster;
  for (const int first : {0, blocks / 2, blocks - 2 * std::max(plan.cluster, plan.shares)}) {
    arguments.first = std::max(first, 0);
    EXPECT_EQ(kernel.run(2, plan.threads(), 1, static_cast<int>(plan.shared), 1, arguments), "");
  }
  EXPECT_EQ(found.differ, 0);
  EXPECT_GT(found.compared, 6 * 8 * 32 * 8 * plan.resident) << "kept or streamed ones, too";
}

// Pairs of blocks with a part in shared memory, padded and not, and groups that stream one.
INSTANTIATE_TEST_SUITE_P(Kernels, TransposeOnHost,
                         testing::Values(Size{"gru", Storage::bf16, 900, 0}, Size{"lstm", Storage::bf16, 1024, 0},
                                         Size{"lstm", Storage::f16, 2500, 4}),
                         [](const auto& of) { return fmt::format("{}_{}", of.param.cell, of.param.head); });

}  // namespace
}  // namespace penstock::cuda
