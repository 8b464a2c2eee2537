#include "csp/store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/quote.h"

namespace penstock::csp {
namespace {

/// Limits the recursion over expressions, which goes one level down per operation.
constexpr int most_depth = 5000;

bool is_zero_possible(const Store& store, int divisor) {
  const Node& node = store.nodes[divisor];
  if (node.op == Op::variable) return store.variables[node.a].domain.contains(0);
  return node.range.contains(0);
}

int operands(Op op) {
  if (op == Op::constant || op == Op::variable || op == Op::call) return 0;
  if (op == Op::negation) return 1;
  return op == Op::select ? 3 : 2;
}

std::string truth(Integer value) { return value != 0 ? "true" : "false"; }

struct Spelling {
  const char* sign;
  int binding;  // precedence in the text format
};

/// How each operation is written, in the order of Op. Those without a sign are calls or have a form of their own.
constexpr Spelling kSpellings[] = {{"", 7},   {"", 7},  {"+", 5}, {"-", 5},   {"*", 6}, {"/", 6},  {"", 7},
                                   {"%", 6},  {"", 7},  {"", 7},  {"", 7},    {"", 7},  {"==", 4}, {"!=", 4},
                                   {"<=", 4}, {"<", 4}, {"", 3},  {"and", 2}, {"or", 1}};
static_assert(std::size(kSpellings) == static_cast<std::size_t>(Op::disjunction) + 1);

const Spelling& spelling(Op op) { return kSpellings[static_cast<std::size_t>(op)]; }

class Writer {
 public:
  explicit Writer(const Store& store) : store_(store) {}

  std::string write(int id, int outer = 0, int depth = 0, bool condition = false) {
    // Sufficient for expressions written by people; longer texts end in dots.
    if (depth > 100 || (written_ += 1) > 2000) return "...";
    const Node& node = store_.nodes[id];
    if (node.op == Op::constant) return condition ? truth(node.range.low) : std::to_string(node.range.low);
    const int own = is_implication(node) ? 0 : spelling(node.op).binding;
    std::string text = write_open(node, own, depth);
    return own < outer ? "(" + text + ")" : text;
  }

 private:
  bool is_implication(const Node& node) const {
    return node.op == Op::disjunction && store_.nodes[node.a].op == Op::negation;
  }

  std::string call(const char* name, const Node& node, int depth) {
    std::string text = std::string(name) + "(" + write(node.a, 0, depth + 1, node.op == Op::select) + ", " +
                       write(node.b, 0, depth + 1);
    if (node.c >= 0) text += ", " + write(node.c, 0, depth + 1);
    return text + ")";
  }

  std::string call_of(const Function& function, int depth) {
    std::string text = function.name + "(";
    for (const int argument : function.arguments) {
      text += (text.ends_with('(') ? "" : ", ") + write(argument, 0, depth + 1);
    }
    return text + ")";
  }

  std::string write_open(const Node& node, int own, int depth) {
    switch (node.op) {
      case Op::variable:
        return store_.variables[node.a].name;
      case Op::minimum:
        return call("min", node, depth);
      case Op::maximum:
        return call("max", node, depth);
      case Op::ceil_divide:
        return call("ceil_div", node, depth);
      case Op::select:
        return call("if", node, depth);
      case Op::call:
        return call_of(store_.functions[node.a], depth);
      case Op::negation:
        return "not " + write(node.a, own, depth + 1, true);
      default:
        break;
    }
    if (is_implication(node)) {
      return write(store_.nodes[node.a].a, 1, depth + 2, true) + " -> " + write(node.b, 0, depth + 1, true);
    }
    const bool ordered = node.op == Op::less_equal || node.op == Op::less;
    if (ordered && store_.nodes[node.a].op == Op::constant && store_.nodes[node.b].op != Op::constant) {
      // "a >= 3" was stored as "3 <= a".
      return write(node.b, 5, depth + 1) + (node.op == Op::less ? " > " : " >= ") + write(node.a, 5, depth + 1);
    }
    // Conditions are not chained; operations of equal precedence are left-associative.
    const int left = own == 4 ? 5 : own;
    const bool of_conditions = node.op == Op::conjunction || node.op == Op::disjunction;
    return write(node.a, left, depth + 1, of_conditions) + " " + spelling(node.op).sign + " " +
           write(node.b, own + 1, depth + 1, of_conditions);
  }

