#include "graph/program.h"

#include <algorithm>
#include <numeric>

#include "base/denormals.h"
#include "base/parallel_tasks.h"

namespace penstock::graph {

namespace {

/// Number of an operand among the reads and writes of a node.
ValueId operand(const Node& node, std::size_t i) {
  return i < node.reads.size() ? node.reads[i] : node.writes[i - node.reads.size()];
}

std::size_t operands(const Node& node) { return node.reads.size() + node.writes.size(); }

}  // namespace

Program::Program(Graph graph, const ops::Target& target) : graph_(std::move(graph)), target_(target) {
  plan(prepare());
}

Program::Executables Program::prepare() const {
  const std::vector<Node>& nodes = graph_.nodes();
  Executables executables(nodes.size());
  const auto prepare_node = [&](std::size_t n) { executables[n] = nodes[n].op.prepare(target_); };
  if (target_.device.is_cuda()) {
    side_by_side(nodes.size(), prepare_node);
  } else {
    for (std::size_t n = 0; n < nodes.size(); ++n) prepare_node(n);
  }
  return executables;
}

std::size_t Program::bytes_of(const Executables& executables, ValueId id) const {
  const Value& value = graph_.value(id);
  if (value.width >= 0) return static_cast<std::size_t>(value.count(target_)) * size_of(value.dtype);
  for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
    const std::vector<ValueId>& writes = graph_.nodes()[n].writes;
    const auto found = std::ranges::find(writes, id);
    if (found != writes.end()) return executables[n]->opaque_bytes(static_cast<int>(found - writes.begin()));
  }
  fail(ErrorCode::invalid_argument, "value {} of a graph is written by no op", value.name);
}

void Program::plan(const Executables& executables) {
  const std::size_t values = graph_.values().size(), nodes = graph_.nodes().size();
  value_bytes_.resize(values);
  value_offsets_.assign(values, 0);
  for (std::size_t v = 0; v < values; ++v) {
    const ValueId id{static_cast<int>(v)};
    const Value& value = graph_.value(id);
    value_bytes_[v] = bytes_of(executables, id);
    const bool placed = value.home == Home::workspace || value.home == Home::derived;
    if (placed && !value.part_of) continue;
    const Index elements = value.extent == Extent::fixed ? value.offset : value.offset * target_.rows;
    value_offsets_[v] = static_cast<std::size_t>(elements) * size_of(value.dtype);
  }

  // Lifetimes: of values, where several may share one, and behind them of the nodes' scratch.
  std::vector<Lifetime> lifetimes(values);
  std::vector<std::size_t> lifetime_of(values);
  std::iota(lifetime_of.begin(), lifetime_of.end(), std::size_t{0});
  std::vector<int> last_use(values, -1);
  constexpr int taken = -1;  // by what is written over it
  const auto planned = [&](ValueId id) {
    return id && graph_.value(id).home == Home::workspace && !graph_.value(id).part_of;
  };
  for (std::size_t n = 0; n < nodes; ++n) {
    for (std::size_t i = 0; i < operands(graph_.nodes()[n]); ++i) {
      const ValueId id = whole_of(operand(graph_.nodes()[n], i));
      if (planned(id)) last_use[static_cast<std::size_t>(id.index)] = static_cast<int>(n);
    }
  }
  std::vector<bool> born(values, false);
  for (std::size_t n = 0; n < nodes; ++n) {
    const Node& node = graph_.nodes()[n];
    const int now = static_cast<int>(n);
    for (const auto& [written, read] : node.in_place) {
      const ValueId to = operand(node, static_cast<std::size_t>(written)),
                    from = operand(node, static_cast<std::size_t>(read));
      if (!planned(to) || !planned(from) || born[static_cast<std::size_t>(to.index)]) continue;
      const auto t = static_cast<std::size_t>(to.index), f = static_cast<std::size_t>(from.index);
      if (last_use[f] != now || value_bytes_[t] > lifetimes[lifetime_of[f]].bytes) continue;
      lifetime_of[t] = lifetime_of[f];
      born[t] = true;
      last_use[f] = taken;
    }
    for (std::size_t i = 0; i < operands(node); ++i) {
      const ValueId id = whole_of(operand(node, i));
      if (!planned(id)) continue;
      const auto v = static_cast<std::size_t>(id.index);
      Lifetime& lifetime = lifetimes[lifetime_of[v]];
      if (!born[v]) {
        require(i >= node.reads.size(), "value {} of a graph is read by {} before anything writes it",
                graph_.value(id).name, node.op.name);
        lifetime = {value_bytes_[v], now, now};
        born[v] = true;
      }
      lifetime.last = std::max(lifetime.last, now);
    }
  }
  node_places_.resize(nodes);
  for (std::size_t n = 0; n < nodes; ++n) {
    node_places_[n].persistent = persistent_bytes_;
    persistent_bytes_ += aligned(executables[n]->persistent_bytes());
    lifetimes.push_back({executables[n]->scratch_bytes(), static_cast<int>(n), static_cast<int>(n)});
  }
  const MemoryPlan plan = plan_memory(lifetimes);
  for (std::size_t v = 0; v < values; ++v) {
    if (planned({static_cast<int>(v)})) value_offsets_[v] = persistent_bytes_ + plan.offsets[lifetime_of[v]];
  }
  for (std::size_t n = 0; n < nodes; ++n) node_places_[n].scratch = persistent_bytes_ + plan.offsets[values + n];
  workspace_bytes_ = persistent_bytes_ + plan.bytes;
  peak_bytes_ = persistent_bytes_ + penstock::peak_bytes(lifetimes);
}

