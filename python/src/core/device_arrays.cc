#include "device_arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings.h"
#include "penstock/cuda.h"

namespace penstock::python {
namespace {

using NumberCode = nb::dlpack::dtype_code;

/// The default stream of CUDA, which waits for all streams but non-blocking ones, as both protocols number it.
constexpr std::uintptr_t kLegacyStream = 1;

constexpr nb::dlpack::dtype half(NumberCode code) { return {static_cast<std::uint8_t>(code), 16, 1}; }

/// The types of numbers in the order of Scalar.
constexpr std::array kNumberTypes = {nb::dtype<float>(),        nb::dtype<double>(),       nb::dtype<std::int32_t>(),
                                     nb::dtype<std::int64_t>(), nb::dtype<std::uint8_t>(), half(NumberCode::Float),
                                     half(NumberCode::Bfloat)};

nb::dlpack::dtype number_type(Scalar scalar) { return kNumberTypes[static_cast<std::size_t>(scalar)]; }

std::size_t number_bytes(Scalar scalar) { return number_type(scalar).bits / 8; }

/// Returns NumPy's name of a type: "float32", "bfloat16", ...
std::string number_name(nb::dlpack::dtype type) {
  const auto code = static_cast<NumberCode>(type.code);
  if (code == NumberCode::Bool) return "bool";
  const char* kind = code == NumberCode::Int       ? "int"
                     : code == NumberCode::UInt    ? "uint"
                     : code == NumberCode::Float   ? "float"
                     : code == NumberCode::Bfloat  ? "bfloat"
                     : code == NumberCode::Complex ? "complex"
                                                   : "of another kind with bits: ";
  return kind + std::to_string(type.bits) + (type.lanes == 1 ? "" : " in vectors");
}

[[noreturn]] void refuse_read_only(const char* name) {
  throw nb::value_error((std::string(name) + " must be writable").c_str());
}

std::uintptr_t address_of(nb::handle interface) { return nb::cast<std::uintptr_t>(interface["data"][0]); }

/// Calls `__dlpack__` for use in this stream.
nb::object capsule_of(nb::handle array, const Stream& stream) {
  nb::dict options;
  if (stream.device().is_cuda()) options["stream"] = reinterpret_cast<std::uintptr_t>(stream.handle());
  const nb::object export_array = array.attr("__dlpack__");
  try {
    // Only capsules of version 1 tell read-only arrays.
    return export_array(**options, nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return export_array(**options);  // an older library
}

Shape strides_without_gaps(const Shape& shape) {
  Shape strides(shape.size());
  Index stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

}  // namespace

/// The memory of a result.
struct DeviceArray::Memory {
  Memory(Stream& stream, std::size_t bytes) : buffer(stream, bytes), device(stream.device()) {}
  ~Memory() {
    try {
      settle();
    } catch (const Error&) {
      // The GPU has failed, as the next call will say.
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Waits for work of other libraries on this memory: in which streams it is, nobody tells.
  void settle() const {
    if (exported) synchronize(device);
  }

  Buffer buffer;
  Device device;
  std::atomic<bool> exported = false;
};

std::optional<Device> device_of(nb::handle object, const char* name) {
  if (is_numpy(object)) return std::nullopt;
  // CuPy's arrays have the buffer protocol too, and refuse it.
  const DeviceArray* own = nullptr;
  if (nb::try_cast(object, own) && own != nullptr) return own->device();
  if (nb::hasattr(object, "__dlpack_device__")) {
    const auto [type, index] = nb::cast<std::pair<int, int>>(object.attr("__dlpack_device__")());
    if (type == nb::device::cuda::value || type == nb::device::cuda_managed::value) return Device::cuda(index);
    if (type == nb::device::cpu::value || type == nb::device::cuda_host::value) return Device::cpu();
    refuse(std::string(name) +
           " must be in the memory of the CPU or of an NVIDIA GPU, not on a device of DLPack's type " +
           std::to_string(type));
  }
  if (!nb::hasattr(object, "__cuda_array_interface__")) return std::nullopt;
  const std::uintptr_t address = address_of(object.attr("__cuda_array_interface__"));
  if (address == 0) refuse(std::string(name) + " must not be an empty array");
  return gpu_of(reinterpret_cast<const void*>(address));  // NOLINT(performance-no-int-to-ptr)
}

std::optional<Device> place_of(nb::handle object, const char* name, bool copied) {
  std::optional<Device> place = device_of(object, name);
  if (place && !place->is_cuda() && !copied) place.reset();
  return place;
}

DeviceArray::DeviceArray(nb::handle object, const char* name, Scalar scalar, const std::shared_ptr<Stream>& stream,
                         bool writable)
    : name_(name), scalar_(scalar), stream_(stream) {
  const DeviceArray* own = nullptr;
  if (nb::try_cast(object, own) && own != nullptr) {
    check_device(own->device());
    own->settle();
    check_type(name_of(own->scalar_));
    memory_ = own->memory_;
    data_ = own->data_;
    shape_ = own->shape_, strides_ = own->strides_;
    return;
  }
  check_device(python::device_of(object, name).value_or(Device::cpu()));
  if (nb::hasattr(object, "__dlpack__")) {
    import_dlpack(object, writable);
  } else if (nb::hasattr(object, "__cuda_array_interface__")) {
    import_interface(object.attr("__cuda_array_interface__"), writable);
    owner_ = std::make_shared<nb::object>(nb::borrow(object));
  } else {
    refuse(std::string(name) + " must be an array on " + to_string(stream->device()) + ", where the call runs");
  }
}

void DeviceArray::check_device(Device given) const {
  if (given == stream_->device()) return;
  refuse(std::string(name_) + " must be in the memory of " + to_string(stream_->device()) +
         ", where the call runs, not of " + to_string(given));
}

void DeviceArray::check_type(const std::string& given) {
  if (given == name_of(scalar_) || (scalar_ == Scalar::u8 && given == "bool")) return;
  std::vector<Scalar> others;
  if (scalar_ == Scalar::i64) others = {Scalar::i32};  // what JAX has for whole numbers
  if (scalar_ == Scalar::gpu_floats) others = {Scalar::f32, Scalar::bf16, Scalar::f16};
  const auto found = std::ranges::find(others, given, name_of);
  if (found == others.end()) {
    throw nb::type_error((std::string(name_) + " must be " + name_of(scalar_) + ", not " + given).c_str());
  }
  scalar_ = *found;
}

void DeviceArray::import_dlpack(nb::handle object, bool writable) {
  const nb::object capsule = capsule_of(with_signs(object, name_, writable), *stream_);
  nb::ndarray<nb::ro> array;
  if (writable) {
    nb::ndarray<> output;
    if (!nb::try_cast(capsule, output)) refuse_read_only(name_);
    array = nb::ndarray<nb::ro>(output);
  } else {
    array = nb::cast<nb::ndarray<nb::ro>>(capsule);
  }
  check_type(number_name(array.dtype()));
  data_ = const_cast<void*>(array.data());
  shape_.assign(array.shape_ptr(), array.shape_ptr() + array.ndim());
  strides_.assign(array.stride_ptr(), array.stride_ptr() + array.ndim());
  owner_ = std::make_shared<nb::ndarray<nb::ro>>(std::move(array));
}

void DeviceArray::import_interface(nb::handle interface, bool writable) {
  const auto entry = [&](const char* key) -> nb::object { return interface.attr("get")(key, nb::none()); };
  const nb::object type = nb::module_::import_("numpy").attr("dtype")(interface["typestr"]);
  check_type(nb::cast<std::string>(nb::str(type)));
  if (!entry("mask").is_none()) refuse(std::string(name_) + " must be an array without a mask");
  if (writable && nb::cast<bool>(interface["data"][1])) refuse_read_only(name_);
  data_ = reinterpret_cast<void*>(address_of(interface));  // NOLINT(performance-no-int-to-ptr)
  shape_ = nb::cast<Shape>(interface["shape"]);
  strides_ = strides_without_gaps(shape_);
  if (const nb::object strides = entry("strides"); !strides.is_none()) {
    strides_ = nb::cast<Shape>(strides);
    const auto size = static_cast<Index>(number_bytes(scalar_));
    for (Index& stride : strides_) {
      if (stride % size != 0) refuse(std::string(name_) + " must have strides of whole numbers");
      stride /= size;
    }
  }
  // None: no work is left. Without the entry, as before version 3 of the protocol, work is in the default stream.
  const bool tells = nb::cast<bool>(interface.attr("__contains__")("stream"));
  if (tells && entry("stream").is_none()) return;
  const auto stream = tells ? nb::cast<std::uintptr_t>(entry("stream")) : kLegacyStream;
  if (stream == 0) refuse(std::string(name_) + " must name a stream other than 0 in __cuda_array_interface__");
  stream_->wait_for(reinterpret_cast<void*>(stream));  // NOLINT(performance-no-int-to-ptr)
}

DeviceArray DeviceArray::empty(const std::shared_ptr<Stream>& stream, std::span<const Index> shape, Scalar scalar) {
  DeviceArray array;
  array.stream_ = stream;
  array.scalar_ = scalar;
  array.shape_.assign(shape.begin(), shape.end());
  array.strides_ = strides_without_gaps(array.shape_);
  array.memory_ = std::make_shared<Memory>(*stream, array.bytes());
  array.data_ = array.memory_->buffer.data();
  return array;
}

Index DeviceArray::size() const {
  Index size = 1;
  for (const Index extent : shape_) size *= extent;
  return size;
}

std::size_t DeviceArray::bytes() const { return static_cast<std::size_t>(size()) * number_bytes(scalar_); }

void DeviceArray::settle() const {
  if (memory_) memory_->settle();
}

void DeviceArray::clear() { memory_->buffer.clear(); }

DeviceArray DeviceArray::named(const char* name) && {
  name_ = name;
  return std::move(*this);
}

DeviceArray DeviceArray::with_whole_rows() && {
  const std::size_t last = shape_.empty() ? 0 : shape_.size() - 1;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    if (shape_[axis] <= 1 || (axis == last ? strides_[axis] == 1 : strides_[axis] > 0)) continue;
    refuse(std::string(name_) + " on a GPU must have contiguous channels and positive strides, not the strides " +
           text_of(strides_) + "; make it contiguous first");
  }
  return std::move(*this);
}

DeviceArray DeviceArray::contiguous() && {
  const Shape wanted = strides_without_gaps(shape_);
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    if (shape_[axis] <= 1 || strides_[axis] == wanted[axis]) continue;
    refuse(std::string(name_) + " on a GPU must be contiguous, not of the strides " + text_of(strides_));
  }
  return std::move(*this);
}

void DeviceArray::require_shape(std::span<const Index> wanted, const char* axes) const {
  python::require_shape(name_, shape_, wanted, axes);
}

nb::object DeviceArray::object() const { return stream_ ? nb::cast(*this) : nb::none(); }

nb::object DeviceArray::numpy() const {
  if (scalar_ == Scalar::bf16) return widened();
  const Array copy = Array::empty(shape_, scalar_);
  {
    const nb::gil_scoped_release unlocked;
    settle();
    stream_->download(copy.data(), data_, bytes());
  }
  return copy.object();
}

nb::object DeviceArray::widened() const {
  const Array wide = Array::empty(shape_, Scalar::f32);
  {
    const nb::gil_scoped_release unlocked;
    settle();
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(size()));
    stream_->download(halves.data(), data_, bytes());
    std::ranges::transform(halves, wide.as<float>(), [](std::uint16_t half) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);  // a bfloat16 is the upper half of a float
    });
  }
  return wide.object();
}

DeviceArray DeviceArray::entry(Index i) const {
  const Index count = shape_.empty() ? 0 : shape_[0];
  if (i < -count || i >= count) {
    throw nb::index_error(("index must be below " + std::to_string(count) + ", not " + std::to_string(i)).c_str());
  }
  DeviceArray view = *this;
  view.data_ = as<std::byte>() + (i < 0 ? i + count : i) * strides_[0] * static_cast<Index>(number_bytes(scalar_));
  view.shape_.erase(view.shape_.begin());
  view.strides_.erase(view.strides_.begin());
  return view;
}

nb::object DeviceArray::capsule(nb::handle self) const {
  settle();
  memory_->exported = true;
  const std::vector<std::size_t> shape(shape_.begin(), shape_.end());
  const int type = device().is_cuda() ? nb::device::cuda::value : nb::device::cpu::value;
  return nb::cast(nb::ndarray<>(data_, shape.size(), shape.data(), self, strides_.data(), number_type(scalar_), type,
                                device().index));
}

nb::dict DeviceArray::interface() const {
  if (scalar_ == Scalar::bf16) throw nb::attribute_error("__cuda_array_interface__ has no bfloat16: use DLPack");
  settle();
  memory_->exported = true;
  nb::dict all;
  const nb::dlpack::dtype type = number_type(scalar_);
  const char kind = type.code == static_cast<std::uint8_t>(NumberCode::Float) ? 'f' : 'i';
  all["shape"] = nb::tuple(nb::cast(shape_));
  all["typestr"] = std::string("<") + kind + std::to_string(type.bits / 8);
  all["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(data_), false);
  all["strides"] = nb::none();
  all["stream"] = nb::none();  // calls wait for their results
  all["version"] = 3;
  return all;
}

void bind_device_arrays(nb::module_& module) {
  nb::class_<DeviceArray>(module, "Array",
                          R"(An array in the memory of a GPU: a result of a call whose input was on that GPU.

Other libraries use it without a copy: ``torch.from_dlpack(array)``, ``cupy.from_dlpack(array)``,
``jax.dlpack.from_dlpack(array)``, ``numba.cuda.as_cuda_array(array)``. ``array[i]`` and iteration give views along the
first axis, so ``h, c = state`` works. Its numbers are complete when the call returns.)")
      .def_prop_ro(
          "shape",
          [](const DeviceArray& self) { return nb::tuple(nb::cast(Shape(self.shape().begin(), self.shape().end()))); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "The sizes of all axes.")
      .def_prop_ro(
          "dtype", [](const DeviceArray& self) { return name_of(self.scalar()); },
          "The name of the type of its numbers: ``\"float32\"``, ``\"bfloat16\"`` or ``\"float16\"``.")
      .def_prop_ro(
          "device", [](const DeviceArray& self) { return to_string(self.device()); },
          "The name of its device: ``\"cuda:0\"``.")
      .def("numpy", &DeviceArray::numpy, nb::sig("def numpy(self) -> numpy.ndarray"),
           "Returns a copy in CPU memory, a NumPy array. bfloat16 becomes float32, since NumPy does not have it.")
      .def(
          "__array__",
          [](const DeviceArray& self, nb::handle dtype, std::optional<bool> copy) {
            if (copy == false) throw nb::value_error("copy must not be False: NumPy cannot view memory of a GPU");
            const nb::object array = self.numpy();
            return dtype.is_none() ? array : nb::object(array.attr("astype")(dtype));
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__len__",
           [](const DeviceArray& self) {
             if (self.shape().empty()) throw nb::type_error("an array without axes has no len()");
             return self.shape()[0];
           })
      .def("__getitem__", &DeviceArray::entry)
      .def(
          "__dlpack__",
          [](nb::handle self, nb::handle, nb::handle, std::optional<std::pair<int, int>> device,
             std::optional<bool> copy) {
            const auto& array = nb::cast<const DeviceArray&>(self);
            if (copy == true) throw nb::buffer_error("copy must not be True: the array is exported as it is");
            const std::pair<int, int> own{array.device().is_cuda() ? 2 : 1, array.device().index};
            if (device && *device != own)
              throw nb::buffer_error("dl_device must be the array's own; numpy() copies it to the CPU");
            return array.capsule(self);
          },
          nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
          nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack_device__",
           [](const DeviceArray& self) {
             return std::pair(self.device().is_cuda() ? nb::device::cuda::value : nb::device::cpu::value,
                              self.device().index);
           })
      .def_prop_ro("__cuda_array_interface__",
                   [](const DeviceArray& self) {
                     if (!self.device().is_cuda()) throw nb::attribute_error("the array is not on a GPU");
                     return self.interface();
                   })
      .def("__repr__", [](const DeviceArray& self) {
        return "penstock.cuda.Array(shape=" + text_of(self.shape()) + ", dtype='" + name_of(self.scalar()) +
               "', device='" + to_string(self.device()) + "')";
      });
}

}  // namespace penstock::python
