#include "backend/cuda/driver/blas.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/cuda/driver/disk_cache.h"
#include "backend/cuda/driver/driver.h"
#include "backend/cuda/driver/library.h"
#include "base/check.h"

namespace penstock::cuda {
namespace {

constexpr const char* kBlasRemedy =
    "install the CUDA toolkit or the Python package nvidia-cublas, or name its folder in PENSTOCK_CUDA_PATH";

/// Enough for every algorithm that splits k on chips of this kind.
constexpr std::size_t kMaxWorkspace = std::size_t{32} << 20;

Blas load_blas_version(const std::string& file) {
  Blas found;
  const Library library = Library::open(file, candidates({file}));
  found.complaint = library.complaint();
  if (!library.valid()) return found;
  library.resolve(found.api, found.complaint);
  const auto version = reinterpret_cast<std::size_t (*)()>(library.symbol("cublasLtGetVersion"));
  if (version == nullptr || !found.complaint.empty()) return found;
  const std::size_t number = version();  // 130101, or 12 08 04 as 120804
  found.build = fmt::format("{}", number);
  found.version = fmt::format("{}.{}", number / 10000, number / 100 % 100);
  found.origin = library.origin();
  return found;
}

Blas load_blas() {
  std::vector<std::string> files;
  for (const int major : {13, 12}) {
    const int runs = driver_cuda_version() / 1000;
    if (runs == 0 || major <= runs) files.push_back(fmt::format("libcublasLt.so.{}", major));
  }
  return first_sound(files, load_blas_version);
}

/// Throws Error unless the result is success.
void check_blas(Result result, const char* what) {
  if (result == result_success) return;
  if (result == blas_not_supported) fail(ErrorCode::unsupported, "cuBLASLt cannot do {}", what);
  if (result == blas_no_memory) check(result_out_of_memory, what);
  fail(ErrorCode::device_failure, "{} failed: cuBLASLt's status {}", what, result);
}

const BlasApi& blas() {
  const Blas& found = find_blas();
  if (!found.complaint.empty()) {
    fail(ErrorCode::unsupported, "no cuBLASLt for matrix products: {}; {}", found.complaint, kBlasRemedy);
  }
  return found.api;
}

/// One handle a device, for the life of the process: making one takes milliseconds.
BlasHandle handle_on(Device& device) {
  static std::mutex mutex;
  static std::map<int, BlasHandle> handles;
  const std::lock_guard lock(mutex);
  BlasHandle& handle = handles[device.ordinal()];
  if (handle == nullptr) {
    device.make_current();
    check_blas(blas().create(&handle), "starting cuBLASLt");
  }
  return handle;
}

BlasType type_of(plan::Storage storage) {
  return storage == plan::Storage::f32 ? blas_f32 : storage == plan::Storage::bf16 ? blas_bf16 : blas_f16;
}

/// cuBLASLt counts rows within columns: what lies row by row as [rows, columns] is a matrix of `columns` rows to it.
BlasLayout layout_of(plan::Storage storage, Index rows, Index columns, Index stride) {
  BlasLayout layout = nullptr;
  check_blas(blas().layout_create(&layout, type_of(storage), static_cast<std::uint64_t>(columns),
                                  static_cast<std::uint64_t>(rows), stride),
             "describing a matrix");
  return layout;
}

/// Name under which the choice for a product is kept: it is good for one version of cuBLASLt on one kind of GPU.
std::string choice_name(const Device& device, const ProductShape& shape) {
  const plan::GpuModel& gpu = device.model();
  // Every member by name, so that a new one is not forgotten. Sizes that vary were rounded by chosen_for().
  const auto& [storage, result, m, n, k, a_transposed, b_transposed, a_stride, b_stride, d_stride, epilogue, tf32,
               m_varies, k_varies, exact, a_padded, d_padded, a_alignment, b_alignment, d_alignment] = shape;
  ContentHash hash;
  hash.add("cuBLASLt's choice");
  hash.add(find_blas().build);
  hash.add(fmt::format("{} {} {}", gpu.name, gpu.architecture(), gpu.multiprocessors));
  hash.add(
      fmt::format("{} {} {} {} {} {} {}", to_string(storage), to_string(result), m, n, k, a_transposed, b_transposed));
  hash.add(fmt::format("{} {} {} {} {}", a_stride, b_stride, d_stride, static_cast<int>(epilogue), tf32));
  if (exact) hash.add("exact");
  hash.add(fmt::format("{} {} {}", a_alignment, b_alignment, d_alignment));
  return hash.digits();
}

constexpr Index kEven = 8;

/// Algorithms of cuBLASLt 13.0 that share the summed axis of halves among blocks leave out what is beyond a multiple of
/// eight, whatever the alignment. Workspace is how one tells them.
bool loses_rest(const ProductShape& shape, const BlasChoice& choice) {
  return shape.storage != plan::Storage::f32 && shape.k % kEven != 0 && choice.workspace_bytes > 0;
}

/// The next size with five significant bits.
Index next_round_size(Index size) {
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size)));
  const Index unit = Index{1} << std::max(0, bits - 5);
  return (size + unit - 1) / unit * unit;
}

