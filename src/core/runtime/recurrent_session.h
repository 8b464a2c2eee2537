#pragma once

#include "runtime/recurrent_model.h"
#include "runtime/session.h"

namespace penstock::runtime {

/// A stream of a recurrent model: this object, the jobs of its layers, then its floats.
class RecurrentSession final : public Session {
 public:
  using Job = cpu::CustomStep<float>;

  RecurrentSession(RecurrentModel& model, Job* jobs, float* floats, void* own);

 protected:
  void step(const float* features, std::int32_t token, float* outputs) override;
  void return_to_start() override;
  void read_state(void* bytes) const override;
  void write_state(const void* bytes) override;
  void take_state(const Session& other) override;

 private:
  void prepare(std::size_t layer);
  void run(const Instruction& instruction, std::int32_t token);
  void embedding(const Instruction& instruction, std::int32_t token);
  void linear(const Instruction& instruction);
  void int8_linear(const Instruction& instruction);
  void int8_recurrence(const Layer& layer, const Job& job);
  void norm(const Instruction& instruction);
  void convolution(const Instruction& instruction);
  void recurrence(const Instruction& instruction);
  void read_changes(const Instruction& instruction);
  void add_last(const Instruction& instruction);
  float* at(Place place) const { return floats_ + place; }

  const RecurrentModel* model_;
  Job* jobs_;      // [layers]
  float* floats_;  // [RecurrentModel::floats], the state first
};

}  // namespace penstock::runtime
