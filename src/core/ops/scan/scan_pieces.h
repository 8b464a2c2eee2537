#pragma once

// How the backward pass of a scan layer cuts its batch. Private to src/core/ops.

#include <algorithm>
#include <vector>

#include "backend/cpu/kernels.h"
#include "ops/scan/stored_view.h"

namespace penstock::ops {

/// Places of the rows of a piece in a sequence, each [I], as the sequence is stored.
template <class Real>
struct PieceOfSequence {
  std::vector<Real*> reals;
  std::vector<cpu::Bf16Of<Real>*> bf16;

  void resize(Index rows) {
    reals.resize(static_cast<std::size_t>(rows));
    bf16.resize(static_cast<std::size_t>(rows));
  }
  void place(std::size_t row, const StoredView<Real>& sequence, Index offset) {
    if (sequence.bf16 != nullptr) {
      bf16[row] = sequence.bf16 + offset;
    } else if (sequence.data != nullptr) {
      reals[row] = sequence.data + offset;
    }
  }
};

/// Pieces of a batch, small enough that the gates' gradients of one stay in the cache; the last steps of a row come
/// first, so that each piece finds the gradient of the state that leaves it. A piece is made of spans, each of one row.
template <class Real>
class ScanPieces {
 public:
  /// Steps [begin, end) of a slot; step s is row first + s - begin of the piece.
  struct Span {
    Index slot, begin, end, first;
  };

  /// Prepares pieces. Without `mix_rows`, a piece belongs to one row and begins at a multiple of `capacity` steps.
  void prepare(const cpu::RowPlan& rows, Index capacity, bool mix_rows) {
    rows_ = rows;
    capacity_ = capacity;
    mix_rows_ = mix_rows;
    slot_ = 0;
    end_ = rows.rows > 0 ? rows.length[0] : 0;
    first_.assign(static_cast<std::size_t>(rows.rows), 0);
    x_.resize(capacity);
    dx_.resize(capacity);
  }

  /// Advances to the next piece; false when there is none.
  bool advance(const StoredView<const Real>& x, const cpu::RowMap& x_map, const StoredView<Real>& dx,
               const cpu::RowMap& dx_map) {
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
  /// Returns the places of the steps of the present piece's rows in it.
  cpu::RowMap map() const { return {first_.data(), rows_.reverse ? -1 : 1, nullptr}; }
  const PieceOfSequence<const Real>& x() const { return x_; }
  const PieceOfSequence<Real>& dx() const { return dx_; }

 private:
  void place(const Span& span, const StoredView<const Real>& x, const cpu::RowMap& x_map, const StoredView<Real>& dx,
             const cpu::RowMap& dx_map) {
    const Index row = rows_.row_of[span.slot];
    first_[row] = rows_.reverse ? span.first + rows_.time(span.slot, span.begin) : span.first - span.begin;
    for (Index step = span.begin; step < span.end; ++step) {
      const Index t = rows_.time(span.slot, step);
      const auto at = static_cast<std::size_t>(span.first + step - span.begin);
      x_.place(at, x, x_map.at(row, t));
      if (dx) dx_.place(at, dx, dx_map.at(row, t));
    }
  }

  cpu::RowPlan rows_;
  Index capacity_ = 0, cells_ = 0, slot_ = 0, end_ = 0;
  bool mix_rows_ = true;
  std::vector<Span> spans_;
  std::vector<Index> first_;
  PieceOfSequence<const Real> x_;
  PieceOfSequence<Real> dx_;
};

}  // namespace penstock::ops
