// When layers on top of each other run beside each other, and in which chunks.

#include "plan/wavefront.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

Index chunk_of(Index layers, Index rows, Index steps, int threads, const CpuModel& machine = {}) {
  return wavefront_chunk({.layers = layers, .rows = rows, .steps = steps, .threads = threads, .microseconds = 1e4},
                         machine);
}

TEST(Wavefront, IsPlannedWhereItPays) {
  EXPECT_GT(chunk_of(2, 1, 200, 2), 0);
  EXPECT_GT(chunk_of(4, 16, 100, 2), 0);
  EXPECT_EQ(chunk_of(1, 1, 200, 2), 0) << "one layer";
  EXPECT_EQ(chunk_of(4, 1, 200, 1), 0) << "one thread";
  EXPECT_EQ(chunk_of(4, 64, 200, 2), 0) << "rows for all threads";
  EXPECT_EQ(chunk_of(4, 1, 8, 4), 0) << "no chunks to speak of";
  WavefrontProblem large{.layers = 4, .steps = 200, .threads = 2, .microseconds = 1e4, .layer_bytes = 4 << 20};
  CpuModel machine;
  machine.l2_bytes = 1 << 20;
  EXPECT_EQ(wavefront_chunk(large, machine), 0) << "a matrix that one core's cache does not hold";
  machine.l2_bytes = 8 << 20;
  EXPECT_GT(wavefront_chunk(large, machine), 0);
  large.rows = 2;
  EXPECT_GT(wavefront_chunk(large, machine), 0);
  large.backward = true;
  EXPECT_EQ(wavefront_chunk(large, machine), 0) << "each thread has a row of its own";
  large.rows = 4;
  EXPECT_GT(wavefront_chunk(large, machine), 0);
  large.layer_bytes = 6 << 20;
  EXPECT_EQ(wavefront_chunk(large, machine), 0) << "a backward pass has less room for a matrix";
  for (Index steps = 16; steps < 5000; steps += 7) {
    EXPECT_LE((steps + chunk_of(4, 1, steps, 2) - 1) / chunk_of(4, 1, steps, 2), 16);
  }
}

TEST(Wavefront, FollowsTheCostsOfTheMachine) {
  CpuModel machine;
  machine.costs.wave_chunks = 4;
  EXPECT_EQ(chunk_of(4, 1, 200, 2, machine), 50);
  machine.costs.wave_steps = 60;
  EXPECT_EQ(chunk_of(4, 1, 200, 2, machine), 60);
  EXPECT_EQ(chunk_of(4, 1, 100, 2, machine), 0);
}

GpuDenseProblem lstm(Index hidden, Index steps, Index rows = 16) {
  return {.cell = "lstm", .storage = Storage::bf16, .rows = rows, .steps = steps, .hidden = hidden};
}

double alone(const GpuDenseProblem& layer, const GpuModel& gpu) { return plan_gpu_dense(layer, gpu).microseconds; }

TEST(GpuWavefront, LayersShareTheChipWhereOneLeavesRoom) {
  const GpuModel gpu = named_gpu("h200");
  for (const Index layers : {2, 4, 12}) {
    SCOPED_TRACE(layers);
    const GpuWavefront wave = gpu_wavefront(layers, lstm(512, 1024), gpu);
    ASSERT_GT(wave.chunk, 0);
    EXPECT_EQ(wave.chunk % 8, 0);
    EXPECT_LT(wave.chunk, 1024);
    EXPECT_LT(wave.microseconds, static_cast<double>(layers) * alone(lstm(512, 1024), gpu));
    EXPECT_GT(wave.microseconds, alone(lstm(512, 1024), gpu));
  }
  EXPECT_LT(gpu_wavefront(4, lstm(512, 1024), gpu).microseconds, 3 * alone(lstm(512, 1024), gpu));
}

TEST(GpuWavefront, BackwardLayersShareTheChipToo) {
  const GpuModel gpu = named_gpu("h200");
  GpuDenseProblem layer = lstm(512, 1024);
  layer.backward = true;
  const GpuWavefront wave = gpu_wavefront(4, layer, gpu);
  ASSERT_GT(wave.chunk, 0);
  EXPECT_EQ(wave.chunk % 8, 0);
  EXPECT_LT(wave.microseconds, 3 * alone(layer, gpu));
  EXPECT_GT(wave.microseconds, gpu_wavefront(4, lstm(512, 1024), gpu).microseconds)
      << "gradients of weights come on top";
  layer.rows = 4096;
  EXPECT_EQ(gpu_wavefront(4, layer, gpu).chunk, 0) << "rows for all of the chip";
}

TEST(GpuWavefront, LayersThatGainNothingRunAlone) {
  const GpuModel gpu = named_gpu("h200");
  EXPECT_EQ(gpu_wavefront(4, lstm(2048, 1024), gpu).chunk, 0) << "the matrix is spread over the chip";
  EXPECT_EQ(gpu_wavefront(4, lstm(512, 1024, 4096), gpu).chunk, 0) << "rows for all of it";
  EXPECT_EQ(gpu_wavefront(1, lstm(512, 1024), gpu).chunk, 0) << "one layer";
  EXPECT_EQ(gpu_wavefront(4, lstm(512, 1), gpu).chunk, 0) << "one step";
  EXPECT_EQ(gpu_wavefront(4, lstm(512, 16), gpu).chunk, 0) << "launches take longer than steps";
  GpuDenseProblem ragged = lstm(512, 1024);
  ragged.ragged = true;
  EXPECT_EQ(gpu_wavefront(4, ragged, gpu).chunk, 0) << "rows end in different chunks";
}

TEST(GpuWavefront, FollowsTheCostsOfTheMachine) {
  GpuModel gpu = named_gpu("h200");
  const Index usual = gpu_wavefront(4, lstm(512, 1024), gpu).chunk;
  gpu.costs.wavefront.chunk *= 8;
  EXPECT_GT(gpu_wavefront(4, lstm(512, 1024), gpu).chunk, usual) << "chunks that cost more are fewer";
  gpu.costs.wavefront.launch = 1e4;
  EXPECT_EQ(gpu_wavefront(4, lstm(512, 1024), gpu).chunk, 0) << "a host that launches slowly";
}

}  // namespace
}  // namespace penstock::plan
