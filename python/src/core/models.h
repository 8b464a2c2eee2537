#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "arrays.h"

namespace penstock::python {

/// A model or a dataset as Python sees it. Any number of calls may read it at once, or one may change it; whoever comes
/// in between is told so, rather than made to wait: a callback of the change itself would wait forever.
template <class T>
class Shared {
 public:
  /// `what` is its name in messages: "the model".
  Shared(T value, const char* what) : value_(std::move(value)), what_(what) {}

  class Reading {
   public:
    /// Throws Error(invalid_argument) while it is being changed.
    explicit Reading(Shared& owner) : owner_(owner) {
      int users = owner_.users_;
      do {
        if (users == changing) owner_.refuse_use(" is being trained with: use it once train() has returned");
      } while (!owner_.users_.compare_exchange_weak(users, users + 1));
    }
    ~Reading() { --owner_.users_; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    const T& operator*() const { return owner_.value_; }
    const T* operator->() const { return &owner_.value_; }

   private:
    Shared& owner_;
  };

  class Writing {
   public:
    /// Throws Error(invalid_argument) while anybody uses it.
    explicit Writing(Shared& owner) : owner_(owner) {
      int nobody = 0;
      if (!owner_.users_.compare_exchange_strong(nobody, changing)) owner_.refuse_use(" is in use by another call");
    }
    ~Writing() { owner_.users_ = 0; }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;
    T& operator*() const { return owner_.value_; }

   private:
    Shared& owner_;
  };

 private:
  static constexpr int changing = -1;

  [[noreturn]] void refuse_use(const char* why) const { refuse(what_ + std::string(why)); }

  T value_;
  const char* what_;
  std::atomic<int> users_ = 0;
};

using SharedModel = Shared<Model>;
using SharedDataset = Shared<std::unique_ptr<Dataset>>;

/// How a call computes whose work is known: question.execution, or where `device` is "auto" that on the device that
/// takes less time.
Execution settled(const Model& model, const std::string& device, const DeviceQuestion& question);
/// A model's architecture from the fields that a dictionary has.
ModelSpec spec_from(const nb::dict& fields);
/// The fields of TrainOptions that a dictionary has, with the device that is chosen for batches of these sizes where it
/// is open. Throws Error(invalid_argument) for a name that is none.
TrainOptions settled_options(const nb::dict& fields, const Model& model, bool training);

/// The description of data as a dictionary of plain values.
nb::dict describe(const DataDescription& data);

}  // namespace penstock::python
