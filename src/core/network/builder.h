#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/preparation.h"
#include "network/program_impl.h"

namespace penstock::network {

/// Makes a program of a network: shapes, constants, steps, then memory.
class Builder {
 public:
  Builder(Program::Impl& impl, const Network& network) : impl_(impl), network_(network) {}

  Status build(std::span<const Shape> inputs);
  /// What became known of a value of the network by build().
  Fact fact_of(int value) const { return values_[value] < 0 ? Fact{} : items_[values_[value]].fact; }

 private:
  /// Memory that steps write, or an input.
  struct Buffer {
    std::size_t bytes = 0;
    int first = 0, last = -1;  ///< Steps between which it is in use.
    bool kept = false;         ///< Of an input or an output: nothing else may lie there.
    int merged = -1;           ///< The buffer in whose place it lies.
  };
  /// A value. Either it is known, or it lies in a buffer.
  struct Item {
    Fact fact;
    int buffer = -1;
    std::size_t offset = 0;
  };
  struct Emitted {
    Step step;
    std::vector<int> reads, writes, replaces;
    int scratch = -1;
    bool needed = false;
  };

  using Numbers = std::vector<int>;  ///< Of the values of one network: their items, or -1.

  Status read_constants(const Network& network, Numbers& items);
  Status read_inputs(std::span<const Shape> inputs, Numbers& items);
  Status read_nodes(const Network& network, Numbers& items);
  Status read_node(const Network& network, const Node& node, Numbers& items);
  Status add_step(const Network& network, const Node& of, std::string op, std::vector<int> reads,
                  std::vector<Attribute> attributes, Numbers& items, int& value);
  Status add_cast(const Network& network, const Node& of, int read, Index to, Numbers& items, int& value);
  Status read_factor(const Network& network, const Node& node, std::size_t i, Numbers& items, int& value);
  Status read_integer_product(const Network& network, const Node& node, Numbers& items);
#if !PENSTOCK_RUNTIME
  bool fits_bytes(const Node& node, const Numbers& items) const;
  Status read_whole_numbers(const Network& network, const Node& node, Numbers& items, bool& done);
  Status read_dynamic(const Network& network, const Node& node, Numbers& items);
  Status read_whole_sum(const Network& network, const Node& node, Numbers& items);
#endif
  Status read_if(const Node& node, Numbers& items);
  struct Rounds;
  Status add_number(Index number, Shape shape, int& item);
  Status add_node(const Network& network, std::string op, std::vector<int> items, std::vector<Attribute> attributes,
                  int& result);
  Status check_body(const Rounds& rounds, std::size_t inputs, std::size_t outputs) const;
  Status read_round(Rounds& rounds, const std::vector<int>& first, const std::vector<int>& slices, int* condition);
  Status write_rounds(Rounds& rounds, const std::vector<Index>& axes, const std::vector<Index>& reverse,
                      Numbers& items);
  Status read_loop(const Network& network, const Node& node, Numbers& items);
  Status read_scan(const Network& network, const Node& node, Numbers& items);
  Status prepare(const Operator& op, const Node& node, Numbers& items);
  Status evaluate(Preparation& node, const Numbers& writes);
  bool share_weights(Weights& packed);
  void emit(Preparation& node, const Numbers& reads, const Numbers& writes);
  Status check_states() const;
  void copy_outputs();
  void drop_unneeded();
  void fuse();
  bool fuse_swish(std::size_t at, const std::vector<int>& writers, std::vector<int>& readers);
  bool fuse_into_writer(std::size_t at, std::vector<int>& writers, const std::vector<int>& readers);
  void fuse_head(Emitted& column, const std::vector<int>& writers, const std::vector<int>& readers);
  void fuse_images(Emitted& emitted, std::vector<int>& writers, const std::vector<int>& readers);
  void fuse_magnitudes(Emitted& root, std::vector<int>& writers, const std::vector<int>& readers);
  void fuse_rows(Emitted& reader, const std::vector<int>& writers, const std::vector<int>& readers);
  bool absorb_into(Step& writer, const Shape& shape, const Emitted& next, std::size_t side) const;
  void find_lifetimes();
  void carry_in_place();
  void lie_in_place();
  void place();
  std::string explain_source(const Fact& fact) const;

  int new_item(Fact fact, int buffer = -1);
  int new_buffer(std::size_t bytes);
  int new_scratch(const Step& step);
  int buffer_of(int item) const;
  Place place_of(int item) const;

  Program::Impl& impl_;
  const Network& network_;
  std::deque<Item> items_;  // facts of nodes point into it while others are added
  std::vector<Buffer> buffers_;
  std::vector<Emitted> steps_;
  Numbers values_;
  std::vector<int> inputs_, outputs_;
  std::vector<std::size_t> offsets_;                  // of buffers
  std::unordered_map<std::size_t, Weights> weights_;  // by their marks
  std::unordered_map<int, std::size_t> pads_;         // the steps that put zeros around a map, by what they write
#if !PENSTOCK_RUNTIME
  /// Items of bytes and the floats that are these without their zero points.
  struct Levels {
    int zero, floats;
    int x, scale;              // of what they are made
    const Attribute* of_rows;  // the attribute "rows" of their ranges, or null
  };
  std::unordered_map<int, Levels> levels_;
  std::map<std::vector<Index>, int> zeros_;  // buffers of scratches, by Step::zeros
  std::unordered_map<int, int> wholes_;      // items of 32-bit integers, and of floats with the same numbers
#endif
  std::size_t known_bytes_ = 0, packed_bytes_ = 0, nodes_ = 0;
  int depth_ = 0;
};

}  // namespace penstock::network
