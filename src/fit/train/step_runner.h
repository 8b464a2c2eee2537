#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/last_used_cache.h"
#include "data/device_batch.h"
#include "nn/model/model_impl.h"
#include "ops/memory/recording.h"
#include "penstock/data/dataset.h"
#include "train/optimizer_state.h"

namespace penstock::training {

/// Result of one training step.
struct StepResult {
  StepState state = {};                       ///< Behind the step
  std::vector<std::int64_t> saturation = {};  ///< Two numbers of each recurrent layer (ops/training/saturation.h)
  Index scored = 0;                           ///< Positions of the batch with a target
  Index positions = 0;                        ///< Positions of the batch that exist
  double seconds = 0.0;                       ///< Of the run, when the batch was put on its way
};

/// Runs training steps of a model on a device. Batches are put on their way one after the other; what they came to is
/// known some steps later on a GPU, which never waits for the host, and at once on the CPU.
class StepRunner {
 public:
  /// `state` is how the run stands: a fresh one, or that of a checkpoint, with the state it carries.
  StepRunner(Model::Impl& model, const nn::TrainingShape& training, const Execution& execution,
             OptimizerState& optimizer, const StepState& state, std::vector<float> carried, Index carried_rows);
  ~StepRunner();

  /// Puts a batch on its way. `carry`: it goes on from the state that the last one left, if it continues it.
  void submit(const Example& example, bool carry, double time_fraction, StepResult expected);
  /// The oldest result that nobody has taken: if it is due, or if `wait` says that it cannot be waited for later.
  std::optional<StepResult> take(bool wait);

  /// Brings weights, optimiser and carried state to the host: of all batches that are on their way.
  void synchronize();
  const std::vector<float>& carried() const { return carried_; }
  Index carried_rows() const { return carried_rows_; }

  /// Sets the observer of the nodes of steps from now on, which are then not recorded; null: none.
  void observe(graph::Observer* observer) { observer_ = observer; }

 private:
  /// A program for batches of one shape, with its memory.
  struct Shape {
    std::unique_ptr<graph::Workspace> workspace;
    std::optional<ops::Recording> recording;
  };
  /// A batch in the host's memory, and where its result will be.
  struct Slot {
    std::optional<ops::StagingBuffer> inputs, status, time_fraction;
    std::optional<ops::Marker> copied, done;
    StepResult expected;
    bool busy = false;
  };
  /// Calls visit(buffer, values) for each slot of the optimiser, with its copy on the device.
  void for_each_slot(const auto& visit);
  Shape& shape_for(const ops::Target& target);
  void forget_recordings() {
    shapes_.for_each([](Shape& shape) { shape.recording.reset(); });
  }
  void start_state(const Example& example, bool carry);
  void upload(const Example& example, double time_fraction, Slot& slot);
  void bind(graph::Workspace& workspace) const;

  Model::Impl& model_;
  nn::TrainingShape training_;
  Execution execution_;
  OptimizerState& optimizer_;
  std::shared_ptr<graph::Weights> weights_;
  ops::Queue& queue_;
  // Batches have one shape, or two where the last of a pass is shorter.
  LastUsedCache<ops::Target, Shape> shapes_{2};
  DeviceBatch batch_;
  ops::Buffer gradients_, first_, second_, averages_, status_, state_in_, state_out_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  std::deque<std::size_t> under_way_;  // slots, oldest first
  std::vector<float> carried_;
  Index carried_rows_ = 0;
  graph::Observer* observer_ = nullptr;
};

}  // namespace penstock::training
