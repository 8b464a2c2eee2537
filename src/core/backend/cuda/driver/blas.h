#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "backend/cuda/driver/api.h"
#include "backend/cuda/driver/device.h"
#include "plan/gpu/scan.h"

namespace penstock::cuda {

/// cuBLASLt, as found on this machine.
struct Blas {
  BlasApi api;
  std::string origin;     ///< Path of the library; empty if there is none.
  std::string version;    ///< "13.1"
  std::string build;      ///< "130101"
  std::string complaint;  ///< Why there is none.
};

/// Found on first use; the generation of CUDA that the driver runs goes first. Never throws.
const Blas& find_blas();

/// Begins to start it for a GPU while the caller does something else: opening a file of half a gigabyte and making a
/// handle take as long as half of the driver's start. Comes after the driver's own start, which it would hold up.
/// Callers that need it meanwhile wait for it; no caller has to wait for the future.
[[nodiscard]] std::future<void> start_products(int ordinal);

/// Operation on a product, or on its factors, before it is written.
enum class Epilogue {
  nothing,
  add_bias,     ///< D's rows get a vector [n] added.
  sum_columns,  ///< The sums of A's columns over k go to a vector [m]: the gradient of a bias.
};

/// Rows for which an exact product chooses how to run, whatever number it has.
inline constexpr Index kExactRows = 1024;

/// D [m, n] = A [m, k] B [k, n], all row by row, rows `*_stride` elements apart. Arithmetic is float.
struct ProductShape {
  plan::Storage storage = plan::Storage::f32;  ///< Storage of A, B and the bias.
  plan::Storage result = plan::Storage::f32;   ///< Storage of D and of the sums.
  Index m = 1, n = 1, k = 1;
  bool a_transposed = false;  ///< A lies in memory as [k, m].
  bool b_transposed = false;  ///< B lies in memory as [n, k].
  Index a_stride = 1, b_stride = 1, d_stride = 1;
  Epilogue epilogue = Epilogue::nothing;
  bool tf32 = false;  ///< f32 only: factors rounded to 10 bits of mantissa, for the tensor cores.
  /// True if m or k differs in many calls, as the number of positions of a batch does. cuBLASLt then chooses for the
  /// next of sizes at most a sixteenth apart, since its choice takes longer than many products.
  bool m_varies = false, k_varies = false;
  /// The bits of a row of D are the same for any m: an algorithm that does not divide k, chosen for kExactRows rows.
  bool exact = false;
  /// 16-bit storage: zeros follow each row of A, or each row of D may be written on, up to a multiple of 16 bytes.
  bool a_padded = false, d_padded = false;
  /// Bytes, powers of two up to 256, that the addresses are multiples of; of the rows cuBLASLt knows from the strides.
  int a_alignment = 16, b_alignment = 16, d_alignment = 16;
};

/// Returns whether cuBLASLt supports the product. For instance, sums of columns with 16-bit GEMMs need sizes that
/// are multiples of 8.
bool can_multiply(Device& device, const ProductShape& shape);

/// Drops what this process remembers of cuBLASLt's choices, so that the next come from disk. For tests.
void forget_choices();

/// A product that cuBLASLt has chosen an algorithm for. Its choice takes tens of milliseconds and is kept with the
/// compiled kernels. Not safe for two calls at once.
class Product {
 public:
  Product() = default;
  /// Throws Error(unsupported) if there is no cuBLASLt or it cannot do this. `rank`: which of the algorithms that
  /// cuBLASLt proposes, from the best, for measurements.
  Product(Device& device, const ProductShape& shape, int rank = 0);
  ~Product();
  Product(Product&& other) noexcept;
  Product& operator=(Product&& other) noexcept;

  std::size_t workspace_bytes() const;
  /// `vector`: the bias, or where the sums go. `add`: D += A B instead. Workspace aligned to 128 bytes.
  void run(DeviceAddress a, DeviceAddress b, DeviceAddress d, DeviceAddress vector, DeviceAddress workspace,
           StreamHandle stream, bool add = false) const;

 private:
  /// Describes the product and takes an algorithm for it.
  void prepare(Device& device, const ProductShape& shape, int rank);
  void describe(const ProductShape& shape);
  /// The algorithm of that rank. `splits`: it may share the summed axis among blocks.
  BlasChoice choose(const ProductShape& shape, int rank, bool splits = true) const;
  /// Divides k into a multiple of eight, and the rest.
  void divide(Device& device, const ProductShape& shape, int rank);
  /// The algorithm of an earlier choice, if cuBLASLt finds it fit.
  std::optional<BlasChoice> recall(const std::string& name) const;
  /// An algorithm with the workspace that it needs here, if it can do this.
  std::optional<BlasChoice> checked(const BlasAlgorithm& algorithm) const;

  Device* device_ = nullptr;
  BlasHandle blas_ = nullptr;
  BlasProduct product_ = nullptr;
  BlasLayout a_ = nullptr, b_ = nullptr, d_ = nullptr;
  BlasChoice choice_;
  int a_alignment_ = 1, b_alignment_ = 1, d_alignment_ = 1;
  bool has_vector_ = false;
  std::unique_ptr<Product> rest_;                // of the summed axis, which is added
  DeviceAddress a_of_rest_ = 0, b_of_rest_ = 0;  // bytes from the first factors to those of the rest
};

}  // namespace penstock::cuda
