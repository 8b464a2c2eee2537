#include "ops/batch_rows.h"

#include <numeric>

#include "base/check.h"

namespace penstock::ops {

void BatchRows::check(const Batch& batch) {
  require_argument(batch.rows >= 1, "batch.rows", batch.rows, "at least 1");
  require_argument(batch.steps >= 1, "batch.steps", batch.steps, "at least 1");
  const Index* lengths = batch.lengths;
  const Index* starts = batch.cu_seqlens;
  require(lengths == nullptr || starts == nullptr,
          "batch.lengths and batch.cu_seqlens exclude each other: rows are either padded or packed");
  if (starts != nullptr) require(starts[0] == 0, "batch.cu_seqlens[0] must be 0, not {}", starts[0]);
  require(!batch.by_steps || starts != nullptr, "batch.by_steps is of packed rows, and batch.cu_seqlens is null");
  if (starts == nullptr && lengths == nullptr) return;
  for (Index b = 0; b < batch.rows; ++b) {
    if (starts != nullptr) {
      if (batch.by_steps && b > 0) {
        const Index before = starts[b] - starts[b - 1], steps = starts[b + 1] - starts[b];
        require(steps <= before,
                "rows of a batch by steps must not become longer, and row {} has {} steps after one of {}", b, steps,
                before);
      }
      require(starts[b + 1] >= starts[b], "batch.cu_seqlens must not fall, but goes from {} to {} at row {}", starts[b],
              starts[b + 1], b);
      require(starts[b + 1] - starts[b] <= batch.steps,
              "batch.cu_seqlens gives row {} {} steps, more than batch.steps = {}", b, starts[b + 1] - starts[b],
              batch.steps);
    } else if (lengths != nullptr) {
      require(lengths[b] >= 0 && lengths[b] <= batch.steps, "batch.lengths[{}] must be 0 to batch.steps = {}, not {}",
              b, batch.steps, lengths[b]);
    }
  }
}

void BatchRows::read_lengths(const Batch& batch) {
  rows_ = batch.rows;
  steps_ = batch.steps;
  packed_ = batch.cu_seqlens != nullptr;
  by_steps_ = batch.by_steps;
  length_of_row_.resize(rows_);
  start_of_row_.resize(rows_);
  for (Index b = 0; b < rows_; ++b) {
    length_of_row_[b] = packed_                    ? batch.cu_seqlens[b + 1] - batch.cu_seqlens[b]
                        : batch.lengths != nullptr ? batch.lengths[b]
                                                   : steps_;
    start_of_row_[b] = packed_ ? batch.cu_seqlens[b] : 0;
  }
}

void BatchRows::order_rows() {
  row_of_slot_.resize(rows_);
  std::iota(row_of_slot_.begin(), row_of_slot_.end(), Index{0});
  const auto longer = [this](Index a, Index b) { return length_of_row_[a] > length_of_row_[b]; };
  if (!std::is_sorted(row_of_slot_.begin(), row_of_slot_.end(), longer)) {
    std::stable_sort(row_of_slot_.begin(), row_of_slot_.end(), longer);
  }
  length_of_slot_.resize(rows_);
  for (Index slot = 0; slot < rows_; ++slot) length_of_slot_[slot] = length_of_row_[row_of_slot_[slot]];
}

void BatchRows::count_steps() {
  step_start_.resize(steps_);
  Index before = 0, slots = rows_;
  for (Index t = 0; t < steps_; ++t) {
    while (slots > 0 && length_of_slot_[slots - 1] <= t) --slots;
    step_start_[t] = before;
    before += slots;
  }
}

void BatchRows::number_cells(const Batch& batch, Index x_row_stride, Index x_step_stride, Index input,
                             bool step_by_step) {
  const bool ragged = packed_ || std::any_of(length_of_row_.begin(), length_of_row_.end(),
                                             [this](Index length) { return length != steps_; });
  const bool batch_first = rows_ == 1 || x_row_stride == steps_ * x_step_stride;
  const bool time_first = steps_ == 1 || x_step_stride == rows_ * x_row_stride;
  input_stride_ = batch_first && steps_ > 1 ? x_step_stride : x_row_stride;
  if (rows_ == 1 && steps_ == 1) input_stride_ = input;
  gathered_ = ragged || !(batch_first || time_first) || input_stride_ < input;

  first_cell_.resize(rows_);
  first_reset_.resize(rows_);
  cells_ = 0;
  for (Index b = 0; b < rows_; ++b) {
    first_cell_[b] = !gathered_ && !batch_first ? b : cells_;
    first_reset_[b] = by_steps_ ? b : packed_ ? start_of_row_[b] : b * steps_;
    cells_ += length_of_row_[b];
  }
  if (gathered_ || by_steps_) count_steps();
  plan_.cells = {first_cell_.data(), !gathered_ && !batch_first ? rows_ : 1, nullptr};
  if (gathered_ && step_by_step) {
    for (Index slot = 0; slot < rows_; ++slot) first_cell_[row_of_slot_[slot]] = slot;
    plan_.cells.steps = step_start_.data();
  }
  plan_.reset = batch.reset;
  plan_.reset_map = {first_reset_.data(), 1, by_steps_ ? step_start_.data() : nullptr};
}

void BatchRows::prepare(const Batch& batch, Index x_row_stride, Index x_step_stride, Index input, bool reverse,
                        bool step_by_step) {
  const bool whole = batch.lengths == nullptr && batch.cu_seqlens == nullptr && batch.reset == nullptr;
  const WholeRows now{whole, reverse, step_by_step, batch.rows, batch.steps, x_row_stride, x_step_stride, input};
  if (whole && now == last_) return;
  check(batch);
  last_ = now;
  read_lengths(batch);
  order_rows();
  number_cells(batch, x_row_stride, x_step_stride, input, step_by_step);
  plan_.rows = rows_;
  plan_.row_of = row_of_slot_.data();
  plan_.length = length_of_slot_.data();
  plan_.reverse = reverse;
}

cpu::RowMap BatchRows::map(int which, Index row_stride, Index step_stride) {
  std::vector<Index>& first = map_first_[which];
  first.resize(rows_);
  if (by_steps_) {
    std::vector<Index>& steps = map_steps_[which];
    steps.resize(steps_);
    for (Index b = 0; b < rows_; ++b) first[b] = b * step_stride;
    for (Index t = 0; t < steps_; ++t) steps[t] = step_start_[t] * step_stride;
    return {first.data(), 0, steps.data()};
  }
  for (Index b = 0; b < rows_; ++b) first[b] = packed_ ? start_of_row_[b] * step_stride : b * row_stride;
  return {first.data(), step_stride, nullptr};
}

template <class Real>
void BatchRows::scatter(const Real* from, Index channels, SequenceView<Real> to) {
  const cpu::RowMap map_to = map(gradient_map, to.row_stride, to.step_stride);
  for (Index b = 0; b < rows_; ++b) {
    for (Index t = 0; t < length_of_row_[b]; ++t) {
      std::copy_n(from + plan_.cells.at(b, t) * channels, channels, to.data + map_to.at(b, t));
    }
  }
}

template <class Real>
void BatchRows::clear_padding(SequenceView<Real> tensor, Index channels) const {
  if (packed_) return;
  for (Index b = 0; b < rows_; ++b) {
    for (Index t = length_of_row_[b]; t < steps_; ++t) {
      std::fill_n(tensor.data + b * tensor.row_stride + t * tensor.step_stride, channels, Real(0));
    }
  }
}

template <class Real>
void BatchRows::to_slots(const Real* states, Index channels, Real* slots) const {
  for (Index slot = 0; slot < rows_; ++slot, slots += channels) {
    if (states == nullptr) {
      std::fill_n(slots, channels, Real(0));
    } else {
      std::copy_n(states + plan_.row_of[slot] * channels, channels, slots);
    }
  }
}

template <class Real>
void BatchRows::from_slots(const Real* slots, Index channels, Real* states) const {
  if (states == nullptr) return;
  for (Index slot = 0; slot < rows_; ++slot, slots += channels) {
    std::copy_n(slots, channels, states + plan_.row_of[slot] * channels);
  }
}

template void BatchRows::to_slots<float>(const float*, Index, float*) const;
template void BatchRows::to_slots<double>(const double*, Index, double*) const;
template void BatchRows::from_slots<float>(const float*, Index, float*) const;
template void BatchRows::from_slots<double>(const double*, Index, double*) const;
template void BatchRows::scatter<float>(const float*, Index, SequenceView<float>);
template void BatchRows::scatter<std::uint16_t>(const std::uint16_t*, Index, SequenceView<std::uint16_t>);
template void BatchRows::scatter<double>(const double*, Index, SequenceView<double>);
template void BatchRows::clear_padding<float>(SequenceView<float>, Index) const;
template void BatchRows::clear_padding<std::uint16_t>(SequenceView<std::uint16_t>, Index) const;
template void BatchRows::clear_padding<double>(SequenceView<double>, Index) const;

}  // namespace penstock::ops