/// Returns the shape for which cuBLASLt's heuristic is asked in place of this one: sizes that vary are rounded up.
ProductShape chosen_for(const ProductShape& shape) {
  ProductShape alike = shape;
  if (shape.exact) {
    alike.m = kExactRows;
    return alike;
  }
  if (shape.m_varies) alike.m = next_round_size(shape.m);
  if (shape.k_varies) alike.k = next_round_size(shape.k);
  return alike;
}

/// The product that is asked about in place of this one, where that is another that cuBLASLt can do.
std::optional<Product> product_alike(Device& device, const ProductShape& shape) {
  const ProductShape alike = chosen_for(shape);
  if (alike.m == shape.m && alike.k == shape.k) return std::nullopt;
  try {
    return Product(device, alike);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported || shape.exact) throw;
    return std::nullopt;
  }
}

[[noreturn]] void refuse_exact(const ProductShape& shape) {
  fail(ErrorCode::unsupported,
       "exact mode multiplies by one algorithm for any number of rows, and that of cuBLASLt for {} rows of {} x {} in "
       "{} cannot do {}: use f32",
       kExactRows, shape.n, shape.k, to_string(shape.storage), shape.m);
}

/// Programs are prepared by several threads, and nothing is promised of one handle in the hands of two. Guards the
/// choices, too.
std::mutex choosing;

/// Choices of this process, by their names.
std::map<std::string, BlasAlgorithm>& known_choices() {
  static std::map<std::string, BlasAlgorithm> choices;
  return choices;
}

void keep(const std::string& name, const BlasAlgorithm& algorithm) {
  constexpr std::size_t most = 4096;
  if (known_choices().size() >= most) known_choices().clear();
  known_choices().insert_or_assign(name, algorithm);
  DiskCache::of_process().put(name, {reinterpret_cast<const char*>(&algorithm), sizeof algorithm});
}

}  // namespace

const Blas& find_blas() {
  static const Blas found = load_blas();
  return found;
}

std::future<void> start_products(int ordinal) {
  const auto start = [ordinal] {
    try {
      if (driver_complaint().empty() && find_blas().complaint.empty()) handle_on(Device::get(ordinal));
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the caller that needs it gets the error again
    }
  };
  try {
    return std::async(std::launch::async, start);
  } catch (const std::system_error&) {
    return {};  // no thread available: the first caller that needs cuBLASLt starts it
  }
}

void forget_choices() {
  const std::lock_guard lock(choosing);
  known_choices().clear();
}

bool can_multiply(Device& device, const ProductShape& shape) {
  try {
    const Product tried(device, shape);
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported && find_blas().complaint.empty()) return false;
    throw;
  }
}

Product::Product(Device& device, const ProductShape& shape, int rank) : Product() {
  prepare(device, shape, rank);
  if (loses_rest(shape, choice_)) divide(device, shape, rank);
}