ValueId Program::whole_of(ValueId id) const {
  while (id && graph_.value(id).part_of) id = graph_.value(id).part_of;
  return id;
}

std::string Program::describe() const {
  std::string text;
  for (const Node& node : graph_.nodes()) {
    text += node.op.name;
    for (const ValueId id : node.writes) {
      if (!id) continue;
      const auto v = static_cast<std::size_t>(id.index);
      text += fmt::format("  {} ({} bytes at {})", graph_.value(id).name, value_bytes_[v], value_offsets_[v]);
    }
    text += '\n';
  }
  return text;
}

Workspace::Workspace(std::shared_ptr<const Program> program, std::shared_ptr<ops::Queue> queue)
    : Workspace(std::move(program)) {
  queue_ = std::move(queue);
  memory_ = ops::Buffer(*queue_, program_->workspace_bytes());
  memory_.zero();
  place(memory_.data());
}

Workspace::Workspace(std::shared_ptr<const Program> program)
    : program_(std::move(program)),
      executables_(program_->prepare()),
      derived_(program_->graph_.values().size()),
      given_(program_->graph_.values().size()) {
  std::size_t count = 0;
  std::vector<std::vector<Use>> uses(given_.size());
  for (const Node& node : program_->graph_.nodes()) {
    first_operand_.push_back(count);
    for (std::size_t i = 0; i < operands(node); ++i, ++count) {
      const ValueId id = operand(node, i), whole = program_->whole_of(id);
      if (!id) continue;
      const Home home = program_->graph_.value(whole).home;
      if (home != Home::given && home != Home::derived) continue;
      const std::size_t offset = id == whole ? 0 : program_->value_offsets_[static_cast<std::size_t>(id.index)];
      uses[static_cast<std::size_t>(whole.index)].push_back({count, offset});
    }
  }
  operands_.resize(count + 1);
  for (std::size_t v = 0; v < uses.size(); ++v) {
    given_[v].first = uses[v].empty() ? Use{count, 0} : uses[v].front();
    if (uses[v].size() > 1) given_[v].others.assign(uses[v].begin() + 1, uses[v].end());
  }
}

void Workspace::bind(Home home, void* memory) {
  void*& held = homes_[static_cast<std::size_t>(home)];
  resolved_ = resolved_ && held == memory;
  held = memory;
}

void Workspace::bind(const std::shared_ptr<Weights>& weights) {
  if (weights_ != weights) {
    std::ranges::fill(derived_, nullptr);
    resolved_ = false;
  }
  weights_ = weights;
  bind(Home::values, weights != nullptr ? weights->values().data() : nullptr);
}

