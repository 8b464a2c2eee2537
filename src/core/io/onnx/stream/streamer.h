#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "network/network.h"
#include "network/trace.h"

namespace penstock::io::onnx {

/// When a value of a network is known. Frame i of the whole sequence is frame i + offset of the stream, which has
/// up / down frames for each step of the inputs. With a negative offset a chunk begins with the last -offset frames of
/// the chunk before.
struct Timing {
  enum class Kind {
    fixed,    ///< It depends on no frame.
    carried,  ///< It depends on states that the network has by itself.
    length,   ///< It depends on how many frames there are.
    frames,   ///< It has frames along `axis`.
    last,     ///< It depends on all frames until the last one.
    unclear,  ///< A stream does not have it, for `reason`.
  };
  Kind kind = Kind::fixed;
  Index axis = 0, up = 1, down = 1, offset = 0;
  std::string ahead = {};  ///< The node that first needs later frames.
  std::string reason = {};

  bool has_frames() const { return kind == Kind::frames; }
  Index margin() const { return offset < 0 ? -offset : 0; }
};

/// What a network has for sequences of a length, twice that length, and that length with other free extents.
struct Traces {
  Index steps = 0;
  network::Trace once, twice, others;
  std::vector<std::pair<Index, std::string>> names = {};  ///< The other free extents in `others`.
};

/// A length must be a multiple of `period` for streams.
struct OtherPeriod : std::exception {
  explicit OtherPeriod(Index steps) : period(steps) {}
  Index period;
};

/// Writes the network that computes a chunk of frames at a time. Throws Error(unsupported) with node, operator and
/// reason where the whole sequence is needed; OtherPeriod if sequences of other lengths have to be looked at.
class Streamer {
 public:
  Streamer(const network::Network& whole, const Traces& traces, Index period, const std::string& source);

  /// Inputs have frames along the axis; -1: they have none. Each input once.
  void add_input(int value, Index axis);
  network::Network write();
  /// Whether frames depend on frames before them.
  bool is_coupled() const { return coupled_; }
  /// Timing of the outputs of the whole network.
  const std::vector<Timing>& outputs() const { return outputs_; }

 private:
  using Node = network::Node;
  using Rule = void (Streamer::*)();
  /// Frames of a value of the whole network, as a value of the stream.
  struct Chunk {
    int value = -1, like = -1;
    Timing time;
  };

  // Facts of values of the whole network.
  const network::Fact& fact(int value) const { return traces_.once.facts[static_cast<std::size_t>(value)]; }
  const network::Shape& shape(int value) const { return fact(value).shape; }
  Index rank(int value) const { return static_cast<Index>(shape(value).size()); }
  bool varies(int value) const;
  bool is_zero(int value) const;
  network::Shape extents(int value) const;
  /// Frames of `value` beyond those that have come: a stream does not have them.
  Index excess(int value, const Timing& time) const;
  std::vector<Index> integers(std::size_t read, const char* what) const;
  Index integer(std::string_view attribute, Index otherwise) const;
  std::vector<Index> list(std::string_view attribute, std::size_t count, Index otherwise) const;

  // The node that is being written.
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> reason, Args&&... args) const {
    refuse_for(fmt::format(reason, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse_for(const std::string& reason) const;
  bool has(std::size_t read) const { return read < node_->reads.size() && node_->reads[read] >= 0; }
  int read(std::size_t i) const { return has(i) ? node_->reads[i] : -1; }
  const Timing& time(std::size_t i) const { return timing_[static_cast<std::size_t>(node_->reads[i])]; }
  Chunk chunk(std::size_t i) const;
  bool reads_frames(std::size_t i) const { return has(i) && time(i).has_frames(); }
  void need_fixed(std::size_t first, std::size_t last) const;
  void need_other_axis(Index axis) const;

  // Parts of the stream.
  int new_value(network::Type type, std::string name);
  int constant(network::Constant constant);
  int list_of(std::vector<Index> numbers);
  int apply(std::string_view op, std::vector<int> reads, std::vector<network::Attribute> attributes = {},
            network::Type type = network::Type::f32);
  int slice(int value, Index axis, Index begin, Index end, Index step = 1);
  int add_state_input(network::Type type, network::Shape shape, const network::Shape& others);
  void add_state(int input, int output);
  int position();
  int position_of(const Timing& time);
  int started();
  int with_history(const Chunk& x, Index frames);
  int masked(int value, const Chunk& x, Index history, float fill);
  Chunk later(Chunk x, Index frames);
  Chunk moved(Chunk x, Index offset);
  Chunk padded(Chunk x, Index frames, float fill);
  /// Delays all frames that the node reads to those that come last.
  std::vector<int> aligned(std::vector<Chunk>& chunks);
  Index common_place(const std::function<Index(std::size_t)>& place, const char* otherwise) const;
  void join_frames(Index axis);

  // Results.
  Node& copy(std::vector<int> reads);
  Node& copy();
  void result(std::size_t write, Timing time, int value = -1);
  void results(const Timing& time);
  void write_node();
  void write_outputs();
  void write_without_frames();
  static Rule rule_of(const Node& node);

  // Rules of operators that read frames.
  void rule_pointwise();
  void rule_product();
  void rule_gemm();
  void rule_einsum();
  void rule_over_axis();
  void rule_over_last_axes();
  void rule_over_maps();
  void rule_channels();
  void rule_reduce();
  void rule_transpose();
  void rule_reshape();
  void rule_expand();
  void rule_concat();
  void join_along_time(Index axis, std::size_t frames);
  void rule_slice();
  void rule_pad();
  void rule_gather();
  void rule_cumulative();
  void rule_convolution();
  void rule_transposed_convolution();
  void rule_spectra();
  void rule_recurrent();
  void rule_rows();
  void rule_scan();
  int first_state(std::size_t read, const network::Shape& shape, const network::Shape& others, int& own);
  Chunk windows(const Chunk& x, Index reach, Index stride);

  const network::Network& whole_;
  const Traces& traces_;
  const Index period_;
  const std::string& source_;
  network::Network stream_;
  std::vector<Timing> timing_;  // of the values of the whole network
  std::vector<int> values_;     // their values in the stream
  std::vector<Timing> outputs_;
  const Node* node_ = nullptr;
  int clock_ = -1, position_ = -1, states_ = 0;
  Index clock_axis_ = 0;
  bool coupled_ = false;
};

}  // namespace penstock::io::onnx
