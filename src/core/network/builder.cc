#include "network/builder.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "network/evaluate.h"

namespace penstock::network {

namespace {

constexpr std::size_t kMostNodes = 200000;
constexpr std::uint64_t kMostPackedBytes = std::uint64_t{4} << 30;

}  // namespace

Status Builder::build(std::span<const Shape> inputs) {
  Numbers items(network_.values.size(), -1);
  PENSTOCK_TRY(read_constants(network_, items));
  PENSTOCK_TRY(read_inputs(inputs, items));
  PENSTOCK_TRY(read_nodes(network_, items));
  for (const int output : network_.outputs) {
    if (output < 0 || output >= static_cast<int>(items.size())) {
      return Status::bad_input("output number " + text_of(output) + " is no value");
    }
    if (items[output] < 0) {
      return Status::unsupported("no operator here computes output '" + network_.values[output].name + "'");
    }
    outputs_.push_back(items[output]);
  }
  values_ = std::move(items);
  PENSTOCK_TRY(check_states());
  copy_outputs();
  drop_unneeded();
  fuse();
  find_lifetimes();
  carry_in_place();
  lie_in_place();
  place();
  return {};
}

int Builder::new_item(Fact fact, int buffer) {
  items_.push_back({std::move(fact), buffer, 0});
  return static_cast<int>(items_.size()) - 1;
}

int Builder::new_buffer(std::size_t bytes) {
  buffers_.push_back({bytes});
  return static_cast<int>(buffers_.size()) - 1;
}

Status Builder::read_constants(const Network& network, Numbers& items) {
  for (std::size_t i = 0; i < network.values.size(); ++i) {
    const Value& value = network.values[i];
    if (value.constant < 0) continue;
    if (value.constant >= static_cast<int>(network.constants.size())) {
      return Status::bad_input("value '" + value.name + "' is constant number " + text_of(value.constant) + " of " +
                               text_of(static_cast<Index>(network.constants.size())));
    }
    const Constant& constant = network.constants[value.constant];
    PENSTOCK_TRY(check_shape(constant.type, constant.shape));
    const std::size_t bytes = bytes_of(constant.type, constant.shape);
    if (constant.bytes.size() != bytes) {
      return Status::bad_input("constant '" + value.name + "' of shape " + text_of(constant.shape) + " has " +
                               std::to_string(constant.bytes.size()) + " bytes, not " + std::to_string(bytes));
    }
    static constexpr std::byte nothing[8] = {};
    const std::byte* data = bytes == 0 ? nothing : constant.bytes.data();
    if (reinterpret_cast<std::uintptr_t>(data) % size_of(constant.type) != 0) {
      std::shared_ptr<const std::byte[]> owner;
      std::byte* memory = nullptr;
      PENSTOCK_TRY(known_memory(bytes, known_bytes_, owner, memory));
      std::memcpy(memory, data, bytes);
      impl_.known.push_back(std::move(owner));
      data = memory;
    }
    items[i] = new_item({constant.type, constant.shape, data});
  }
  return {};
}

Status Builder::read_inputs(std::span<const Shape> inputs, Numbers& items) {
  if (inputs.size() != network_.inputs.size()) {
    return Status::invalid_argument("the network has " + std::to_string(network_.inputs.size()) + " inputs, but " +
                                    std::to_string(inputs.size()) + " shapes were given");
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const int number = network_.inputs[i];
    if (number < 0 || number >= static_cast<int>(items.size()) || items[number] >= 0) {
      return Status::bad_input("input number " + std::to_string(i) + " is no value, or a constant");
    }
    const Value& value = network_.values[number];
    bool fits = inputs[i].size() == value.shape.size();
    for (std::size_t axis = 0; fits && axis < value.shape.size(); ++axis) {
      fits = value.shape[axis] < 0 || value.shape[axis] == inputs[i][axis];
    }
    if (!fits) {
      return Status::invalid_argument("input '" + value.name + "' has shape " + text_of(value.shape) +
                                      " (-1: any), not " + text_of(inputs[i]));
    }
    PENSTOCK_TRY(check_shape(value.type, inputs[i]));
    const int buffer = new_buffer(bytes_of(value.type, inputs[i]));
    buffers_[buffer].kept = true;
    items[number] = new_item({value.type, inputs[i], nullptr, static_cast<int>(i)}, buffer);
    inputs_.push_back(items[number]);
  }
  return {};
}

Status Builder::read_nodes(const Network& network, Numbers& items) {
  if (depth_ >= kMostDepth) return Status::unsupported("branches lie more than 32 deep in each other");
  ++depth_;
  for (const Node& node : network.nodes) {
    if (++nodes_ > kMostNodes) return Status::unsupported("the network has more than 200000 nodes");
    if (Status status = read_node(network, node, items); !status.ok()) return in_node(node, std::move(status));
  }
  --depth_;
  return {};
}

Status Builder::read_node(const Network& network, const Node& node, Numbers& items) {
  for (const int read : node.reads) {
    if (read == -1) continue;
    if (read < -1 || read >= static_cast<int>(items.size())) {
      return Status::bad_input("it reads value number " + text_of(read) + " of " +
                               text_of(static_cast<Index>(items.size())));
    }
    if (items[read] < 0) {
      const std::string name = read < static_cast<int>(network.values.size()) ? network.values[read].name : "a value";
      return Status::bad_input("it reads '" + name + "', which no node before it computes");
    }
  }
  for (const int write : node.writes) {
    if (write < -1 || write >= static_cast<int>(items.size()) || (write >= 0 && items[write] >= 0)) {
      return Status::bad_input("it writes value number " + text_of(write) +
                               ", which does not exist or has been written before");
    }
  }
  if (node.op == "If") return read_if(node, items);
  if (node.op == "Loop") return read_loop(network, node, items);
  if (node.op == "Scan") return read_scan(network, node, items);
  if (node.op == "MatMulInteger" || node.op == "ConvInteger") return read_integer_product(network, node, items);
#if !PENSTOCK_RUNTIME
  bool done = false;
  PENSTOCK_TRY(read_whole_numbers(network, node, items, done));
  if (done) return {};
#endif
  const Operator* op = find_operator(node.op);
  if (op == nullptr) return Status::unsupported("there is no such operator in this library");
  return prepare(*op, node, items);
}

std::string Builder::explain_source(const Fact& fact) const {
  if (fact.source < 0) return "";
  const std::string& name = network_.values[network_.inputs[fact.source]].name;
  return "it depends on what is in input '" + name + "'; give that input a fixed value when the model is imported";
}

Status Builder::read_if(const Node& node, Numbers& items) {
  if (node.bodies.size() != 2 || node.reads.empty() || node.reads[0] < 0) {
    return Status::bad_input("it needs a condition and two branches");
  }
  const Fact& condition = items_[items[node.reads[0]]].fact;
  if (condition.known == nullptr) {
    return Status::unsupported("which branch runs is not known before a run: " + explain_source(condition));
  }
  if (elements(condition.shape) != 1) return Status::bad_input("the condition has more than one element");
  const Network& body = node.bodies[integer_at(condition.type, condition.known, 0) != 0 ? 0 : 1];
  if (body.inputs.size() + 1 != node.reads.size() || body.outputs.size() != node.writes.size()) {
    return Status::bad_input("a branch has other numbers of inputs or outputs than its node");
  }
  Numbers inner(body.values.size(), -1);
  PENSTOCK_TRY(read_constants(body, inner));
  const auto exists = [&](int number) { return number >= 0 && number < static_cast<int>(inner.size()); };
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (!exists(body.inputs[i]) || node.reads[i + 1] < 0) return Status::bad_input("a branch reads what is not there");
    inner[body.inputs[i]] = items[node.reads[i + 1]];
  }
  PENSTOCK_TRY(read_nodes(body, inner));
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    if (!exists(body.outputs[i]) || inner[body.outputs[i]] < 0) {
      return Status::bad_input("output " + std::to_string(i) + " of the branch is computed by no node");
    }
    if (node.writes[i] >= 0) items[node.writes[i]] = inner[body.outputs[i]];
  }
  return {};
}

