#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "network/network.h"
#include "network/status.h"
#include "network/step.h"
#include "network/tensor.h"

namespace penstock::network {

/// Properties of a value that are known while a network is prepared.
struct Fact {
  Type type = Type::f32;
  Shape shape;
  const std::byte* known = nullptr;  ///< Its elements, if they do not depend on inputs.
  int source = -1;                   ///< Position of an input that unknown elements depend on.
  bool declared = false;             ///< By the preparation of the node that writes it.
};

struct Operator;

/// A node being prepared: what it reads, and what becomes of it.
class Preparation {
 public:
  Preparation(const Node& node, const Operator& op, const Kernels& kernels, std::vector<const Fact*> reads);

  const Node& node() const { return node_; }
  const Kernels& kernels() const { return kernels_; }
  int variant() const;
  std::size_t reads() const { return reads_.size(); }
  bool has(std::size_t i) const { return i < reads_.size() && reads_[i] != nullptr; }
  Type type(std::size_t i) const { return reads_[i]->type; }
  const Shape& shape(std::size_t i) const { return reads_[i]->shape; }
  Index rank(std::size_t i) const { return static_cast<Index>(shape(i).size()); }
  /// Extent along an axis that is counted from the end where negative.
  Index extent(std::size_t i, Index axis) const { return shape(i)[axis < 0 ? axis + rank(i) : axis]; }
  Index count(std::size_t i) const { return elements(shape(i)); }
  const std::byte* known(std::size_t i) const { return has(i) ? reads_[i]->known : nullptr; }
  const float* known_floats(std::size_t i) const { return reinterpret_cast<const float*>(known(i)); }

  Index integer(std::string_view attribute, Index otherwise) const;
  float number(std::string_view attribute, float otherwise) const;
  std::string_view text(std::string_view attribute, std::string_view otherwise) const;
  std::vector<Index> integers(std::string_view attribute) const;

  /// Reads whose elements have to be known. `what` names them in a message.
  Status known_integers(std::size_t i, std::string_view what, std::vector<Index>& values) const;
  Status known_number(std::size_t i, std::string_view what, double& value) const;
  /// The axes of read `i`, or if it is absent of the attribute "axes", counted from the front; none given: none.
  Status known_axes(std::size_t i, Index rank, std::vector<Index>& axes) const;
  /// An axis in [-rank, rank) from an attribute, counted from the front.
  Status axis(Index otherwise, Index rank, Index& axis) const;

  /// Refuses other types; says which.
  Status only(std::size_t i, std::initializer_list<Type> types) const;
  Status same_types(std::size_t first, std::size_t last) const;
  /// The shape that reads [first, last) are broadcast to.
  Status broadcast_reads(std::size_t first, std::size_t last, Shape& all) const;
  Status refuse(const std::string& text) const { return Status::bad_input(text); }
  Status unsupported(const std::string& text) const { return Status::unsupported(text); }

  /// Declares a result.
  Status write(std::size_t i, Type type, Shape shape);
  std::size_t writes() const { return node_.writes.size(); }
  bool wanted(std::size_t i) const { return i < node_.writes.size() && node_.writes[i] >= 0; }
  const Fact& result(std::size_t i) const { return results[i]; }
  /// Result 0 has the elements of read `i`, from that many bytes on.
  void view(std::size_t i, std::size_t offset = 0) { viewed = static_cast<int>(i), view_offset = offset; }
  /// Result 0 is known: these elements.
  void give(std::vector<Index> values);
  /// Result 0 may lie where read `i` lies, which nothing else reads by then.
  void in_place(std::size_t i) { replaces.push_back(static_cast<int>(i)); }
  /// The step that computes the results.
  Step& run(Run function, std::size_t scratch_bytes = 0);

  Step step;
  Shape zeros;  ///< A convolution has so many around read 0, before and after each axis, besides its own; empty: none.
  std::vector<Fact> results;
  int viewed = -1;
  std::size_t view_offset = 0;
  std::vector<int> replaces;
  std::vector<Index> given;
  bool is_given = false;

 private:
  const Node& node_;
  const Operator& op_;
  const Kernels& kernels_;
  std::vector<const Fact*> reads_;
};

using Prepare = Status (*)(Preparation& node);

constexpr int kAny = 1 << 20;

/// An operator: how many values it reads, and how a node of it is prepared.
struct Operator {
  std::string_view name;
  Prepare prepare;
  int least_reads, most_reads;
  int variant = 0;
};

/// The operators of a file.
using Operators = std::span<const Operator>;
Operators shape_operators();
Operators movement_operators();
Operators index_operators();
Operators pointwise_operators();
Operators condition_operators();
Operators product_operators();
Operators einsum_operator();
Operators convolution_operators();
Operators pool_operators();
Operators reduction_operators();
Operators normalisation_operators();
Operators recurrent_operators();
Operators resize_operators();
Operators signal_operators();
Operators quantized_operators();
/// Those of files of `quantize` with rounded inputs. The C runtime has none: it refuses such files.
Operators rounded_operators();
/// Those that the builder makes of operators of a file; the C runtime has none.
Operators dynamic_operators();
Operators byte_operators();

/// Removes absent reads at the end; returns a Status if an operator does not take those that are left.
Status check_reads(const Operator& op, std::vector<const Fact*>& reads);
/// The same message with the node and its operator in front.
Status in_node(const Node& node, Status status);
/// Null if there is none of that name.
const Operator* find_operator(std::string_view name);

}  // namespace penstock::network
