#include <algorithm>
#include <cctype>
#include <utility>

#include "base/check.h"
#include "base/quote.h"
#include "csp/search.h"

namespace penstock::csp {
namespace {

/// The search recurses once per variable.
constexpr std::size_t most_variables = 10'000;

bool is_name(std::string_view text) {
  const auto letter = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_'; };
  const auto inside = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && letter(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(), inside);
}

}  // namespace

Interval Box::operator()(const Expression& a) const {
  const Range found = range(a);
  return {static_cast<double>(found.low), static_cast<double>(found.high)};
}

Range Box::range(const Expression& a) const { return static_cast<const Search*>(search_)->range(a); }

Integer Solution::operator[](const Expression& a) const {
  if (Access::store(a) == nullptr) return Access::constant(a);
  if (Access::store(a) != store_.get()) refuse_foreign(a);
  store_->check(Access::node(a), "a value of a solution");
  return store_->value(Access::node(a), values_);
}

Integer Solution::operator[](std::string_view variable) const {
  const auto found = store_->variable_numbers.find(std::string(variable));
  require(found != store_->variable_numbers.end(), "there is no variable {}", in_quotes(variable));
  return values_[found->second];
}

std::string Solution::text() const {
  std::string text;
  for (std::size_t x = 0; x < values_.size(); ++x) {
    text += fmt::format("{}{} = {}", x == 0 ? "" : ", ", store_->variables[x].name, values_[x]);
  }
  return text;
}

Model::Model() : store_(std::make_shared<Store>()) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Expression Model::var(std::string name, Domain domain) {
  penstock::require(is_name(name), "a variable must be named with letters, digits and '_', not {}", in_quotes(name));
  penstock::require(store_->variables.size() < most_variables, "a model must have at most {} variables",
                    most_variables);
  const int number = static_cast<int>(store_->variables.size());
  penstock::require(store_->variable_numbers.emplace(name, number).second, "there is a variable '{}' already", name);
  const int node = static_cast<int>(store_->nodes.size());
  store_->nodes.push_back({.op = Op::variable, .a = number, .range = domain.bounds()});
  store_->variables.push_back({std::move(name), std::move(domain), node});
  return Access::expression(store_.get(), node);
}

Expression Model::call(std::string name, const std::vector<Expression>& arguments,
                       std::function<Integer(std::span<const Integer>)> function, Range bounds) {
  penstock::require(is_name(name), "a function must be named with letters, digits and '_', not {}", in_quotes(name));
  penstock::require(static_cast<bool>(function), "the function '{}' must not be empty", name);
  penstock::require(!arguments.empty() && arguments.size() <= Function::most_arguments,
                    "'{}' must have 1 to {} arguments, not {}", name, Function::most_arguments, arguments.size());
  penstock::require(!bounds.empty() && bounds.low >= -largest && bounds.high <= largest,
                    "the bounds of '{}' must be within 2^62 - 1, not {} to {}", name, bounds.low, bounds.high);
  Function added{std::move(name), {}, std::move(function), bounds};
  for (const Expression& argument : arguments) {
    const int node = Access::node_in(*store_, argument);
    store_->check(node, fmt::format("an argument of '{}'", added.name));
    added.arguments.push_back(node);
  }
  store_->functions.push_back(std::move(added));
  return Access::expression(store_.get(), store_->add_call());
}

void Model::require(std::string name, const Constraint& constraint) {
  const int node = Access::node_in(*store_, Access::condition(constraint));
  store_->check(node, fmt::format("constraint {}", in_quotes(name)));
  const auto [group, added] = store_->group_numbers.emplace(name, static_cast<int>(store_->groups.size()));
  if (added) store_->groups.push_back(std::move(name));
  store_->statements.push_back({group->second, node});
}

void Model::require(const Constraint& constraint) { require(constraint.text(), constraint); }

void Model::minimise(const Expression& cost) {
  const int node = Access::node_in(*store_, cost);
  store_->check(node, "the cost");
  store_->interval_cost = nullptr;
  store_->solution_cost = nullptr;
  store_->bound = nullptr;
  store_->cost = node;
  store_->maximised = -1;
}

void Model::maximise(const Expression& value) {
  minimise(-value);
  store_->maximised = Access::node_in(*store_, value);
}

void Model::minimise(std::function<Interval(const Box&)> cost) {
  penstock::require(static_cast<bool>(cost), "a cost must be a function, not empty");
  store_->cost = -1;
  store_->solution_cost = nullptr;
  store_->bound = nullptr;
  store_->interval_cost = std::move(cost);
}

void Model::minimise(std::function<double(const Solution&)> cost, std::function<double(const Box&)> bound) {
  penstock::require(static_cast<bool>(cost), "a cost must be a function, not empty");
  store_->cost = -1;
  store_->interval_cost = nullptr;
  store_->solution_cost = std::move(cost);
  store_->bound = std::move(bound);
}

void Model::stop_when(std::function<bool()> stop) { store_->stop = std::move(stop); }

void Model::limit(const Limits& limits) {
  penstock::require_argument(limits.seconds > 0, "seconds", limits.seconds, "above 0");
  penstock::require_argument(limits.bytes >= 1, "bytes", limits.bytes, "at least 1");
  penstock::require_argument(limits.solutions >= 1, "solutions", limits.solutions, "at least 1");
  store_->limits = limits;
  store_->limited_at = std::chrono::steady_clock::now();
}

std::optional<Solution> Model::solve() const { return Search(store_).best(); }

std::optional<Solution> Model::first() const { return Search(store_).first(); }

std::vector<Solution> Model::all(Integer most) const { return Search(store_).best_of(most); }

void Model::for_each(const std::function<bool(const Solution&)>& take) const {
  Search(store_).each([&](const Solution& solution) { return take(solution); });
}

std::vector<std::string> Model::conflict() const {
  std::vector<std::string> names;
  for (const int group : Search(store_).conflict()) names.push_back(store_->groups[group]);
  return names;
}

std::vector<std::string> Model::variables() const {
  std::vector<std::string> names;
  for (const NamedDomain& variable : store_->variables) names.push_back(variable.name);
  return names;
}

std::optional<Expression> Model::variable(std::string_view name) const {
  const auto found = store_->variable_numbers.find(std::string(name));
  if (found == store_->variable_numbers.end()) return std::nullopt;
  return Access::expression(store_.get(), store_->variables[found->second].node);
}

std::string Model::constraint_text(std::string_view name) const {
  const auto group = store_->group_numbers.find(std::string(name));
  penstock::require(group != store_->group_numbers.end(), "there is no constraint {}", in_quotes(name));
  std::string text;
  for (const Statement& statement : store_->statements) {
    if (statement.group != group->second) continue;
    text += (text.empty() ? "" : "; ") + store_->text(statement.node);
  }
  return text;
}

std::optional<Expression> Model::cost() const {
  if (store_->cost < 0) return std::nullopt;
  return Access::expression(store_.get(), store_->maximised < 0 ? store_->cost : store_->maximised);
}

bool Model::has_cost() const { return store_->has_cost(); }

}  // namespace penstock::csp
