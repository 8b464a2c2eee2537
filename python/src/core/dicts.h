#pragma once

#include <nanobind/nanobind.h>

#include <initializer_list>
#include <set>
#include <string>
#include <type_traits>

#include "arrays.h"
#include "bindings.h"
#include "penstock/error.h"
#include "penstock/fields.h"

/// Dictionaries of Python for structs of the library, and back.
namespace penstock::python {

/// One entry of a dictionary.
struct Entry {
  template <class T>
  Entry(const char* key, const T& content) : name(key), value(nb::cast(content)) {}

  const char* name;
  nb::object value;
};

/// Returns a dictionary: dict_of({{"name", gpu.name}, {"bytes", gpu.bytes}}).
inline nb::dict dict_of(std::initializer_list<Entry> entries) {
  nb::dict result;
  for (const Entry& entry : entries) result[entry.name] = entry.value;
  return result;
}

/// A struct for which there is visit_fields().
template <class T>
concept HasFields = requires(const T& value) {
  visit_fields(value, [](const char*, const auto&) {});
};

/// Returns the fields of a struct. Those that are structs become dictionaries, too.
template <HasFields T>
nb::dict fields_of(const T& value) {
  nb::dict result;
  visit_fields(value, [&]<class Field>(const char* name, const Field& field) {
    if constexpr (HasFields<Field>) {
      result[name] = fields_of(field);
    } else if constexpr (std::is_same_v<Field, Message>) {
      result[name] = nb::cast(field.text(argument_words));
    } else {
      result[name] = nb::cast(field);
    }
  });
  return result;
}

/// Reads values of a dictionary, such as the keyword arguments of a function, and notices those that nobody reads.
class Fields {
 public:
  explicit Fields(const nb::dict& dict) : dict_(dict) {}

  /// Reads a value. Leaves `value` as it is if there is none, or None. Throws TypeError, which names the field.
  template <class T>
  void read(const std::string& name, T& value) {
    if (!dict_.contains(name.c_str())) return;
    known_.insert(name);
    const nb::object given = dict_[name.c_str()];
    if (!given.is_none() && !nb::try_cast<T>(given, value)) {
      const std::string type = nb::cast<std::string>(given.type().attr("__name__"));
      throw nb::type_error((name + " must not be of type " + type).c_str());
    }
  }
  template <class T>
  T get(const char* name, T value = {}) {
    read(name, value);
    return value;
  }
  /// Reads all fields of a struct; `key_of` returns the key of a field's name, by default the name.
  template <HasFields T>
  void read_all(T& value, std::string (*key_of)(const std::string&) = nullptr) {
    visit_fields(value, [&](const char* name, auto& field) { read(key_of == nullptr ? name : key_of(name), field); });
  }
  /// Throws Error(invalid_argument) if the dictionary has fields that were not read. `what` has them, "training".
  void finish(const char* what) const {
    if (known_.size() != nb::len(dict_)) refuse(std::string("there is an unknown option of ") + what);
  }

 private:
  const nb::dict& dict_;
  std::set<std::string> known_;
};

}  // namespace penstock::python
