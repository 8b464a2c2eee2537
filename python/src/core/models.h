#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "penstock/forecast/score.h"

namespace penstock::python {

/// A model or a dataset of Python. Any number of calls may read it at the same time, or one call may change it. A
/// conflicting call is refused instead of waiting, because a callback of the changing call would wait forever.
template <class T>
class Shared {
 public:
  /// `what` is its name in messages, such as "the model".
  Shared(T value, const char* what) : value_(std::move(value)), what_(what) {}

  /// A call that reads the value (`Seen` is const T) or changes it.
  template <class Seen>
  class Use {
   public:
    /// Throws Error(invalid_argument) while another call changes the value or, to change it, uses it.
    explicit Use(Shared& owner) : owner_(owner) {
      int users = 0;
      while (!owner_.users_.compare_exchange_weak(users, changes ? changing : users + 1)) {
        if (changes && users != 0) owner_.refuse_use(" is in use by another call");
        if (users == changing) owner_.refuse_use(" is being trained with: use it once train() has returned");
      }
    }
    ~Use() { owner_.users_ += changes ? 1 : -1; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Seen& operator*() const { return owner_.value_; }
    Seen* operator->() const { return &owner_.value_; }

   private:
    static constexpr bool changes = !std::is_const_v<Seen>;
    Shared& owner_;
  };
  using Reading = Use<const T>;
  using Writing = Use<T>;

 private:
  static constexpr int changing = -1;

  [[noreturn]] void refuse_use(const char* why) const { refuse(what_ + std::string(why)); }

  T value_;
  const char* what_;
  std::atomic<int> users_ = 0;
};

using SharedModel = Shared<Model>;
using SharedDataset = Shared<std::unique_ptr<Dataset>>;

/// Returns the value of an enumeration whose names are given in their order. Throws Error(invalid_argument), which
/// names the argument and all names.
template <class Enum>
Enum named(const char* argument, std::string_view text, const auto& names) {
  std::vector<std::string> all(names.begin(), names.end());
  const auto found = std::ranges::find(all, text);
  if (found == all.end()) fail_choice(argument, text, std::move(all));
  return static_cast<Enum>(found - all.begin());
}

/// Returns the model of a series that has a forecast of its own; empty for other series and an empty name.
std::optional<Model> model_of_group(const Model& model, const std::string& group);
/// Returns how to compute this work; if the device is to be chosen, on the one that takes less time.
Execution settled(const Model& model, const CallExecution& execution, DeviceQuestion question);
/// Returns the architecture of a model from the fields of a dictionary.
ModelSpec spec_from(const nb::dict& fields);
/// Returns an architecture or the description of data as a dictionary of plain values.
nb::dict describe(const ModelSpec& spec);
nb::dict describe(const DataDescription& data);

/// Returns the scores of forecasts by the names of the columns.
nb::dict describe_scores(const std::vector<ColumnScore>& columns);

/// Binds what reads and writes files of models, as functions of the module and methods of its class Model.
void bind_model_files(nb::module_& module, nb::class_<SharedModel>& model);

}  // namespace penstock::python