Status Builder::prepare(const Operator& op, const Node& node, Numbers& items) {
  std::vector<const Fact*> facts;
  Numbers reads, writes;
  bool known = true;
  int source = -1;
  for (const int read : node.reads) {
    reads.push_back(read < 0 ? -1 : items[read]);
    facts.push_back(read < 0 ? nullptr : &items_[items[read]].fact);
    if (read < 0 || facts.back()->known != nullptr) continue;
    known = false;
    if (source < 0) source = facts.back()->source;
  }
  PENSTOCK_TRY(check_reads(op, facts));
  reads.resize(facts.size());
  const auto pad = op.name == "Conv" ? pads_.find(reads[0]) : pads_.end();
  if (pad != pads_.end()) {
    reads[0] = steps_[pad->second].reads[0];
    facts[0] = &items_[reads[0]].fact;
  }
  Preparation preparation(node, op, impl_.kernels, facts);
  if (pad != pads_.end()) preparation.zeros = *static_cast<const Shape*>(steps_[pad->second].step.plan.get());
  PENSTOCK_TRY(op.prepare(preparation));
  for (std::size_t i = 0; i < node.writes.size(); ++i) {
    Fact& fact = preparation.results[i];
    fact.source = source;
    writes.push_back(new_item(fact));
    if (node.writes[i] >= 0 && fact.declared) items[node.writes[i]] = writes.back();
  }
  if (preparation.is_given) known = true;
  if (known) return evaluate(preparation, writes);
  if (!share_weights(preparation.step.packed)) packed_bytes_ += preparation.step.packed.size() * sizeof(float);
  if (std::uint64_t{packed_bytes_} > kMostPackedBytes) {
    return Status::unsupported("all weights together, those of each round of a loop included, take more than 4 GiB");
  }
  emit(preparation, reads, writes);
  return {};
}

