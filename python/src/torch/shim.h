#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// PyTorch through its stable C interface (libtorch 2.10 and later: torch/csrc/stable/c/shim.h). Functions are bound at
/// run time to the libtorch that this process has loaded; the build does not need PyTorch.
namespace penstock::torch_ops {

struct TorchTensorOpaque;
struct LibraryOpaque;
struct ListOpaque;
struct StringOpaque;
struct CudaGuardOpaque;
using TensorHandle = TorchTensorOpaque*;
using LibraryHandle = LibraryOpaque*;
using ListHandle = ListOpaque*;
using StringHandle = StringOpaque*;
using CudaGuardHandle = CudaGuardOpaque*;
using Status = std::int32_t;

/// A value that the dispatcher and a kernel exchange: a number by value, or a handle that the receiver owns. An
/// optional value is a pointer to such a value, allocated by `new`, or null.
using StableValue = std::uint64_t;
/// A kernel takes its arguments from the stack and writes its results there.
using BoxedKernel = void (*)(StableValue* stack, std::uint64_t arguments, std::uint64_t results);

enum class Needed { no, yes };

/// Returns a function of a library that this process has loaded. Throws std::runtime_error, with what to install, if it
/// is needed and not there; otherwise null.
void* bound_symbol(const char* library, const char* name, Needed needed);

/// A function of PyTorch, bound when it is made.
template <class Signature>
class Bound {
 public:
  explicit Bound(const char* name, Needed needed = Needed::yes, const char* library = "libtorch_cpu.so")
      : function_(reinterpret_cast<Signature*>(bound_symbol(library, name, needed))) {}

  operator Signature*() const { return function_; }  // NOLINT(google-explicit-constructor)

 private:
  Signature* function_;
};

/// Functions of the interface that are used here, and its numbers of types and devices.
struct Shim {
  Bound<Status(LibraryHandle library, const char* name, BoxedKernel kernel, std::uint64_t version)> library_impl{
      "torch_library_impl"};  // first: only 2.10 and later have it
  Bound<Status(const char* name, const char* file, std::uint32_t line, LibraryHandle* library)> library_init_fragment{
      "aoti_torch_library_init_fragment"};
  Bound<Status(const char* name, const char* key, const char* file, std::uint32_t line, LibraryHandle* library)>
      library_init_impl{"aoti_torch_library_init_impl"};
  Bound<Status(LibraryHandle library, const char* schema)> library_def{"aoti_torch_library_def"};
  Bound<Status(const char* name, const char* overload, StableValue* stack, std::uint64_t version)> call_dispatcher{
      "torch_call_dispatcher"};

  Bound<Status(TensorHandle from, TensorHandle* to)> new_tensor_handle{"aoti_torch_new_tensor_handle"};
  Bound<Status(TensorHandle tensor)> delete_tensor{"aoti_torch_delete_tensor_object"};
  Bound<Status(TensorHandle tensor, void** data)> data{"aoti_torch_get_data_ptr"};
  Bound<Status(TensorHandle tensor, std::int64_t* dim)> dim{"aoti_torch_get_dim"};
  Bound<Status(TensorHandle tensor, std::int64_t** sizes)> sizes{"aoti_torch_get_sizes"};
  Bound<Status(TensorHandle tensor, std::int64_t** strides)> strides{"aoti_torch_get_strides"};
  Bound<Status(TensorHandle tensor, std::int32_t* dtype)> dtype{"aoti_torch_get_dtype"};
  Bound<std::size_t(std::int32_t dtype)> element_size{"aoti_torch_dtype_element_size"};
  Bound<Status(TensorHandle tensor, std::int32_t* type)> device_type{"aoti_torch_get_device_type"};
  Bound<Status(TensorHandle tensor, std::int32_t* index)> device_index{"aoti_torch_get_device_index"};
  Bound<Status(std::int64_t dim, const std::int64_t* sizes, const std::int64_t* strides, std::int32_t dtype,
               std::int32_t device_type, std::int32_t device_index, TensorHandle* tensor)>
      empty_strided{"aoti_torch_empty_strided"};
  Bound<Status(TensorHandle tensor, std::int64_t dim, const std::int64_t* sizes, const std::int64_t* strides,
               std::int64_t offset, TensorHandle* part)>
      reinterpret{"aoti_torch__reinterpret_tensor"};
  Bound<Status(std::int64_t dim, const std::int64_t* sizes, const std::int64_t* strides, std::int32_t dtype,
               std::int32_t device_type, std::int32_t device_index, TensorHandle* tensor)>
      empty_pinned{"aoti_torch_empty_strided_pinned"};
  /// Null before PyTorch 2.11.
  Bound<Status(void* data, std::int64_t dim, const std::int64_t* sizes, const std::int64_t* strides,
               std::int64_t offset, std::int32_t dtype, std::int32_t device_type, std::int32_t device_index,
               TensorHandle* tensor, std::int32_t layout, const std::uint8_t* metadata, std::int64_t metadata_size,
               void (*deleter)(void* data, void* context), void* context)>
      from_blob{"torch_from_blob", Needed::no};