void Product::prepare(Device& device, const ProductShape& shape, int rank) {
  device_ = &device;
  blas_ = handle_on(device);
  require(shape.m >= 1 && shape.n >= 1 && shape.k >= 1, "a product must have sizes of at least 1, not {} x {} x {}",
          shape.m, shape.n, shape.k);
  const std::optional<Product> other = rank > 0 ? std::nullopt : product_alike(device, shape);
  const std::lock_guard lock(choosing);
  describe(shape);
  device.make_current();
  if (rank > 0) {
    choice_ = choose(shape, rank, !shape.exact);
    return;
  }
  if (other) {
    if (const std::optional<BlasChoice> taken = checked(other->choice_.algorithm)) {
      choice_ = *taken;
      return;
    }
    if (shape.exact) refuse_exact(shape);
  }
  const std::string name = choice_name(device, shape);
  if (const std::optional<BlasChoice> kept = recall(name)) {
    choice_ = *kept;
    return;
  }
  choice_ = choose(shape, 0, !shape.exact);
  keep(name, choice_.algorithm);
}

void Product::divide(Device& device, const ProductShape& shape, int rank) {
  const Index even = shape.k / kEven * kEven;
  if (even == 0 || shape.epilogue == Epilogue::sum_columns) {  // which would be of a part
    const std::lock_guard lock(choosing);
    choice_ = choose(shape, rank, false);
    return;
  }
  ProductShape first = shape, rest = shape;
  first.k = even, rest.k = shape.k - even;
  rest.epilogue = Epilogue::nothing;
  rest.m_varies = rest.k_varies = false;
  const Index size = plan::size_of(shape.storage);
  const Index a_bytes = even * size * (shape.a_transposed ? shape.a_stride : 1);
  const Index b_bytes = even * size * (shape.b_transposed ? 1 : shape.b_stride);
  rest.a_alignment = common_alignment(shape.a_alignment, {a_bytes});
  rest.b_alignment = common_alignment(shape.b_alignment, {b_bytes});
  *this = Product(device, first, rank);
  rest_ = std::make_unique<Product>(device, rest);
  a_of_rest_ = static_cast<DeviceAddress>(a_bytes), b_of_rest_ = static_cast<DeviceAddress>(b_bytes);
}

std::size_t Product::workspace_bytes() const {
  return std::max(choice_.workspace_bytes, rest_ ? rest_->workspace_bytes() : std::size_t{0});
}

void Product::describe(const ProductShape& shape) {
  const BlasApi& api = blas();
  const bool tf32 = shape.tf32 && shape.storage == plan::Storage::f32;
  check_blas(api.product_create(&product_, tf32 ? blas_compute_tf32 : blas_compute_f32, blas_f32), "a product");
  const auto set = [&](int attribute, std::int32_t value) {
    check_blas(api.product_set(product_, attribute, &value, sizeof value), "describing a product");
  };
  // The product of the transposed matrices in the other order is the transposed product: B is its first factor.
  set(blas_transpose_a, shape.b_transposed ? blas_transposed : blas_as_it_is);
  set(blas_transpose_b, shape.a_transposed ? blas_transposed : blas_as_it_is);
  set(blas_epilogue, shape.epilogue == Epilogue::add_bias      ? blas_epilogue_bias
                     : shape.epilogue == Epilogue::sum_columns ? blas_epilogue_sum_b
                                                               : blas_epilogue_none);
  a_alignment_ = shape.a_alignment, b_alignment_ = shape.b_alignment, d_alignment_ = shape.d_alignment;
  has_vector_ = shape.epilogue != Epilogue::nothing;
  a_ = layout_of(shape.storage, shape.a_transposed ? shape.k : shape.m, shape.a_transposed ? shape.m : shape.k,
                 shape.a_stride);
  b_ = layout_of(shape.storage, shape.b_transposed ? shape.n : shape.k, shape.b_transposed ? shape.k : shape.n,
                 shape.b_stride);
  d_ = layout_of(shape.result, shape.m, shape.n, shape.d_stride);
}

