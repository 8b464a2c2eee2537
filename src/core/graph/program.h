#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_plan.h"
#include "graph/graph.h"
#include "graph/weights.h"

namespace penstock::graph {

/// A graph prepared for a target: its nodes in order and a place for every value, in one workspace. It never changes,
/// and any number of workspaces, on any threads, run it.
class Program {
 public:
  /// Throws Error: what an op refuses, with its reason.
  Program(Graph graph, const ops::Target& target);

  const Graph& graph() const { return graph_; }
  const ops::Target& target() const { return target_; }
  /// Bytes of a workspace; a run takes exactly these.
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// Returns the size of the workspace's first part, which is zero before the first run and left alone between runs.
  std::size_t persistent_bytes() const { return persistent_bytes_; }
  /// Bytes of a value.
  std::size_t bytes(ValueId id) const { return value_bytes_[static_cast<std::size_t>(id.index)]; }
  /// The most that is needed at one moment, which the plan above comes near to.
  std::size_t peak_bytes() const { return peak_bytes_; }
  /// One line per node: its name, what it writes, and bytes.
  std::string describe() const;

 private:
  friend class Workspace;
  using Executables = std::vector<std::unique_ptr<ops::Executable>>;

  /// Places of a node's own memory in the workspace.
  struct NodePlaces {
    std::size_t scratch = 0, persistent = 0;
  };

  Executables prepare() const;
  /// The value whose memory that of a value is.
  ValueId whole_of(ValueId id) const;
  std::size_t bytes_of(const Executables& executables, ValueId id) const;
  void plan(const Executables& executables);

  Graph graph_;
  ops::Target target_;
  std::vector<std::size_t> value_bytes_;    // of each value
  std::vector<std::size_t> value_offsets_;  // from the start of its home
  std::vector<NodePlaces> node_places_;
  std::size_t persistent_bytes_ = 0, workspace_bytes_ = 0, peak_bytes_ = 0;
};

/// Hears of the nodes of a run, as they are put into the queue.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Called before the first node of a run or of a refresh, and after each node.
  virtual void before() = 0;
  virtual void after(std::size_t node) = 0;
};

/// The memory of one run of a program at a time, with the executables that work in it.
class Workspace {
 public:
  /// Allocates everything that runs need.
  Workspace(std::shared_ptr<const Program> program, std::shared_ptr<ops::Queue> queue);
  /// Works in memory of its caller's, who says with place() where it is.
  explicit Workspace(std::shared_ptr<const Program> program);

  const Program& program() const { return *program_; }
  ops::Queue& queue() const { return *queue_; }

  /// The workspace of the next runs: workspace_bytes() of the program, aligned to 128.
  void place(void* memory) {
    if (base_ == memory) return;
    base_ = static_cast<std::byte*>(memory);
    resolved_ = false;
  }
  /// Sets the memory of the values of a home until the next call; null: none.
  void bind(Home home, void* memory);
  /// Binds one value: of Home::given, or a derived one that is not made once for all. Costs as much as there are nodes
  /// that read or write it.
  [[gnu::always_inline]] void bind(ValueId id, void* memory) {
    Given& given = given_[static_cast<std::size_t>(id.index)];
    if (given.memory == memory) return;
    given.memory = memory;
    operands_[given.first.operand] = given.first.in(memory);
    for (const Use& use : given.others) operands_[use.operand] = use.in(memory);
  }
  /// The parameters, and what is derived from them; null: those of nobody.
  void bind(const std::shared_ptr<Weights>& weights);

  /// All phases but that of weights, or one phase alone. What is derived from weights is as the last refresh() left it.
  void run(const ops::Call& call);
  /// Runs with denormal numbers as they are on the calling thread: for steps so short that changing the mode shows.
  void run_as_is(const ops::Call& call) {
    if (!resolved_ || observer_ != nullptr) return run_observed(call);
    for (const Run& run : runs_) run.executable->run(call, run.operands);
  }
  void run(Phase phase, const ops::Call& call);
  /// Makes what is derived from weights now, so that the next run need not.
  void refresh(const ops::Call& call);

  /// Call this when a run has put a step of an optimiser into the queue: the weights, and the values that the step
  /// itself derives from them, are new.
  void updated();
  /// Returns whether refresh() has moved derived values since the last call: recordings of runs are then invalid.
  bool moved() { return std::exchange(moved_, false); }

  /// Sets the observer of runs from now on; null: none.
  void observe(Observer* observer) { observer_ = observer; }

  /// A value of the last run, in the device's memory, if nothing has taken its place since.
  void* value(ValueId id) const;
  /// The memory that values and scratch share by their lifetimes, of which a run reads nothing that it has not written.
  std::span<std::byte> planned_memory() const;

 private:
  void resolve();
  void run_observed(const ops::Call& call);
  void run_node(std::size_t node, const ops::Call& call);
  ops::Operands memory_of(std::size_t node) const;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<ops::Queue> queue_;
  std::shared_ptr<Weights> weights_;
  ops::Buffer memory_;
  std::byte* base_ = nullptr;  // of the workspace
  std::vector<std::unique_ptr<ops::Executable>> executables_;
  std::array<void*, kHomes> homes_ = {};
  std::vector<std::shared_ptr<Derived>> derived_;  // of each value that is derived, else null
  std::vector<void*> operands_;                    // of all nodes, one after the other
  std::vector<std::size_t> first_operand_;         // of each node
  /// Node that run() runs, in this order: all nodes but those of weights.
  struct Run {
    ops::Executable* executable;
    ops::Operands operands;
  };
  std::vector<Run> runs_;
  /// An operand that lies in a value's memory, and how far from its start.
  struct Use {
    std::size_t operand = 0, offset = 0;
    void* in(void* memory) const { return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + offset; }
  };
  /// A value that is bound by itself. One without uses has the place behind all operands for one.
  struct Given {
    void* memory = nullptr;
    Use first;
    std::vector<Use> others;
  };
  std::vector<Given> given_;  // by value
  bool resolved_ = false, moved_ = true;
  Observer* observer_ = nullptr;
};

}  // namespace penstock::graph
