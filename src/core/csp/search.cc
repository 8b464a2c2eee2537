#include "csp/search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace penstock::csp {
namespace {

/// Larger domains are halved; smaller ones are tried value by value.
constexpr Integer most_choices = 64;

}  // namespace

Search::Search(std::shared_ptr<Store> store) : store_(std::move(store)), propagation_(*store_) {}

void Search::fix(int x, Integer index) {
  fixed_ = x;
  fixed_index_ = index;
}

bool Search::start() {
  limit_ = std::numeric_limits<double>::infinity();
  integer_limit_ = largest;
  choices_.clear();
  gave_up_ = false;
  propagation_.reset();
  return (fixed_ < 0 || propagation_.cut(fixed_, fixed_index_, fixed_index_)) && propagation_.run();
}

bool Search::satisfiable() {
  bool any = false;
  guided_ = false;
  found_ = [&] {
    any = true;
    return false;
  };
  if (start()) descend();
  return any;
}

void Search::each(const std::function<bool(Solution)>& take) {
  guided_ = false;
  found_ = [&] { return take(current()); };
  if (start()) descend();
}

std::optional<Solution> Search::first() {
  std::optional<Solution> result;
  each([&](Solution solution) {
    result = std::move(solution);
    return false;
  });
  return result;
}

