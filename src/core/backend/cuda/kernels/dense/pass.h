// What the host decides about a kernel of dense cells (kernels/pass.h).
#pragma once

#include "backend/cuda/kernels/pass.h"

/// Every pass over the steps.
struct DensePass {
  int tanh_unit;   ///< Gates by the chip's own tanh: 2^-11 off at worst, where neighbouring bfloat16s are 2^-9 apart.
  int descending;  ///< The recurrence starts at the last step of a row.
  int reset;       ///< A mask says where states start again.
  int restarts;    ///< With states that the call gives; else with zeros.
  int clip;        ///< Backward: gradients that pass from step to step have a limit.
};

/// The passes that keep the matrix of a head on the chip.
struct HeldMatrix {
  int head;          ///< D, units of a head.
  int access;        ///< Bytes that every address, stride and head is a multiple of, at most 16.
  int training;      ///< Forward: a tape is written.
  int every_state;   ///< Forward: every state is written; backward: all have gradients.
  int shared_bytes;  ///< Of the plan, which the kernel's own layout has to equal.
};

/// A head in a block (HeadShape).
struct HeadPass {
  DensePass all;
  HeldMatrix held;
  int slots, resident, stages;  ///< As HeadShape has them.
  int blocks;                   ///< Of a multiprocessor.
  int ragged;                   ///< Rows have lengths.
  int means;                    ///< Units read means over their head.
};

/// A head in a cluster (ClusterShape).
struct ClusterPass {
  DensePass all;
  HeldMatrix held;
  int cluster, blocks, rows, groups, parts, resident, stages;  ///< As ClusterShape has them.
  int left_out;          ///< For measurements: what a step goes without. 1: exchange, 2: products, 3: cell; 0: nothing.
  int clusters, direct;  ///< As ChipShape has them; a kernel of one cluster reads neither.
};

/// A head in a team of blocks with warpgroups (WarpgroupShape).
struct WarpgroupPass {
  DensePass all;
  HeldMatrix held;
  int rows, portions, resident, depth, stages, shares, kept, streamed, terms;  ///< As WarpgroupShape has them.
};

/// A thread has one unit of one row: a launch for each step.
struct StepPass {
  DensePass all;
  int head;     ///< D, units of a head.
  int threads;  ///< Of a block.
  int means;    ///< Units read means over their head: a block has one head of one row.
};

/// A thread has one unit of one row, or a piece of its steps.
struct DiagonalPass {
  DensePass all;
  int training, every_state;  ///< As of HeldMatrix.
  int ahead;                  ///< Steps that values are read before they are used.
  int threads;                ///< Of a block.
  int pieces = 0;             ///< Forward: chains are cut.
  int exact = 0;              ///< Forward: runs chains as a whole that have not joined.
  int summary = 0;            ///< Backward: finds the effect of each piece, and writes nothing else.
};

/// From piece to piece of the chains.
struct DiagonalJoin {
  int states;   ///< S, of the cell.
  int threads;  ///< Of a block.
  int batch;    ///< Pieces whose values are read at once.
};
