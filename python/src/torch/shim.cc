#include "shim.h"

#include <dlfcn.h>

#include <memory>

namespace penstock::torch_ops {
namespace {

/// Version of the interface: major, minor and patch of PyTorch, one byte each from the highest.
constexpr std::uint64_t version_2_10 = (std::uint64_t{2} << 56) | (std::uint64_t{10} << 48);

/// Returns the pointer in a handle or an optional value: the interface passes pointers as integers.
template <class Pointer>
Pointer pointer_in(StableValue value) {
  return reinterpret_cast<Pointer>(value);  // NOLINT(performance-no-int-to-ptr)
}

TensorHandle tensor_of(StableValue value) { return pointer_in<TensorHandle>(value); }

/// Calls an op of PyTorch by its name, with arguments on a stack, and returns its result, a tensor.
TorchTensor call_op(const char* name, StableValue* stack) {
  check_status(shim().call_dispatcher(name, "", stack, version_2_10), name);
  return TorchTensor(tensor_of(stack[0]));
}

std::array<std::int64_t, Sizes::most> contiguous_strides(const Sizes& sizes) {
  std::array<std::int64_t, Sizes::most> strides{};
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

}  // namespace

void* bound_symbol(const char* library, const char* name, Needed needed) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  // A program may have PyTorch linked statically.
  void* const symbol = dlsym(handle != nullptr ? handle : dlopen(nullptr, RTLD_LAZY), name);
  if (symbol == nullptr && needed == Needed::yes) {
    throw std::runtime_error(std::string("penstock.torch needs PyTorch 2.10 or later (pip install 'torch>=2.10'): ") +
                             name + " is not in the libtorch of this process");
  }
  return symbol;
}

const Shim& shim() {
  static const Shim bound;
  return bound;
}

const CudaShim& cuda_shim() {
  static const CudaShim bound;
  return bound;
}

void check_status(Status status, const char* function) {
  if (status != 0) throw std::runtime_error(std::string(function) + " failed");
}

Sizes::Sizes(const std::int64_t* first, const std::int64_t* last) : count_(static_cast<std::size_t>(last - first)) {
  check(count_ <= most, "tensors must have at most ", std::int64_t{most}, " dimensions, not ", last - first);
  std::copy(first, last, sizes_.begin());
}

void append(std::string& text, std::string_view part) { text += part; }
void append(std::string& text, std::int64_t part) { text += std::to_string(part); }
void append(std::string& text, const Sizes& part) {
  text += "[";
  for (std::size_t i = 0; i < part.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(part[i]);
  text += "]";
}
void append(std::string& text, const TorchTensor& part) {
  if (part) append(text, part.sizes());
}

TorchTensor::TorchTensor(TensorHandle owned) : handle_(owned) {
  const Shim& s = shim();
  check_status(s.dim(handle_, &form_.dim), "Tensor.dim");
  check_status(s.sizes(handle_, &form_.sizes), "Tensor.size");
  check_status(s.strides(handle_, &form_.strides), "Tensor.stride");
  check_status(s.dtype(handle_, &form_.dtype), "Tensor.dtype");
  check_status(s.device_type(handle_, &form_.device_type), "Tensor.device");
  check_status(s.device_index(handle_, &form_.device_index), "Tensor.device");
}

TorchTensor::~TorchTensor() {
  if (handle_ != nullptr) shim().delete_tensor(handle_);
}

std::int64_t TorchTensor::elements() const {
  std::int64_t product = 1;
  for (std::int64_t i = 0; i < dim(); ++i) product *= size(i);
  return product;
}

std::size_t TorchTensor::bytes() const { return static_cast<std::size_t>(elements()) * shim().element_size(dtype()); }

bool TorchTensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::int64_t i = dim(); i-- > 0;) {
    if (size(i) != 1 && stride(i) != expected) return elements() == 0;
    expected *= size(i);
  }
  return true;
}

void* TorchTensor::address() const {
  void* data = nullptr;
  check_status(shim().data(handle_, &data), "Tensor.data_ptr");
  return data;
}

TorchTensor TorchTensor::share() const {
  TensorHandle other = nullptr;
  check_status(shim().new_tensor_handle(handle_, &other), "a tensor's handle");
  return {other, form_};
}

TorchTensor TorchTensor::converted(std::int32_t dtype_wanted) const {
  TorchTensor copy = empty(sizes(), dtype_wanted);
  copy.copy_from(*this);
  return copy;
}

void TorchTensor::copy_from(const TorchTensor& other) {
  // copy_(self, src, non_blocking): the dispatcher takes ownership of the handles on the stack.
  StableValue stack[3] = {share().release(), other.share().release(), 1};
  call_op("aten::copy_", stack);
}

void TorchTensor::zero() {
  StableValue stack[1] = {share().release()};
  call_op("aten::zero_", stack);
}

TorchTensor TorchTensor::empty(const Sizes& sizes, std::int32_t dtype_wanted) const {
  const auto strides = contiguous_strides(sizes);
  TensorHandle handle = nullptr;
  const Status status =
      shim().empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(), dtype_wanted,
                           is_cuda() ? shim().cuda : shim().cpu, is_cuda() ? device_index() : 0, &handle);
  if (status != 0 && is_cuda()) {
    // The interface has no text of the failure. Programs look for the first words.
    check(false, "CUDA out of memory: penstock.torch got no tensor of ", sizes, " on cuda:", device_index(),
          " from PyTorch; make the batch smaller, or, if other processes hold the memory (nvidia-smi lists them), end "
          "them or let them take less: JAX takes 75 % of a GPU, or what its XLA_PYTHON_CLIENT_MEM_FRACTION says");
  }
  check_status(status, "torch.empty");
  return TorchTensor(handle);
}

