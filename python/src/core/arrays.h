#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "penstock/penstock.h"

/// Views of NumPy arrays and of other objects that NumPy can view as arrays. Nothing is copied unless stated.
namespace penstock::python {

namespace nb = nanobind;

using Shape = std::vector<Index>;

/// Types of numbers in arguments and results. u8 is also NumPy's bool. Arguments are bf16 or f16 on a GPU only;
/// `gpu_floats` stands for whichever of f32, bf16 and f16 such an argument has.
enum class Scalar { f32, f64, i32, i64, u8, f16, bf16, gpu_floats };

/// The type of numbers of the host.
template <class T>
constexpr Scalar scalar_of = std::is_same_v<T, double>         ? Scalar::f64
                             : std::is_same_v<T, std::int32_t> ? Scalar::i32
                             : std::is_same_v<T, std::int64_t> ? Scalar::i64
                             : std::is_same_v<T, std::uint8_t> ? Scalar::u8
                                                               : Scalar::f32;

/// Returns NumPy's name of a type, such as "float32", or that of JAX and PyTorch, "bfloat16".
const char* name_of(Scalar scalar);

/// Returns a shape as NumPy prints it, such as "(2, 3)".
std::string text_of(std::span<const Index> shape);

/// Returns f64 for an array of float64, f32 for any other object.
Scalar floats_of(nb::handle object);

/// Returns whether this is an array of NumPy, as most are, and of no subclass.
bool is_numpy(nb::handle object);

/// Throws Error(invalid_argument) with this message.
[[noreturn]] void refuse(const std::string& message);

/// Throws Error(invalid_argument), which names the array, unless it has this shape; -1 allows any size. `axes` names
/// the axes in the message, such as "(B, T, I)".
void require_shape(const char* name, std::span<const Index> shape, std::span<const Index> wanted, const char* axes);

/// An argument that is an array in CPU memory. It is not copied, and is kept alive.
class Array {
 public:
  /// No array.
  Array() = default;
  /// Views `object`, an array with the buffer protocol, __array_interface__ or DLPack and this element type. A list of
  /// numbers is copied. Throws TypeError, which names the argument.
  Array(nb::handle object, const char* name, Scalar scalar);
  /// Returns a writable view. Refuses lists.
  static Array output(nb::handle object, const char* name, Scalar scalar);
  /// Returns a new uninitialised array.
  static Array empty(std::span<const Index> shape, Scalar scalar);

  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;
  ~Array();

  explicit operator bool() const { return view_.obj != nullptr; }
  const char* name() const { return name_; }
  std::span<const Index> shape() const { return {shape_, static_cast<std::size_t>(view_.ndim)}; }
  /// Returns the stride of an axis in elements.
  Index stride(std::size_t axis) const { return view_.strides[axis] / view_.itemsize; }
  int rank() const { return view_.ndim; }
  Index size() const { return view_.len / view_.itemsize; }
  Index bytes() const { return view_.len; }
  void* data() const { return view_.buf; }
  template <class T>
  T* as() const {
    return static_cast<T*>(view_.buf);
  }
  template <class T>
  std::span<const T> values() const {
    return {as<const T>(), static_cast<std::size_t>(size())};
  }

  /// Returns the Python object that owns the numbers.
  nb::object object() const;
  bool is_contiguous() const;
  /// Returns this array if it is contiguous, otherwise a contiguous copy.
  Array contiguous() &&;
  /// Returns this array if it is aligned, its last axis is contiguous and strides are positive multiples of an element;
  /// otherwise a copy. Throws for outputs that would need a copy.
  Array with_whole_rows() &&;
  void require_shape(std::span<const Index> wanted, const char* axes) const {
    python::require_shape(name_, shape(), wanted, axes);
  }

 private:
  bool acquire(nb::handle object, int flags);
  Array contiguous_copy() const;
  void set_shape();
  bool has_whole_rows() const;
  void check_type(Scalar scalar) const;

  Py_buffer view_ = {};
  const Index* shape_ = nullptr;
  const char* name_ = "";
  bool output_ = false;
};

/// Returns numbers as a new array of NumPy.
template <class Real>
nb::object array_of(std::span<const Index> shape, const std::vector<Real>& numbers) {
  const Array array = Array::empty(shape, scalar_of<Real>);
  std::ranges::copy(numbers, array.as<Real>());
  return array.object();
}

/// Returns an array of DLPack that holds its values: memory of PyTorch may hold their negatives, as that of
/// `x.conj().imag` does, and DLPack does not tell. Throws Error(invalid_argument) for such an output.
nb::object with_signs(nb::handle object, const char* name, bool output);

/// Returns whether two arrays have elements in common.
bool share_memory(const Array& a, const Array& b);

}  // namespace penstock::python
