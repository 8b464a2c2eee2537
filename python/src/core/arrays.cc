#include "arrays.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <utility>

#include "device_arrays.h"

namespace penstock::python {
namespace {

/// Functions and dtypes of NumPy that calls need again and again. Never released, since it may be used until exit.
struct Numpy {
  nb::object ndarray, empty, asarray, ascontiguousarray, from_dlpack, can_cast, shares_memory;
  nb::object types[6];

  static const Numpy& get() {
    static const Numpy* numpy = new Numpy();
    return *numpy;
  }

 private:
  Numpy() {
    const nb::module_ module = nb::module_::import_("numpy");
    ndarray = module.attr("ndarray");
    empty = module.attr("empty");
    asarray = module.attr("asarray");
    ascontiguousarray = module.attr("ascontiguousarray");
    from_dlpack = module.attr("from_dlpack");
    can_cast = module.attr("can_cast");
    shares_memory = module.attr("shares_memory");
    for (const Scalar scalar : {Scalar::f32, Scalar::f64, Scalar::i32, Scalar::i64, Scalar::u8, Scalar::f16}) {
      types[static_cast<int>(scalar)] = module.attr("dtype")(name_of(scalar));
    }
  }
};

/// A type: its name, and the formats of Python's module `struct` for items in CPU memory, of this size.
struct Type {
  const char *name, *formats;
  Py_ssize_t bytes;
};

/// Returns the facts of a type.
const Type& type_of(Scalar scalar) {
  static constexpr Type types[] = {
      {"float32", "f", 4}, {"float64", "d", 8}, {"int32", "il", 4},  {"int64", "lq", 8},
      {"uint8", "B?b", 1}, {"float16", "", 2},  {"bfloat16", "", 2}, {"float32, bfloat16 or float16", "", 0}};
  return types[static_cast<std::size_t>(scalar)];
}

/// Returns whether items with this format and this size are numbers of type `scalar`.
bool is_item(const char* format, Py_ssize_t size, Scalar scalar) {
  if (format == nullptr) return scalar == Scalar::u8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return false;
  const Type& type = type_of(scalar);
  // The first format is the usual one.
  return size == type.bytes && (*format == type.formats[0] || std::strchr(type.formats, *format) != nullptr);
}

/// Returns whether a buffer has integers of any width. Integer arguments are small: other widths are copied to int64.
bool is_whole(const Py_buffer& view) {
  return view.format != nullptr && view.format[1] == '\0' && std::strchr("bhilqBHIL", view.format[0]) != nullptr;
}

[[noreturn]] void refuse_type(const char* name, Scalar wanted, const std::string& given) {
  throw nb::type_error((std::string(name) + " must be " + name_of(wanted) + ", not " + given).c_str());
}

/// Refuses masked arrays: masked values would be read as ordinary numbers.
void refuse_masked(nb::handle object, const char* name) {
  if (is_numpy(object)) return;  // as most are, and a masked array is of a subclass
  // The stable ABI of Python 3.12 and later has no tp_name.
  const auto type = nb::borrow<nb::str>(object.type().attr("__name__"));
  if (std::strcmp(type.c_str(), "MaskedArray") != 0) return;
  if (!nb::cast<bool>(nb::bool_(object.attr("mask").attr("any")()))) return;
  throw nb::type_error((std::string(name) + " must be an array without masked values; give it .filled(number), and say "
                                            "by lengths which steps of a row there are")
                           .c_str());
}

/// Refuses arrays in the memory of a GPU where the CPU has to read them.
void refuse_gpu(nb::handle object, const char* name) {
  const std::optional<Device> device = device_of(object, name);
  if (!device || !device->is_cuda()) return;
  refuse(std::string(name) + " must be in the memory of the CPU, not of " + to_string(*device) +
         "; copy it by .cpu(), .get() or .numpy()");
}

/// Returns an object with the buffer protocol for the memory of an array without it; a null object for no array.
nb::object with_buffer(nb::handle object, const char* name, bool output) {
  if (nb::hasattr(object, "__array_interface__")) {
    refuse_gpu(object, name);  // it may offer copies
    return Numpy::get().asarray(object);
  }
  if (!nb::hasattr(object, "__dlpack__")) return {};
  try {
    return Numpy::get().from_dlpack(with_signs(object, name, output));
  } catch (const nb::python_error&) {
    refuse_gpu(object, name);
    throw;
  }
}

/// Returns an array of NumPy for an object without a buffer: a view of its memory, or a copy of a list.
nb::object as_numpy(nb::handle object, const char* name, Scalar scalar) {
  nb::object view = with_buffer(object, name, false);
  if (view.is_valid()) return view;
  const Numpy& numpy = Numpy::get();
  if (nb::hasattr(object, "__array__")) {
    refuse_gpu(object, name);
    return numpy.asarray(object);
  }
  // A list without a dtype. Fractions are refused for integers instead of being cut off.
  const nb::object given = numpy.asarray(object), from = given.attr("dtype");
  const nb::object& type = numpy.types[static_cast<int>(scalar)];
  if (!nb::cast<bool>(numpy.can_cast(from, type, "same_kind"))) {
    refuse_type(name, scalar, nb::cast<std::string>(nb::str(from)));
  }
  return given.attr("astype")(type);
}

}  // namespace

const char* name_of(Scalar scalar) { return type_of(scalar).name; }

Scalar floats_of(nb::handle object) {
  Py_buffer view;
  if (PyObject_CheckBuffer(object.ptr()) && PyObject_GetBuffer(object.ptr(), &view, PyBUF_FULL_RO) == 0) {
    const bool wide = is_item(view.format, view.itemsize, Scalar::f64);
    PyBuffer_Release(&view);
    return wide ? Scalar::f64 : Scalar::f32;
  }
  PyErr_Clear();
  const nb::object type = nb::getattr(object, "dtype", nb::none());
  const bool wide = !type.is_none() && nb::cast<std::string>(nb::str(type)).ends_with("float64");
  return wide ? Scalar::f64 : Scalar::f32;
}

std::string text_of(std::span<const Index> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

bool is_numpy(nb::handle object) { return object.type().ptr() == Numpy::get().ndarray.ptr(); }

void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

bool Array::acquire(nb::handle object, int flags) {
  if (PyObject_GetBuffer(object.ptr(), &view_, flags | PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    view_.obj = nullptr;
    return false;
  }
  set_shape();
  return true;
}

void Array::set_shape() {
  static_assert(sizeof(Py_ssize_t) == sizeof(Index));
  shape_ = reinterpret_cast<const Index*>(view_.shape);  // both are 64-bit integers
}

// Delegates to the default constructor: the destructor then releases the buffer if this body throws.
Array::Array(nb::handle object, const char* name, Scalar scalar) : Array() {
  name_ = name;
  refuse_masked(object, name);
  nb::object made;
  if (!PyObject_CheckBuffer(object.ptr())) made = as_numpy(object, name, scalar);
  if (!acquire(made.is_valid() ? nb::handle(made) : object, 0)) {
    nb::python_error error;
    refuse_gpu(object, name);
    error.restore();
    throw nb::python_error();
  }
  if (scalar == Scalar::i64 && !is_item(view_.format, view_.itemsize, scalar) && is_whole(view_)) {
    *this = Array(this->object().attr("astype")("int64"), name, scalar);
  }
  check_type(scalar);
}

Array Array::output(nb::handle object, const char* name, Scalar scalar) {
  Array array;
  array.name_ = name;
  array.output_ = true;
  refuse_masked(object, name);
  nb::object view;
  if (!PyObject_CheckBuffer(object.ptr())) {
    view = with_buffer(object, name, true);
    if (!view.is_valid()) {
      refuse_gpu(object, name);
      const std::string type = nb::cast<std::string>(nb::handle(object.type()).attr("__name__"));
      throw nb::type_error((std::string(name) + " must be an array to write to, not " + type).c_str());
    }
  }
  if (!array.acquire(view.is_valid() ? nb::handle(view) : object, PyBUF_WRITABLE)) {
    PyErr_Clear();
    throw nb::value_error((std::string(name) + " must be writable").c_str());
  }
  array.check_type(scalar);
  return array;
}

Array Array::empty(std::span<const Index> shape, Scalar scalar) {
  const Numpy& numpy = Numpy::get();
  PyObject* sizes = PyTuple_New(static_cast<Py_ssize_t>(shape.size()));
  if (sizes == nullptr) throw nb::python_error();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SetItem(sizes, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  }
  const nb::object fresh = numpy.empty(nb::steal(sizes), numpy.types[static_cast<int>(scalar)]);
  Array array;
  array.output_ = true;
  if (!array.acquire(fresh, PyBUF_WRITABLE)) throw nb::python_error();
  return array;
}

nb::object with_signs(nb::handle object, const char* name, bool output) {
  const nb::object is_negative = nb::getattr(object, "is_neg", nb::none());
  if (is_negative.is_none() || !nb::cast<bool>(is_negative())) return nb::borrow(object);
  if (output) refuse(std::string(name) + " must hold its values and not their negatives (is_neg() is True)");
  return object.attr("resolve_neg")();
}

Array::Array(Array&& other) noexcept { *this = std::move(other); }

Array& Array::operator=(Array&& other) noexcept {
  std::swap(view_, other.view_);
  // A buffer of plain bytes keeps its shape and strides inside the Py_buffer itself.
  for (auto [view, old] : {std::pair{&view_, &other.view_}, std::pair{&other.view_, &view_}}) {
    if (view->shape == &old->len) view->shape = &view->len;
    if (view->strides == &old->itemsize) view->strides = &view->itemsize;
  }
  set_shape();
  other.set_shape();
  std::swap(name_, other.name_);
  std::swap(output_, other.output_);
  return *this;
}

Array::~Array() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

nb::object Array::object() const { return view_.obj == nullptr ? nb::none() : nb::borrow(view_.obj); }

void Array::check_type(Scalar scalar) const {
  if (is_item(view_.format, view_.itemsize, scalar)) return;
  const auto items = nb::steal(PyMemoryView_FromObject(view_.obj));
  if (!items.is_valid()) throw nb::python_error();
  const nb::object given = Numpy::get().asarray(items).attr("dtype");
  refuse_type(name_, scalar,
              nb::cast<std::string>(nb::str(given)) + "; convert it with .astype(numpy." + name_of(scalar) + ")");
}

bool Array::is_contiguous() const { return PyBuffer_IsContiguous(&view_, 'C') != 0; }

bool Array::has_whole_rows() const {
  if (size() == 0 || rank() == 0) return true;
  const int last = rank() - 1;
  if (shape_[last] > 1 && view_.strides[last] != view_.itemsize) return false;
  for (int axis = 0; axis < last; ++axis) {
    const Index stride = view_.strides[axis];
    if (shape_[axis] > 1 && (stride <= 0 || stride % view_.itemsize != 0)) return false;
  }
  return reinterpret_cast<std::uintptr_t>(view_.buf) % static_cast<std::size_t>(view_.itemsize) == 0;
}

Array Array::contiguous() && {
  const bool aligned = reinterpret_cast<std::uintptr_t>(view_.buf) % static_cast<std::size_t>(view_.itemsize) == 0;
  if (is_contiguous() && aligned) return std::move(*this);
  if (output_) refuse(std::string(name_) + " must be contiguous");
  return contiguous_copy();
}

Array Array::with_whole_rows() && {
  if (has_whole_rows()) return std::move(*this);
  if (output_) refuse(std::string(name_) + " must have contiguous channels and positive strides");
  return contiguous_copy();
}

Array Array::contiguous_copy() const {
  Array copy;
  copy.name_ = name_;
  if (!copy.acquire(Numpy::get().ascontiguousarray(object().attr("copy")()), 0)) throw nb::python_error();
  return copy;
}

void require_shape(const char* name, std::span<const Index> shape, std::span<const Index> wanted, const char* axes) {
  bool same = shape.size() == wanted.size();
  for (std::size_t i = 0; same && i < wanted.size(); ++i) same = wanted[i] < 0 || wanted[i] == shape[i];
  if (same) return;
  std::string sizes = "(";
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    sizes += (i > 0 ? ", " : "") + (wanted[i] < 0 ? std::string("any") : std::to_string(wanted[i]));
  }
  sizes += wanted.size() == 1 ? ",)" : ")";
  refuse(std::string(name) + " must have the shape " + axes + " = " + sizes + ", not " + text_of(shape));
}

bool share_memory(const Array& a, const Array& b) {
  const Numpy& numpy = Numpy::get();
  return nb::cast<bool>(numpy.shares_memory(numpy.asarray(a.object()), numpy.asarray(b.object())));
}

}  // namespace penstock::python
