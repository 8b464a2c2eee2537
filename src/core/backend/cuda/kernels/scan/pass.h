// What the host decides about a kernel of linear recurrences (kernels/pass.h).
#pragma once

#include "backend/cuda/kernels/pass.h"

/// How the threads of a block share a tile, and what the rows of every scan may have.
struct ScanTile {
  int vector;        ///< Neighbouring channels of a thread.
  int lanes;         ///< Threads along the channels.
  int groups;        ///< Such groups of threads: of the steps of a chunk, or (direct) of rows and tiles of channels.
  int steps;         ///< Steps of a thread at once.
  int lengths;       ///< Rows have lengths.
  int reset;         ///< A mask says where states start again.
  int restarts = 0;  ///< With states that the call gives; else with zeros.
};

/// A scan of values that lie in memory.
struct ScanPass {
  ScanTile tile;
  int direct;        ///< Threads run all steps of their channels.
  int corrects;      ///< Direct: finds the results of other first states.
  int piece;         ///< Bytes of one copy.
  int window;        ///< Chunks that a block looks back over at once.
  int blocks;        ///< Of a multiprocessor.
  int shared_bytes;  ///< Of the plan, which the kernel's own layout has to equal.
  int read_back;     ///< Backward: of the values of a step, how many its gradients depend on.
  int keep_terms;    ///< Forward: a thread keeps a and b of its steps as floats instead of making them twice.
};

/// A layer in one launch: gates from x, and the scan over them.
struct LayerPass {
  ScanTile tile = {};
  int keep_gates = 0;    ///< Gates are written for the backward pass.
  int shared_bytes = 0;  ///< Of the plan, which the kernel's own layout has to equal.
  // ScanAlgorithm::fused
  int piece = 0;   ///< Bytes of one copy of x.
  int blocks = 0;  ///< Of a multiprocessor.
  int input = 0;   ///< I.
  // ScanAlgorithm::epilogue
  int stage_inputs = 0;  ///< Of I, in a stage.
  int depth = 0;         ///< Stages.
  int products = 0;      ///< Multiplications side by side.
};

/// One step of a layer in one launch.
struct LayerStepPass {
  int vector;  ///< Values of one access.
  int warps;   ///< Of a block, each with a channel.
  int rows;    ///< Of x, at once.
};
