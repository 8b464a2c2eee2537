#include <algorithm>
#include <cstring>

#include "stream/pool_rows.h"
#include "stream/session_rows.h"

namespace penstock::streaming {

namespace {

class ModelPoolRows final : public PoolRows {
 public:
  ModelPoolRows(const Model::Impl& model, Index rows, const Execution& execution) : rows_(model, rows, execution) {}

  Index rows() const override { return rows_.rows(); }
  void set_row(Index row, const float* state, const void* step) override {
    rows_.set_row(row, state);
    const std::size_t bytes = rows_.input_bytes() / static_cast<std::size_t>(rows());
    std::memcpy(static_cast<std::byte*>(rows_.input()) + static_cast<std::size_t>(row) * bytes, step, bytes);
  }
  void step() override { outputs_ = rows_.step().data(); }
  void copy_outputs(Index row, float* outputs) const override {
    const Index width = rows_.data().output_size();
    std::copy_n(outputs_ + row * width, width, outputs);
  }
  void copy_state(Index row, float* state) const override { rows_.copy_row(row, state); }

 private:
  SessionRows rows_;
  const float* outputs_ = nullptr;
};

}  // namespace

PoolForm form_of(const Model::Impl& model, Index capacity, const Execution& execution) {
  // Engines compute four rows at a time, and two. Up to 64 rows each weight that is read serves as many products, and
  // states and products still fit the cache.
  std::vector<Index> sizes = {1, 2, 4, 6};
  for (Index rows = 8; rows <= 64; rows += 4) sizes.push_back(rows);
  std::erase_if(sizes, [&](Index rows) { return rows >= 2 * capacity; });
  const DataDescription& data = model.data;
  return {.vocabulary = data.vocabulary,
          .inputs = data.vocabulary > 0 ? 1 : data.input_size(),
          .outputs = data.output_size(),
          .state_size = model.state_size,
          .sizes = sizes,
          .pads = true,
          .batches = [&model, sizes, execution] {
            std::vector<std::unique_ptr<PoolRows>> batches;
            for (const Index rows : sizes) batches.push_back(std::make_unique<ModelPoolRows>(model, rows, execution));
            return batches;
          }};
}

}  // namespace penstock::streaming