  const Store& store_;
  int written_ = 0;
};

Store* common_store(const Expression& a, const Expression& b) {
  Store* left = Access::store(a);
  Store* right = Access::store(b);
  if (left != nullptr && right != nullptr && left != right) refuse_foreign(a);
  return left != nullptr ? left : right;
}

Expression make(Op op, const Expression& a, const Expression& b) {
  Store* store = common_store(a, b);
  if (store != nullptr) {
    const int left = Access::node_in(*store, a), right = Access::node_in(*store, b);
    return Access::expression(store, store->add(op, left, right));
  }
  const Integer x = Access::constant(a), y = Access::constant(b);
  const bool divides = op == Op::divide || op == Op::ceil_divide || op == Op::modulo;
  require(!divides || y != 0, "{} is divided by 0", x);
  const bool fits = std::max(x, y) <= largest && std::min(x, y) >= -largest;
  const Range result = fits ? range_of(op, {x, x}, {y, y}, {}) : Range{largest + 1, largest + 1};
  require(result.low >= -largest && result.high <= largest, "{} with {} leads beyond the numbers up to {}", x, y,
          largest);
  return result.low;
}

Constraint make_condition(Op op, const Expression& a, const Expression& b) {
  return Access::constraint(make(op, a, b));
}

/// Joins constraints by halves, which keeps the depth low. `all` must not be empty.
Constraint joined(Op op, const std::vector<Constraint>& all) {
  std::vector<Constraint> level = all;
  while (level.size() > 1) {
    std::vector<Constraint> above;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
      above.push_back(make_condition(op, Access::condition(level[i]), Access::condition(level[i + 1])));
    }
    if (level.size() % 2 == 1) above.push_back(level.back());
    level = std::move(above);
  }
  return level.front();
}

}  // namespace

int Store::add_constant(Integer value) {
  nodes.push_back({.range = {value, value}});
  const int node = static_cast<int>(nodes.size()) - 1;
  if (value < -largest || value > largest) {
    faults[node] = fmt::format("{} is beyond the numbers up to {}", value, largest);
    nodes[node].range = {std::clamp(value, -largest, largest), std::clamp(value, -largest, largest)};
  }
  return node;
}

int Store::add(Op op, int a, int b, int c) {
  const auto range = [&](int operand) { return operand < 0 ? Range{} : nodes[operand].range; };
  const auto depth = [&](int operand) { return operand < 0 ? 0 : nodes[operand].depth; };
  Node node{op, a, b, c, range_of(op, range(a), range(b), range(c)), 1 + std::max({depth(a), depth(b), depth(c)})};
  const int id = static_cast<int>(nodes.size());
  const bool divides = op == Op::divide || op == Op::ceil_divide || op == Op::modulo;
  if (divides && is_zero_possible(*this, b)) {
    nodes.push_back(node);
    faults[id] = fmt::format("the divisor '{}' can be 0", text(b));
    return id;
  }
  if (node.depth > most_depth) faults[id] = fmt::format("more than {} operations one inside the other", most_depth);
  const bool fits = node.range.low >= -largest && node.range.high <= largest;
  const Range full = node.range;
  narrow(node.range, {-largest, largest});
  nodes.push_back(node);
  if (!fits) {
    const Integer end = full.high > largest ? largest : -largest;
    faults[id] = fmt::format("'{}' can go beyond {}", text(id), end);
  }
  return id;
}

int Store::add_call() {
  const Function& function = functions.back();
  int depth = 0;
  for (const int argument : function.arguments) depth = std::max(depth, nodes[argument].depth + 1);
  nodes.push_back(
      {.op = Op::call, .a = static_cast<int>(functions.size()) - 1, .range = function.bounds, .depth = depth});
  return static_cast<int>(nodes.size()) - 1;
}

void Function::refuse(Integer result) const {
  fail(ErrorCode::numerical, "{} gave {}, and was said to give {} to {}", in_quotes(name), result, bounds.low,
       bounds.high);
}