std::optional<Solution> Search::best() {
  if (!store_->has_cost()) return first();
  std::vector<Solution> found = best_of(1);
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::vector<Solution> Search::best_of(Integer most) {
  propagation_.keep(0);
  struct Ranked {
    Integer whole;  // the cost, if it is an integer
    double real;    // the cost otherwise
    Solution solution;
  };
  const auto cheaper = [](const Ranked& a, const Ranked& b) {
    return a.whole != b.whole ? a.whole < b.whole : a.real < b.real;
  };
  std::vector<Ranked> kept;  // a heap with the most expensive solution in front
  guided_ = store_->has_cost();
  found_ = [&] {
    Solution solution = current();
    const bool whole = store_->cost >= 0;
    Ranked ranked{whole ? store_->value(store_->cost, solution.values()) : 0, whole ? 0 : solution.cost(), solution};
    const bool full = static_cast<Integer>(kept.size()) == most;
    if (!full && static_cast<Integer>(kept.size()) >= store_->limits.solutions) {
      throw LimitReached(fmt::format("there are more than {} solutions: allow more, or ask for fewer of them",
                                     store_->limits.solutions));
    }
    constexpr std::size_t of_a_block = 16;  // overhead of the allocator per block
    propagation_.keep((kept.size() + 1) * (sizeof(Ranked) + of_a_block + solution.values().size() * sizeof(Integer)));
    if (full && !cheaper(ranked, kept.front())) return true;
    kept.push_back(std::move(ranked));
    std::push_heap(kept.begin(), kept.end(), cheaper);
    if (full) {
      std::pop_heap(kept.begin(), kept.end(), cheaper);
      kept.pop_back();
    }
    if (static_cast<Integer>(kept.size()) < most) return true;
    integer_limit_ = whole ? kept.front().whole - 1 : largest;
    limit_ = whole ? limit_ : kept.front().real;
    return guided_;  // without a cost the search can end
  };
  if (most > 0 && start()) descend();
  std::sort(kept.begin(), kept.end(), [&](const Ranked& a, const Ranked& b) {
    if (cheaper(a, b) || cheaper(b, a)) return cheaper(a, b);
    return a.solution.values() < b.solution.values();
  });
  std::vector<Solution> result;
  for (Ranked& ranked : kept) result.push_back(std::move(ranked.solution));
  return result;
}

/// Returns the variable with the smallest ratio of remaining values to weight (number of violated constraints).
int Search::next_variable() const {
  const Domains& domains = propagation_.domains();
  int chosen = -1;
  double least = 0;
  for (int x = 0; x < domains.count(); ++x) {
    if (domains.fixed(x)) continue;
    const double score = static_cast<double>(domains.size(x)) / propagation_.weight(x);
    if (chosen < 0 || score < least) {
      chosen = x;
      least = score;
    }
  }
  return chosen;
}

bool Search::descend() {
  const int x = next_variable();
  if (x < 0) return found_();
  const std::size_t begin = choices_.size();
  add_choices(x);
  const std::size_t end = choices_.size();
  for (std::size_t i = begin; i < end; ++i) {
    if (!try_choice(x, choices_[i])) return false;
  }
  choices_.resize(begin);
  return true;
}

void Search::add_choices(int x) {
  Domains& domains = propagation_.domains();
  const Integer first = domains.first(x), last = domains.last(x);
  const std::size_t begin = choices_.size();
  if (domains.size(x) <= most_choices) {
    for (Integer i = first; i <= last; ++i) {
      if (domains.alive(x, i)) choices_.push_back({i, i, 0});
    }
  } else {
    const Integer middle = first + (last - first) / 2;
    choices_.push_back({first, domains.previous(x, middle), 0});
    choices_.push_back({domains.next(x, middle + 1), last, 0});
  }
  if (!guided_) return;
  for (std::size_t i = begin; i < choices_.size(); ++i) {
    const std::size_t mark = domains.mark();
    domains.cut(x, choices_[i].low, choices_[i].high);
    choices_[i].bound = lower_bound();
    domains.undo(mark);
  }
  // In a tie smaller values come first, as they are ordered here already. A stable sort would allocate memory.
  std::sort(choices_.begin() + static_cast<std::ptrdiff_t>(begin), choices_.end(),
            [](const Choice& a, const Choice& b) { return std::tie(a.bound, a.low) < std::tie(b.bound, b.low); });
}

/// Tries a choice. Returns false to end the search.
bool Search::try_choice(int x, Choice choice) {
  const bool real = guided_ && store_->cost < 0;
  if (real && choice.bound >= limit_) return true;
  if (steps_ >= last_step_) {
    gave_up_ = true;
    return false;
  }
  count_step();
  const std::size_t mark = propagation_.domains().mark();
  bool go_on = true;
  propagation_.limit_cost(integer_limit_);
  const bool possible = propagation_.cut(x, choice.low, choice.high) && propagation_.run();
  if (possible && (!real || (lower_bound() < limit_ && shave()))) go_on = descend();
  propagation_.domains().undo(mark);
  return go_on;
}

/// Applies the limit of an opaque cost to the variables by trial: removes values at the ends of domains that would cost
/// too much. Returns false if nothing is left.
bool Search::shave() {
  if (limit_ == std::numeric_limits<double>::infinity()) return true;
  Domains& domains = propagation_.domains();
  const auto too_dear = [&](int x, Integer index) {
    const std::size_t mark = domains.mark();
    domains.cut(x, index, index);
    const bool dear = lower_bound() >= limit_;
    domains.undo(mark);
    return dear;
  };
  bool changed = false;
  for (int x = 0; x < domains.count(); ++x) {
    if (domains.fixed(x) || domains.size(x) > most_choices) continue;
    Integer low = domains.first(x), high = domains.last(x);
    while (low <= high && too_dear(x, low)) low = domains.next(x, low + 1);
    while (low < high && too_dear(x, high)) high = domains.previous(x, high - 1);
    if (low > high) return false;
    if (low == domains.first(x) && high == domains.last(x)) continue;
    propagation_.cut(x, low, high);
    changed = true;
  }
  return !changed || (propagation_.run() && lower_bound() < limit_);
}

/// Returns a lower bound of the cost of all solutions within the current domains.
double Search::lower_bound() {
  propagation_.look_again();
  double bound = -std::numeric_limits<double>::infinity();
  if (store_->cost >= 0) return static_cast<double>(propagation_.range(store_->cost).low);
  if (store_->interval_cost) bound = store_->interval_cost(Access::box(this)).low;
  if (store_->bound) bound = store_->bound(Access::box(this));
  return std::isnan(bound) ? -std::numeric_limits<double>::infinity() : bound;
}

Solution Search::current() const {
  const Domains& domains = propagation_.domains();
  std::vector<Integer> values;
  values.reserve(static_cast<std::size_t>(domains.count()));
  for (int x = 0; x < domains.count(); ++x) values.push_back(domains.range(x).low);
  const double cost = store_->has_cost() ? cost_of(Access::solution(store_, values, 0)) : 0;
  return Access::solution(store_, std::move(values), cost);
}

double Search::cost_of(const Solution& solution) const {
  if (store_->cost >= 0) {
    const Integer cost = store_->value(store_->cost, solution.values());
    return static_cast<double>(store_->maximised >= 0 ? -cost : cost);
  }
  double cost = 0;
  if (store_->solution_cost) {
    cost = store_->solution_cost(solution);
  } else {
    propagation_.look_again();
    const Interval interval = store_->interval_cost(Access::box(this));
    cost = interval.low;
    if (interval.low != interval.high) cost = std::nan("");
  }
  if (std::isnan(cost)) fail(ErrorCode::numerical, "the cost of {} is not a number", solution.text());
  return cost;
}

void Search::count_step() {
  constexpr Integer between_questions = 1024;
  if (++steps_ % between_questions != 0) return;
  if (store_->stop && store_->stop()) fail(ErrorCode::interrupted, "stopped after {} steps of the search", steps_);
  propagation_.check_limits();
}

Range Search::range(const Expression& a) const {
  if (Access::store(a) == nullptr) return {Access::constant(a), Access::constant(a)};
  if (Access::store(a) != store_.get()) refuse_foreign(a);
  return propagation_.range(Access::node(a));
}

}  // namespace penstock::csp