  Bound<Status(ListHandle list, std::size_t* size)> list_size{"torch_list_size"};
  Bound<Status(ListHandle list, std::size_t index, StableValue* value)> list_get{"torch_list_get_item"};
  Bound<Status(std::size_t capacity, ListHandle* list)> list_new{"torch_new_list_reserve_size"};
  Bound<Status(ListHandle list, StableValue value)> list_push{"torch_list_push_back"};
  Bound<Status(ListHandle list)> list_delete{"torch_delete_list"};
  Bound<Status(StringHandle string, std::size_t* size)> string_size{"torch_string_length"};
  Bound<Status(StringHandle string, const char** text)> string_text{"torch_string_c_str"};
  Bound<Status(StringHandle string)> string_delete{"torch_delete_string"};
  Bound<Status(std::uint32_t* threads)> threads{"torch_get_num_threads"};

  std::int32_t cpu = number("aoti_torch_device_type_cpu"), cuda = number("aoti_torch_device_type_cuda");
  std::int32_t uint8 = number("aoti_torch_dtype_uint8"), boolean = number("aoti_torch_dtype_bool");
  std::int32_t int64 = number("aoti_torch_dtype_int64");
  std::int32_t float32 = number("aoti_torch_dtype_float32"), float64 = number("aoti_torch_dtype_float64");
  std::int32_t bf16 = number("aoti_torch_dtype_bfloat16"), f16 = number("aoti_torch_dtype_float16");
  std::int32_t strided = number("aoti_torch_layout_strided");

 private:
  static std::int32_t number(const char* name) { return Bound<std::int32_t()>(name)(); }
};

/// Returns the bound functions. Throws std::runtime_error, with what to install, unless libtorch 2.10 or later is
/// loaded.
const Shim& shim();

/// Functions of libtorch_cuda, which only PyTorch for CUDA has.
struct CudaShim {
  Bound<Status(std::int32_t device, void** stream)> current_stream{"aoti_torch_get_current_cuda_stream", Needed::yes,
                                                                   "libtorch_cuda.so"};
  Bound<Status(std::int32_t device, CudaGuardHandle* guard)> create_guard{"aoti_torch_create_cuda_guard", Needed::yes,
                                                                          "libtorch_cuda.so"};
  Bound<Status(CudaGuardHandle guard)> delete_guard{"aoti_torch_delete_cuda_guard", Needed::yes, "libtorch_cuda.so"};
};
const CudaShim& cuda_shim();

/// Throws std::runtime_error, which names the function, unless it succeeded.
void check_status(Status status, const char* function);

/// The sizes of a tensor without heap memory. Tensors here have few axes.
class Sizes {
 public:
  static constexpr std::size_t most = 8;

  Sizes(std::initializer_list<std::int64_t> sizes) : Sizes(sizes.begin(), sizes.end()) {}
  /// Throws std::runtime_error for more than `most` axes.
  Sizes(const std::int64_t* first, const std::int64_t* last);

  std::size_t size() const { return count_; }
  const std::int64_t* data() const { return sizes_.data(); }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + count_; }
  std::int64_t operator[](std::size_t i) const { return sizes_[i]; }
  bool operator==(const Sizes& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<std::int64_t, most> sizes_ = {};
  std::size_t count_ = 0;
};

/// An owned handle of a PyTorch tensor. Sizes, strides, type and device are read once; nobody resizes it meanwhile.
class TorchTensor {
 public:
  TorchTensor() = default;
  explicit TorchTensor(TensorHandle owned);
  TorchTensor(TorchTensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), form_(other.form_) {}
  TorchTensor& operator=(TorchTensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(form_, other.form_);
    return *this;
  }
  ~TorchTensor();