std::vector<int> Store::parts_of(int node) const {
  std::vector<bool> seen(static_cast<std::size_t>(node) + 1);
  std::vector<int> parts, open = {node};
  seen[node] = true;
  while (!open.empty()) {
    const int id = open.back();
    open.pop_back();
    parts.push_back(id);
    const Node& part = nodes[id];
    if (part.op == Op::call) {
      for (const int argument : functions[part.a].arguments) {
        if (!seen[argument]) open.push_back(argument);
        seen[argument] = true;
      }
    }
    const int all[] = {part.a, part.b, part.c};
    for (int i = 0; i < operands(part.op); ++i) {
      if (!seen[all[i]]) open.push_back(all[i]);
      seen[all[i]] = true;
    }
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

void Store::check(int node, const std::string& subject) const {
  if (faults.empty()) return;
  for (const int part : parts_of(node)) {
    if (const auto fault = faults.find(part); fault != faults.end()) {
      fail(ErrorCode::invalid_argument, "{}: {}", subject, fault->second);
    }
  }
}

std::string Store::text(int node) const {
  constexpr std::size_t longest = 400;
  std::string text = Writer(*this).write(node);
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

Integer Store::value(int node, const std::vector<Integer>& values) const {
  if (nodes[node].op == Op::variable) return values[nodes[node].a];
  const std::vector<int> parts = parts_of(node);
  std::unordered_map<int, Integer> known;
  known.reserve(parts.size());
  for (const int id : parts) {
    const Node& part = nodes[id];
    if (part.op == Op::constant) {
      known[id] = part.range.low;
    } else if (part.op == Op::variable) {
      known[id] = values[part.a];
    } else if (part.op == Op::call) {
      known[id] = functions[part.a]([&](int argument) { return known[argument]; });
    } else {
      const int count = operands(part.op);
      known[id] = value_of(part.op, known[part.a], count > 1 ? known[part.b] : 0, count > 2 ? known[part.c] : 0);
    }
  }
  return known[node];
}

void refuse_foreign(const Expression& a) {
  fail(ErrorCode::invalid_argument, "'{}' belongs to another model", a.text());
}

int Access::node_in(Store& store, const Expression& a) {
  if (a.store_ == nullptr) return store.add_constant(a.constant_);
  if (a.store_ != &store) refuse_foreign(a);
  return a.node_;
}

std::optional<Integer> Expression::constant() const {
  if (store_ == nullptr) return constant_;
  const Range range = store_->nodes[node_].range;
  return range.fixed() && store_->faults.empty() ? std::optional(range.low) : std::nullopt;
}

Range Expression::bounds() const {
  return store_ == nullptr ? Range{constant_, constant_} : store_->nodes[node_].range;
}

std::string Expression::text() const { return store_ == nullptr ? std::to_string(constant_) : store_->text(node_); }

std::string Constraint::text() const {
  return Access::store(condition_) == nullptr ? truth(Access::constant(condition_)) : condition_.text();
}

Expression operator+(const Expression& a, const Expression& b) { return make(Op::add, a, b); }
Expression operator-(const Expression& a, const Expression& b) { return make(Op::subtract, a, b); }
Expression operator-(const Expression& a) { return make(Op::subtract, 0, a); }
Expression operator*(const Expression& a, const Expression& b) { return make(Op::multiply, a, b); }
Expression operator/(const Expression& a, const Expression& b) { return make(Op::divide, a, b); }
Expression operator%(const Expression& a, const Expression& b) { return make(Op::modulo, a, b); }
Expression ceil_div(const Expression& a, const Expression& b) { return make(Op::ceil_divide, a, b); }
Expression min(const Expression& a, const Expression& b) { return make(Op::minimum, a, b); }
Expression max(const Expression& a, const Expression& b) { return make(Op::maximum, a, b); }

Expression select(const Constraint& condition, const Expression& yes, const Expression& no) {
  const Expression& asked = Access::condition(condition);
  Store* store = common_store(asked, yes);
  if (store == nullptr) store = Access::store(no);
  if (store == nullptr) return Access::constant(asked) != 0 ? yes : no;
  const int a = Access::node_in(*store, asked), b = Access::node_in(*store, yes), c = Access::node_in(*store, no);
  return Access::expression(store, store->add(Op::select, a, b, c));
}

Constraint operator==(const Expression& a, const Expression& b) { return make_condition(Op::equal, a, b); }
Constraint operator!=(const Expression& a, const Expression& b) { return make_condition(Op::not_equal, a, b); }
Constraint operator<=(const Expression& a, const Expression& b) { return make_condition(Op::less_equal, a, b); }
Constraint operator<(const Expression& a, const Expression& b) { return make_condition(Op::less, a, b); }
Constraint operator>=(const Expression& a, const Expression& b) { return make_condition(Op::less_equal, b, a); }
Constraint operator>(const Expression& a, const Expression& b) { return make_condition(Op::less, b, a); }

Constraint operator&&(const Constraint& a, const Constraint& b) {
  return make_condition(Op::conjunction, Access::condition(a), Access::condition(b));
}

Constraint operator||(const Constraint& a, const Constraint& b) {
  return make_condition(Op::disjunction, Access::condition(a), Access::condition(b));
}

Constraint operator!(const Constraint& a) {
  const Expression& condition = Access::condition(a);
  Store* store = Access::store(condition);
  if (store == nullptr) return Access::constraint(Integer{1} - Access::constant(condition));
  return Access::constraint(Access::expression(store, store->add(Op::negation, Access::node(condition))));
}

Constraint implies(const Constraint& condition, const Constraint& consequence) { return !condition || consequence; }

Constraint one_of(const Expression& a, const Domain& values) {
  if (values.is_range()) return a >= values.bounds().low && a <= values.bounds().high;
  std::vector<Constraint> all;
  for (Integer i = 0; i < values.size(); ++i) all.push_back(a == values[i]);
  return joined(Op::disjunction, all);
}

Constraint all_different(const std::vector<Expression>& all) {
  std::vector<Constraint> pairs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) pairs.push_back(all[j] != all[i]);
  }
  return pairs.empty() ? Access::constraint(1) : joined(Op::conjunction, pairs);
}

}  // namespace penstock::csp