void* Workspace::value(ValueId id) const {
  if (!id) return nullptr;
  const auto v = static_cast<std::size_t>(id.index);
  if (const ValueId whole = program_->graph_.value(id).part_of) {
    void* const memory = value(whole);
    return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + program_->value_offsets_[v];
  }
  const Home home = program_->graph_.value(id).home;
  void* base = homes_[static_cast<std::size_t>(home)];
  if (home == Home::workspace) base = base_;
  if (home == Home::given) base = given_[v].memory;
  if (home == Home::derived) base = derived_[v] ? derived_[v]->memory.data() : given_[v].memory;
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + program_->value_offsets_[v];
}

std::span<std::byte> Workspace::planned_memory() const {
  return {base_ + program_->persistent_bytes_, program_->workspace_bytes_ - program_->persistent_bytes_};
}

void Workspace::resolve() {
  const std::vector<Node>& nodes = program_->graph_.nodes();
  runs_.clear();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (std::size_t i = 0; i < operands(nodes[n]); ++i) operands_[first_operand_[n] + i] = value(operand(nodes[n], i));
    if (nodes[n].phase != Phase::weights) runs_.push_back({executables_[n].get(), memory_of(n)});
  }
  resolved_ = true;
}

ops::Operands Workspace::memory_of(std::size_t node) const {
  const Program::NodePlaces& places = program_->node_places_[node];
  return {operands_.data() + first_operand_[node], base_ + places.scratch, base_ + places.persistent};
}

void Workspace::run_node(std::size_t node, const ops::Call& call) {
  executables_[node]->run(call, memory_of(node));
  if (observer_ != nullptr) observer_->after(node);
}

void Workspace::refresh(const ops::Call& call) {
  if (weights_ == nullptr) return;
  const std::lock_guard lock(weights_->making());
  const std::vector<Node>& nodes = program_->graph_.nodes();
  bool moved = false, made = false;
  for (std::size_t v = 0; v < derived_.size(); ++v) {
    const Value& value = program_->graph_.values()[v];
    if (value.home != Home::derived || value.part_of) continue;
    std::shared_ptr<Derived> form = weights_->derived(value.key, program_->value_bytes_[v], derived_[v]);
    moved = moved || form != derived_[v];
    derived_[v] = std::move(form);
  }
  if (moved || !resolved_) resolve();
  if (observer_ != nullptr) observer_->before();
  moved_ = moved_ || moved;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].phase != Phase::weights) continue;
    bool stale = false;
    for (const ValueId id : nodes[n].writes) {
      stale = stale || (id && derived_[static_cast<std::size_t>(id.index)]->version != weights_->version());
    }
    if (!stale) continue;
    run_node(n, call);
    made = true;
    for (const ValueId id : nodes[n].writes) {
      if (id) derived_[static_cast<std::size_t>(id.index)]->version = weights_->version();
    }
  }
  // Others may read what was made, from other streams, unless all work is on the queue of the weights.
  if (made && queue_) queue_->synchronize();
}

void Workspace::updated() {
  const std::lock_guard lock(weights_->making());
  weights_->changed();
  for (const Node& node : program_->graph_.nodes()) {
    if (node.phase != Phase::update) continue;
    for (const ValueId id : node.writes) {
      if (id && derived_[static_cast<std::size_t>(id.index)]) {
        derived_[static_cast<std::size_t>(id.index)]->version = weights_->version();
      }
    }
  }
}

void Workspace::run(Phase phase, const ops::Call& call) {
  const WithDenormals as_zeros(DenormalMode::zeros());
  if (!resolved_) resolve();
  if (observer_ != nullptr) observer_->before();
  const std::vector<Node>& nodes = program_->graph_.nodes();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].phase == phase) run_node(n, call);
  }
}

void Workspace::run(const ops::Call& call) {
  const WithDenormals as_zeros(DenormalMode::zeros());
  run_as_is(call);
}

void Workspace::run_observed(const ops::Call& call) {
  if (!resolved_) resolve();
  if (observer_ == nullptr) return run_as_is(call);
  observer_->before();
  const std::vector<Node>& nodes = program_->graph_.nodes();
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].phase != Phase::weights) run_node(n, call);
  }
}

}  // namespace penstock::graph
