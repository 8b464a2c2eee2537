#pragma once

// How the backward pass of a scan layer cuts its batch. Private to src/ops.

#include <algorithm>
#include <vector>

#include "backend/cpu/kernels.h"

namespace penstock::ops {

/// Pieces of a batch, small enough that the gates' gradients of one stay in the cache; the last steps of a row come
/// first, so that each piece finds the gradient of the state that leaves it. A piece is made of spans, each of one row.
template <class Real>
class ScanPieces {
 public:
  /// Steps [begin, end) of a slot; step s is row first + s - begin of the piece.
  struct Span {
    Index slot, begin, end, first;
  };

  /// Without `mix_rows` a piece belongs to one row and begins at a multiple of `capacity` steps.
  void prepare(const cpu::RowPlan& rows, Index capacity, bool mix_rows) {
    rows_ = rows;
    capacity_ = capacity;
    mix_rows_ = mix_rows;
    slot_ = 0;
    end_ = rows.rows > 0 ? rows.length[0] : 0;
    first_.assign(static_cast<std::size_t>(rows.rows), 0);
    x_row_.resize(static_cast<std::size_t>(capacity));
    dx_row_.resize(static_cast<std::size_t>(capacity));
  }

  /// Goes to the next piece; false when there is none.
  bool advance(const Real* x, const cpu::RowMap& x_map, Real* dx, const cpu::RowMap& dx_map) {
    spans_.clear();
    cells_ = 0;
    while (slot_ < rows_.rows && cells_ < capacity_ && (mix_rows_ || spans_.empty())) {
      if (end_ == 0) {
        if (++slot_ < rows_.rows) end_ = rows_.length[slot_];
        continue;
      }
      const Index begin =
          mix_rows_ ? std::max<Index>(0, end_ - (capacity_ - cells_)) : (end_ - 1) / capacity_ * capacity_;
      spans_.push_back({slot_, begin, end_, cells_});
      place(spans_.back(), x, x_map, dx, dx_map);
      cells_ += end_ - begin;
      end_ = begin;
    }
    return cells_ > 0;
  }

  const std::vector<Span>& spans() const { return spans_; }
  Index cells() const { return cells_; }
  /// Where the steps of the present piece's rows are in it.
  cpu::RowMap map() const { return {first_.data(), rows_.reverse ? -1 : 1, nullptr}; }
  const Real* const* x_rows() const { return x_row_.data(); }
  Real* const* dx_rows() const { return dx_row_.data(); }

 private:
  void place(const Span& span, const Real* x, const cpu::RowMap& x_map, Real* dx, const cpu::RowMap& dx_map) {
    const Index row = rows_.row_of[span.slot];
    first_[row] = rows_.reverse ? span.first + rows_.time(span.slot, span.begin) : span.first - span.begin;
    for (Index step = span.begin; step < span.end; ++step) {
      const Index t = rows_.time(span.slot, step);
      const auto at = static_cast<std::size_t>(span.first + step - span.begin);
      x_row_[at] = x + x_map.at(row, t);
      if (dx != nullptr) dx_row_[at] = dx + dx_map.at(row, t);
    }
  }

  cpu::RowPlan rows_;
  Index capacity_ = 0, cells_ = 0, slot_ = 0, end_ = 0;
  bool mix_rows_ = true;
  std::vector<Span> spans_;
  std::vector<Index> first_;
  std::vector<const Real*> x_row_;
  std::vector<Real*> dx_row_;
};

}  // namespace penstock::ops
