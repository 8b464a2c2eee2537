#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string>
#include <vector>

#include "penstock/penstock.h"

/// NumPy's arrays, and whatever NumPy can view as one, as the library's views. Nothing is copied unless it says so.
namespace penstock::python {

namespace nb = nanobind;

using Shape = std::vector<Index>;

/// Types of numbers that cross the border.
enum class Scalar { f32, f64, i32, i64, u8 };

template <class T>
constexpr Scalar scalar_of();
template <>
constexpr Scalar scalar_of<float>() {
  return Scalar::f32;
}
template <>
constexpr Scalar scalar_of<double>() {
  return Scalar::f64;
}
template <>
constexpr Scalar scalar_of<std::int32_t>() {
  return Scalar::i32;
}
template <>
constexpr Scalar scalar_of<Index>() {
  return Scalar::i64;
}
template <>
constexpr Scalar scalar_of<std::uint8_t>() {
  return Scalar::u8;  // NumPy's bool as well
}

/// NumPy's name: "float32".
const char* name_of(Scalar scalar);

/// "(2, 3)", as NumPy prints a shape.
std::string text_of(std::span<const Index> shape);

/// What kind of floats an argument holds, f32 or f64: f64 only if it is an array of those.
Scalar floats_of(nb::handle object);

/// Throws Error(invalid_argument), as `require` of the library does.
[[noreturn]] void refuse(const std::string& message);

/// An argument that is an array on the CPU: its numbers stay where they are and are kept alive.
class Array {
 public:
  /// Nothing.
  Array() = default;
  /// Reads `object`: an array of NumPy or of any other library (buffer protocol, __array_interface__, DLPack), which
  /// must hold numbers of this type, or a list of numbers, which is copied. Throws TypeError naming the argument.
  Array(nb::handle object, const char* name, Scalar scalar);
  /// To be written to. A list is refused.
  static Array output(nb::handle object, const char* name, Scalar scalar);
  /// A new array, not initialised.
  static Array empty(std::span<const Index> shape, Scalar scalar);

  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  explicit operator bool() const { return view_.obj != nullptr; }
  const char* name() const { return name_; }
  std::span<const Index> shape() const { return {shape_, static_cast<std::size_t>(view_.ndim)}; }
  /// Of an axis, in numbers.
  Index stride(std::size_t axis) const { return view_.strides[axis] / view_.itemsize; }
  int rank() const { return view_.ndim; }
  Index size() const { return view_.len / view_.itemsize; }
  void* data() const { return view_.buf; }
  template <class T>
  T* as() const {
    return static_cast<T*>(view_.buf);
  }
  template <class T>
  std::span<const T> values() const {
    return {as<const T>(), static_cast<std::size_t>(size())};
  }

  /// The object of Python whose numbers these are.
  nb::object object() const;
  bool is_contiguous() const;
  /// This array, or a copy without gaps if it has any.
  Array contiguous() &&;
  /// This array if its last axis has no gaps and no stride is negative, zero or odd; otherwise a copy. Of outputs:
  /// throws.
  Array with_whole_rows() &&;
  /// Throws Error(invalid_argument) unless the shape is this; -1 allows any size. `axes` names them: "(B, T, I)".
  void require_shape(std::span<const Index> wanted, const char* axes) const;

 private:
  bool acquire(nb::handle object, int flags);
  void set_shape();
  bool has_whole_rows() const;
  void check_type(Scalar scalar) const;

  Py_buffer view_ = {};
  const Index* shape_ = nullptr;
  const char* name_ = "";
  bool output_ = false;
};

/// The optional argument: an empty Array for None.
Array optional_array(nb::handle object, const char* name, Scalar scalar);

}  // namespace penstock::python
