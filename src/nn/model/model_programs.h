#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/program.h"
#include "ops/pointwise/sample.h"
#include "ops/training/training.h"
#include "penstock/data_description.h"
#include "penstock/model.h"

namespace penstock::nn {

/// The program of a model's forward pass: tokens or features and state_in -> outputs and state_out.
std::shared_ptr<const graph::Program> forward_program(const ModelSpec& spec, const DataDescription& data,
                                                      const ops::Target& target);

/// The program of a step of rows that write by themselves: what each draws from Home::outputs is the token that it
/// reads, and its outputs are what the next run draws from. `history`: draws of a row that Home::history has places
/// for.
std::shared_ptr<const graph::Program> generation_program(const ModelSpec& spec, const DataDescription& data,
                                                         const Sampling& sampling, Index history,
                                                         const ops::Target& target);

/// What a training step does besides the model.
struct TrainingShape {
  ops::StepRules rules = {};
  ops::LossKind loss = ops::LossKind::cross_entropy;
  ops::OptimizerShape optimizer = {};  ///< Of all parameters; its tensors follow from the model
};

/// The program of a whole training step, with dropout: the input, labels or targets with their weights, state_in and
/// Home::status (ops/training/training.h) as the step before left it -> weights, moments, status, and state_in, which
/// becomes the state behind the batch if everything was finite. What is not finite changes nothing but the status.
std::shared_ptr<const graph::Program> training_program(const ModelSpec& spec, const DataDescription& data,
                                                       const TrainingShape& training, const ops::Target& target);

/// What those programs are made of, in their order, for whoever wants to look at it without preparing anything.
graph::Graph forward_graph(const ModelSpec& spec, const DataDescription& data, const ops::Target& target);
graph::Graph training_graph(const ModelSpec& spec, const DataDescription& data, const TrainingShape& training,
                            const ops::Target& target);

/// The program of a scored forward pass: input, labels or targets with their weights, state_in -> state_out, and in
/// Home::status the sums of the loss (StepState::loss).
std::shared_ptr<const graph::Program> scoring_program(const ModelSpec& spec, const DataDescription& data,
                                                      ops::LossKind loss, const ops::Target& target);

/// The programs of a model's forward passes that were used last, and workspaces for them. Any number of threads may
/// take one at a time each.
class ModelPrograms {
 public:
  /// A workspace that nobody else has, for as long as it is held.
  class Lease {
   public:
    Lease(ModelPrograms& from, std::string key, std::unique_ptr<graph::Workspace> workspace)
        : from_(&from), key_(std::move(key)), workspace_(std::move(workspace)) {}
    ~Lease() { from_->give_back(key_, std::move(workspace_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    graph::Workspace& operator*() const { return *workspace_; }
    graph::Workspace* operator->() const { return workspace_.get(); }

   private:
    ModelPrograms* from_;
    std::string key_;
    std::unique_ptr<graph::Workspace> workspace_;
  };

  /// For a forward pass of that target, in memory of the queue's device.
  Lease take(const ModelSpec& spec, const DataDescription& data, const ops::Target& target,
             const std::shared_ptr<ops::Queue>& queue);
  /// The program alone.
  std::shared_ptr<const graph::Program> program(const ModelSpec& spec, const DataDescription& data,
                                                const ops::Target& target);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const graph::Program> program;
    std::vector<std::unique_ptr<graph::Workspace>> idle;
  };
  Entry& entry(const ModelSpec& spec, const DataDescription& data, ops::Target target);
  void give_back(const std::string& key, std::unique_ptr<graph::Workspace> workspace);

  std::mutex guard_;
  std::list<Entry> entries_;  // the one used last comes first
};

}  // namespace penstock::nn