Status Builder::evaluate(Preparation& node, const Numbers& writes) {
  std::vector<const std::byte*> results;
  std::shared_ptr<const std::byte[]> memory;
  PENSTOCK_TRY(network::evaluate(node, impl_.kernels, known_bytes_, memory, results));
  for (std::size_t i = 0; i < writes.size(); ++i) items_[writes[i]].fact.known = results[i];
  if (memory != nullptr) impl_.known.push_back(std::move(memory));
  return {};
}

/// Lets steps with the same weights have them once: the rounds of a loop, and nodes that are its rounds written out.
/// Returns whether another step had them.
bool Builder::share_weights(Weights& packed) {
  std::size_t mark = packed.size();
  for (std::size_t i = 0; i < packed.size(); i += packed.size() / 64 + 1) {
    mark = mark * 31 + std::bit_cast<std::uint32_t>(packed.data()[i]);
  }
  const auto [first, is_new] = weights_.try_emplace(mark, packed);
  return !is_new && packed.share(first->second);
}

/// Returns a buffer for the scratch of a step, or that of another one which keeps the same zeros in it.
int Builder::new_scratch(const Step& step) {
#if !PENSTOCK_RUNTIME
  if (!step.zeros.empty()) {
    const auto [found, is_new] = zeros_.try_emplace(step.zeros, -1);
    if (is_new) found->second = new_buffer(step.scratch_bytes);
    return found->second;
  }
#endif
  return new_buffer(step.scratch_bytes);
}

void Builder::emit(Preparation& node, const Numbers& reads, const Numbers& writes) {
  if (node.viewed >= 0) {
    Item& result = items_[writes[0]];
    const Item& source = items_[reads[node.viewed]];
    result.buffer = source.buffer;
    result.offset = source.offset + node.view_offset;
    result.fact.known = source.fact.known == nullptr ? nullptr : source.fact.known + node.view_offset;
    return;
  }
  std::size_t bytes = 0;
  for (const int write : writes) {
    const Fact& fact = items_[write].fact;
    items_[write].buffer = new_buffer(bytes_of(fact.type, fact.shape));
    bytes += bytes_of(fact.type, fact.shape);
  }
  if (bytes == 0) return;
  Emitted emitted{std::move(node.step), reads, writes, std::move(node.replaces)};
  for (const int read : reads) emitted.step.types.push_back(read < 0 ? Type::f32 : items_[read].fact.type);
  for (const int write : writes) emitted.step.types.push_back(items_[write].fact.type);
  if (emitted.step.scratch_bytes > 0) emitted.scratch = new_scratch(emitted.step);
  if (emitted.step.adds_zeros) pads_[writes[0]] = steps_.size();
  steps_.push_back(std::move(emitted));
}

}  // namespace penstock::network