TorchTensor TorchTensor::upload(std::int64_t count, const std::function<void(std::int64_t*)>& fill) const {
  TorchTensor there = empty({count}, shim().int64);
  if (!is_cuda()) {
    fill(there.data<std::int64_t>());
    return there;
  }
  TensorHandle handle = nullptr;
  const std::int64_t stride = 1;
  // Pinned memory: PyTorch's allocator does not reuse it before the copy has finished.
  check_status(shim().empty_pinned(1, &count, &stride, shim().int64, shim().cpu, 0, &handle), "torch.empty");
  const TorchTensor here(handle);
  fill(here.data<std::int64_t>());
  there.copy_from(here);
  return there;
}

TorchTensor TorchTensor::entry(std::int64_t i) const {
  TensorHandle part = nullptr;
  check_status(shim().reinterpret(handle_, dim() - 1, form_.sizes + 1, form_.strides + 1, i * stride(0), &part),
               "Tensor.select");
  return TorchTensor(part);
}

TorchTensor TorchTensor::part(std::int64_t begin, const Sizes& sizes) const {
  TensorHandle part = nullptr;
  check_status(shim().reinterpret(handle_, static_cast<std::int64_t>(sizes.size()), sizes.data(),
                                  contiguous_strides(sizes).data(), begin, &part),
               "Tensor.as_strided");
  return TorchTensor(part);
}

TorchTensor TorchTensor::as_entry() const {
  std::array<std::int64_t, Sizes::most + 1> sizes{1}, strides{1};
  const Sizes own = this->sizes();
  std::copy(own.begin(), own.end(), sizes.begin() + 1);
  for (std::size_t i = 0; i < own.size(); ++i) strides[i + 1] = stride(static_cast<std::int64_t>(i));
  TensorHandle whole = nullptr;
  check_status(shim().reinterpret(handle_, dim() + 1, sizes.data(), strides.data(), 0, &whole), "Tensor.unsqueeze");
  return TorchTensor(whole);
}

TorchTensor TorchTensor::index_select(const TorchTensor& index) const {
  StableValue stack[3] = {share().release(), 0, index.share().release()};
  return call_op("aten::index_select", stack);
}

TorchTensor Arguments::tensor() { return TorchTensor(tensor_of(*stack_++)); }

TorchTensor Arguments::optional_tensor() {
  const std::unique_ptr<StableValue> value(pointer_in<StableValue*>(*stack_++));
  return value != nullptr ? TorchTensor(tensor_of(*value)) : TorchTensor();
}

std::vector<TorchTensor> Arguments::tensors() {
  const ListHandle list = pointer_in<ListHandle>(*stack_++);
  const std::unique_ptr<ListOpaque, Status (*)(ListHandle)> owned(list, shim().list_delete);
  std::size_t size = 0;
  check_status(shim().list_size(list, &size), "a list's size");
  std::vector<TorchTensor> tensors(size);
  for (std::size_t i = 0; i < size; ++i) {
    StableValue value = 0;
    check_status(shim().list_get(list, i, &value), "a list's element");
    tensors[i] = TorchTensor(tensor_of(value));
  }
  return tensors;
}

std::string Arguments::string() {
  const StringHandle string = pointer_in<StringHandle>(*stack_++);
  const std::unique_ptr<StringOpaque, Status (*)(StringHandle)> owned(string, shim().string_delete);
  std::size_t size = 0;
  const char* text = nullptr;
  check_status(shim().string_size(string, &size), "a string's length");
  check_status(shim().string_text(string, &text), "a string's text");
  return {text, size};
}

std::int64_t Arguments::integer() { return static_cast<std::int64_t>(*stack_++); }

bool Arguments::boolean() { return (*stack_++ & 0xff) != 0; }

TorchTensor stack(const std::vector<TorchTensor>& tensors) {
  std::vector<TorchTensor> shared;
  for (const TorchTensor& tensor : tensors) shared.push_back(tensor.share());
  StableValue stack[2] = {release(shared), 0};
  return call_op("aten::stack", stack);
}

TorchTensor bytes_at(void* memory, std::size_t bytes, void (*deleter)(void* memory, void* context), void* context) {
  const Shim& s = shim();
  const auto size = static_cast<std::int64_t>(bytes);
  const std::int64_t stride = 1;
  TensorHandle handle = nullptr;
  check_status(
      s.from_blob(memory, 1, &size, &stride, 0, s.uint8, s.cpu, -1, &handle, s.strided, nullptr, 0, deleter, context),
      "torch.from_blob");
  return TorchTensor(handle);
}

StableValue release(std::vector<TorchTensor>& tensors) {
  ListHandle list = nullptr;
  check_status(shim().list_new(tensors.size(), &list), "a list");
  for (TorchTensor& tensor : tensors) check_status(shim().list_push(list, tensor.release()), "a list's element");
  return reinterpret_cast<StableValue>(list);
}

}  // namespace penstock::torch_ops