BlasChoice Product::choose(const ProductShape& shape, int rank, bool splits) const {
  const BlasApi& api = blas();
  BlasPreference preference = nullptr;
  check_blas(api.preference_create(&preference), "choosing an algorithm");
  api.preference_set(preference, blas_max_workspace, &kMaxWorkspace, sizeof kMaxWorkspace);
  constexpr std::uint32_t no_reductions = 0;
  if (!splits) api.preference_set(preference, blas_reductions, &no_reductions, sizeof no_reductions);
  const auto align = [&](int matrix, int bytes) {
    const auto alignment = static_cast<std::uint32_t>(bytes);
    api.preference_set(preference, matrix, &alignment, sizeof alignment);
  };
  align(blas_alignment_a, b_alignment_);
  align(blas_alignment_b, a_alignment_);
  align(blas_alignment_c, d_alignment_);
  align(blas_alignment_d, d_alignment_);
  int found = 0;
  std::vector<BlasChoice> choices(static_cast<std::size_t>(rank) + 1);
  const Result result =
      api.choose(blas_, product_, b_, a_, d_, d_, preference, static_cast<int>(choices.size()), choices.data(), &found);
  api.preference_destroy(preference);
  check_blas(
      result == result_success && found <= rank ? Result{blas_not_supported} : result,
      fmt::format("a product of {} x {} x {} in {}", shape.m, shape.n, shape.k, to_string(shape.storage)).c_str());
  return choices.back();
}

std::optional<BlasChoice> Product::recall(const std::string& name) const {
  if (const auto known = known_choices().find(name); known != known_choices().end()) return checked(known->second);
  const std::optional<std::string> kept = DiskCache::of_process().get(name);
  BlasAlgorithm algorithm;
  if (!kept || kept->size() != sizeof algorithm) return std::nullopt;
  std::memcpy(&algorithm, kept->data(), sizeof algorithm);
  const std::optional<BlasChoice> choice = checked(algorithm);
  if (choice) known_choices().insert_or_assign(name, algorithm);
  return choice;
}

std::optional<BlasChoice> Product::checked(const BlasAlgorithm& algorithm) const {
  BlasChoice choice;
  const Result result = blas().check_choice(blas_, product_, b_, a_, d_, d_, &algorithm, &choice);
  if (result != result_success || choice.state != result_success || choice.workspace_bytes > kMaxWorkspace) {
    return std::nullopt;
  }
  choice.algorithm = algorithm;
  return choice;
}

Product::~Product() {
  if (product_ == nullptr) return;
  const BlasApi& api = find_blas().api;
  for (BlasLayout layout : {a_, b_, d_}) {
    if (layout != nullptr) api.layout_destroy(layout);
  }
  api.product_destroy(product_);
}

Product::Product(Product&& other) noexcept { *this = std::move(other); }

Product& Product::operator=(Product&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(blas_, other.blas_);
  std::swap(product_, other.product_);
  std::swap(a_, other.a_);
  std::swap(b_, other.b_);
  std::swap(d_, other.d_);
  std::swap(choice_, other.choice_);
  std::swap(a_alignment_, other.a_alignment_);
  std::swap(b_alignment_, other.b_alignment_);
  std::swap(d_alignment_, other.d_alignment_);
  std::swap(has_vector_, other.has_vector_);
  std::swap(rest_, other.rest_);
  std::swap(a_of_rest_, other.a_of_rest_);
  std::swap(b_of_rest_, other.b_of_rest_);
  return *this;
}

void Product::run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
                  StreamHandle stream, bool add) const {
  const auto fits = [](DeviceAddress address, int alignment) {
    return address % static_cast<DeviceAddress>(alignment) == 0;
  };
  require(fits(a, a_alignment_) && fits(b, b_alignment_) && fits(d, d_alignment_),
          "the matrices of a product must be aligned to the {}, {} and {} bytes that were prepared", a_alignment_,
          b_alignment_, d_alignment_);
  const BlasApi& api = blas();
  device_->make_current();
  if (has_vector_) check_blas(api.product_set(product_, blas_bias_pointer, &vector, sizeof vector), "naming a bias");
  const float one = 1.0f, old = add ? 1.0f : 0.0f;
  check_blas(api.multiply(blas_, product_, &one, device_pointer<void>(b), b_, device_pointer<void>(a), a_, &old,
                          device_pointer<void>(d), d_, device_pointer<void>(d), d_, &choice_.algorithm,
                          device_pointer<void>(workspace), choice_.workspace_bytes, stream),
             "multiplying");
  if (rest_) rest_->run(a + a_of_rest_, b + b_of_rest_, d, 0, workspace, stream, true);
}

}  // namespace penstock::cuda
