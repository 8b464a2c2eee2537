#pragma once

#include <memory>
#include <utility>

#include "base/pool.h"
#include "base/shared_cache.h"
#include "graph/program.h"
#include "ops/pointwise/sample.h"
#include "ops/training/training.h"
#include "penstock/data_description.h"
#include "penstock/model.h"

/// Programs of a model: forward pass, generation, training step, and scoring.
namespace penstock::nn {

/// Makes the program of a forward pass: tokens or features and state_in -> outputs and state_out.
std::shared_ptr<const graph::Program> forward_program(const ModelSpec& spec, const DataDescription& data,
                                                      const ops::Target& target);

/// Makes the program of a step of autoregressive generation: each row draws a token from Home::outputs and reads it;
/// the next run draws from its new outputs. `history`: number of drawn tokens of a row that Home::history holds.
std::shared_ptr<const graph::Program> generation_program(const ModelSpec& spec, const DataDescription& data,
                                                         const Sampling& sampling, Index history,
                                                         const ops::Target& target);

/// The parts of a training step besides the model.
struct TrainingShape {
  StepRules rules = {};
  LossKind loss = LossKind::cross_entropy;
  ops::OptimizerShape optimizer = {};  ///< For all parameters; its tensors follow from the model.
};

/// Makes the program of a whole training step, with dropout.
///
/// Inputs: tokens or features, labels or targets with their weights, state_in, and Home::status
/// (ops/training/training.h) of the previous step. Updates weights, moments, status, and state_in, which becomes the
/// state after the batch. If anything is not finite, only the status changes.
std::shared_ptr<const graph::Program> training_program(const ModelSpec& spec, const DataDescription& data,
                                                       const TrainingShape& training, const ops::Target& target);

/// Return the graphs of those programs, without preparing anything.
graph::Graph forward_graph(const ModelSpec& spec, const DataDescription& data, const ops::Target& target);
graph::Graph training_graph(const ModelSpec& spec, const DataDescription& data, const TrainingShape& training,
                            const ops::Target& target);

/// Makes the program of a scored forward pass: input, labels or targets with their weights, and state_in -> state_out,
/// and the sums of the loss in Home::status (StepState::loss).
std::shared_ptr<const graph::Program> scoring_program(const ModelSpec& spec, const DataDescription& data, LossKind loss,
                                                      const ops::Target& target);

/// A cache of the forward programs that a model used last, with workspaces. Any number of threads may take one
/// workspace each.
class ModelPrograms {
  /// A program, and its workspaces that nobody uses at the moment.
  struct Entry {
    std::shared_ptr<const graph::Program> program;
    Pool<graph::Workspace> idle;
  };

 public:
  /// Exclusive use of a workspace while the object lives.
  class Lease {
   public:
    Lease(std::shared_ptr<Entry> entry, const std::shared_ptr<ops::Queue>& queue)
        : entry_(std::move(entry)),
          workspace_(entry_->idle, [&] { return std::make_unique<graph::Workspace>(entry_->program, queue); }) {}
    graph::Workspace& operator*() const { return *workspace_; }
    graph::Workspace* operator->() const { return &*workspace_; }

   private:
    std::shared_ptr<Entry> entry_;
    Pool<graph::Workspace>::Lease workspace_;
  };

  /// Takes a workspace for a forward pass of a target, in memory of the queue's device.
  Lease take(const ModelSpec& spec, const DataDescription& data, const ops::Target& target,
             const std::shared_ptr<ops::Queue>& queue) {
    return {entry(spec, data, target), queue};
  }
  /// Returns the program of a forward pass of a target.
  std::shared_ptr<const graph::Program> program(const ModelSpec& spec, const DataDescription& data,
                                                const ops::Target& target) {
    return entry(spec, data, target)->program;
  }

 private:
  using Key = std::pair<ops::Target, unsigned>;  // with the number of the instruction set
  std::shared_ptr<Entry> entry(const ModelSpec& spec, const DataDescription& data, ops::Target target);

  // A reader of files has two shapes, its chunks and the last one; a few more callers may take turns.
  SharedCache<Key, Entry> entries_{8};
};

}  // namespace penstock::nn