  explicit operator bool() const { return handle_ != nullptr; }
  std::int64_t dim() const { return form_.dim; }
  /// Returns the size of axis i; negative numbers count from the last axis.
  std::int64_t size(std::int64_t i) const { return form_.sizes[i < 0 ? i + dim() : i]; }
  std::int64_t stride(std::int64_t i) const { return form_.strides[i < 0 ? i + dim() : i]; }
  Sizes sizes() const { return {form_.sizes, form_.sizes + dim()}; }
  std::int64_t elements() const;
  std::size_t bytes() const;
  std::int32_t dtype() const { return form_.dtype; }
  bool is_cuda() const { return form_.device_type == shim().cuda; }
  std::int32_t device_index() const { return form_.device_index; }
  /// Returns whether the elements are in order without gaps.
  bool is_contiguous() const;
  template <class T>
  T* data() const {
    return static_cast<T*>(address());
  }
  void* address() const;

  /// Returns another handle of the same tensor.
  TorchTensor share() const;
  /// Returns the tensor itself if it is contiguous, otherwise a contiguous copy.
  TorchTensor contiguous() const& { return is_contiguous() ? share() : clone(); }
  TorchTensor contiguous() && { return is_contiguous() ? std::move(*this) : clone(); }
  /// Returns the tensor itself if it has this type, otherwise a converted copy.
  TorchTensor to(std::int32_t wanted) const& { return dtype() == wanted ? share() : converted(wanted); }
  TorchTensor to(std::int32_t wanted) && { return dtype() == wanted ? std::move(*this) : converted(wanted); }
  /// Returns a contiguous copy.
  TorchTensor clone() const { return converted(dtype()); }
  void copy_from(const TorchTensor& other);
  void zero();
  /// Returns a new uninitialised contiguous tensor on the same device.
  TorchTensor empty(const Sizes& sizes, std::int32_t dtype) const;
  /// Returns an int64 tensor [count] on the same device with the numbers that fill(numbers) writes to host memory. On a
  /// GPU the copy runs in the order of the current stream, and the host does not wait for its end.
  TorchTensor upload(std::int64_t count, const std::function<void(std::int64_t*)>& fill) const;
  /// Returns entry i along the first axis of a contiguous tensor that owns its whole storage. The result shares the
  /// memory, but is not a view for PyTorch.
  TorchTensor entry(std::int64_t i) const;
  /// Returns a contiguous tensor of these sizes that begins at an element of a tensor as entry() takes it, and shares
  /// its memory like that.
  TorchTensor part(std::int64_t begin, const Sizes& sizes) const;
  /// Returns a tensor with the same memory and an additional first axis of size 1.
  TorchTensor as_entry() const;
  /// Returns entries along the first axis, selected by an int64 tensor.
  TorchTensor index_select(const TorchTensor& index) const;

  /// Returns the handle and gives up its ownership.
  StableValue release() { return reinterpret_cast<StableValue>(std::exchange(handle_, nullptr)); }

 private:
  struct Form {
    std::int64_t dim = 0;
    std::int64_t *sizes = nullptr, *strides = nullptr;  // owned by the tensor
    std::int32_t dtype = 0, device_type = 0, device_index = 0;
  };

  TorchTensor(TensorHandle owned, const Form& form) : handle_(owned), form_(form) {}
  TorchTensor converted(std::int32_t dtype) const;

  TensorHandle handle_ = nullptr;
  Form form_;
};

/// The arguments of a kernel, taken from the stack one by one. The kernel must take all of them, since it owns them.
class Arguments {
 public:
  explicit Arguments(StableValue* stack) : stack_(stack) {}

  TorchTensor tensor();
  TorchTensor optional_tensor();  ///< Returns an empty handle for no tensor.
  std::vector<TorchTensor> tensors();
  std::string string();
  std::int64_t integer();
  bool boolean();

 private:
  StableValue* stack_;
};

void append(std::string& text, std::string_view part);
void append(std::string& text, std::int64_t part);
void append(std::string& text, const Sizes& part);        ///< Appends "[2, 3]".
void append(std::string& text, const TorchTensor& part);  ///< Appends its sizes; nothing for an empty handle.

/// Throws std::runtime_error, which becomes a RuntimeError in Python, unless the condition holds. The message is put
/// together from its parts only then.
template <class... Parts>
void check(bool condition, const Parts&... parts) {
  if (condition) [[likely]]
    return;
  std::string text;
  (append(text, parts), ...);
  throw std::runtime_error(text);
}

/// Stacks tensors of equal sizes along a new first axis.
TorchTensor stack(const std::vector<TorchTensor>& tensors);

/// Returns CPU memory as a tensor of bytes. Its last owner calls the deleter. Needs PyTorch 2.11.
TorchTensor bytes_at(void* memory, std::size_t bytes, void (*deleter)(void* memory, void* context), void* context);

/// Returns a list of tensors as a result of a kernel.
StableValue release(std::vector<TorchTensor>& tensors);

}  // namespace penstock::torch_ops
