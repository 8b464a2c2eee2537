// Operators on one element of each tensor.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "network/preparation.h"

namespace penstock::network {

namespace {

// Functions of one number ------------------------------------------------------------------------------------------

/// n: elements.
void run_unary(const Step& step, const Memory& memory) {
  memory.kernels.unary(step.ending.op, step.n[0], step.floats(0, memory), step.result(0, memory), step.ending.alpha,
                       step.ending.beta);
}

/// Doubles: the same by the standard library.
double unary_of(Unary op, double x, double alpha, double beta) {
  switch (op) {
    case Unary::negate:
      return -x;
    case Unary::absolute:
      return std::fabs(x);
    case Unary::square:
      return x * x;
    case Unary::square_root:
      return std::sqrt(x);
    case Unary::exponential:
      return std::exp(x);
    case Unary::logarithm:
      return std::log(x);
    case Unary::reciprocal:
      return 1 / x;
    case Unary::floor:
      return std::floor(x);
    case Unary::ceil:
      return std::ceil(x);
    case Unary::round:
      return std::nearbyint(x);
    case Unary::sign:
      return x > 0 ? 1 : x < 0 ? -1 : x;
    case Unary::sine:
      return std::sin(x);
    case Unary::cosine:
      return std::cos(x);
    case Unary::erf:
      return std::erf(x);
    case Unary::relu:
      return x < 0 ? 0 : x;
    case Unary::leaky_relu:
      return x < 0 ? alpha * x : x;
    case Unary::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Unary::tanh:
      return std::tanh(x);
    case Unary::softplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    case Unary::clip:
      return x < alpha ? alpha : x > beta ? beta : x;
    case Unary::affine:
      return alpha * x + beta;
    default:
      return x;
  }
}

/// Integers: what they have of it. Negation of the smallest number wraps around.
Index integer_unary(Unary op, Index x) {
  const auto negated = static_cast<Index>(0 - static_cast<std::uint64_t>(x));
  if (op == Unary::negate) return negated;
  if (op == Unary::absolute) return x < 0 ? negated : x;
  if (op == Unary::sign) return x > 0 ? 1 : x < 0 ? -1 : 0;
  return op == Unary::relu ? std::max<Index>(x, 0) : x;
}

void run_other_unary(const Step& step, const Memory& memory) {
  const Type type = step.read_type(0);
  const std::byte* x = step.read(0, memory);
  std::byte* y = step.write(0, memory);
  const auto op = static_cast<Unary>(step.variant);
  for (Index i = 0; i < step.n[0]; ++i) {
    if (type == Type::f64) {
      set_real(type, y, i, unary_of(op, real_at(type, x, i), step.f[0], step.f[1]));
    } else {
      set_integer(type, y, i, integer_unary(op, integer_at(type, x, i)));
    }
  }
}

bool has_doubles(Unary op) { return unary_of(op, -0.5, 3, 7) != -0.5; }

bool has_integers(Unary op) {
  return op == Unary::negate || op == Unary::absolute || op == Unary::sign || op == Unary::relu;
}

Status unary(Preparation& p, Unary op, float alpha = 0, float beta = 1) {
  const Type type = p.type(0);
  const bool integers = type == Type::i32 || type == Type::i64 || type == Type::i8 || type == Type::u8;
  if (!(type == Type::f32 || (type == Type::f64 && has_doubles(op)) || (integers && has_integers(op)))) {
    return p.unsupported("of type " + std::string(name_of(type)));
  }
  PENSTOCK_TRY(p.write(0, type, p.shape(0)));
  Step& step = p.run(type == Type::f32 ? &run_unary : &run_other_unary);
  step.variant = static_cast<int>(op);
  step.n = {p.count(0)};
  step.f = {alpha, beta};
  step.ending = {op, alpha, beta};
  step.is_unary = type == Type::f32;
  p.in_place(0);
  return {};
}

/// Functions without vectors: those that networks seldom have.
constexpr double (*kRareFunctions[])(double) = {std::tan,  std::asin,  std::acos,  std::atan, std::sinh,
                                                std::cosh, std::asinh, std::acosh, std::atanh};

void run_rare(const Step& step, const Memory& memory) {
  const Type type = step.read_type(0);
  for (Index i = 0; i < step.n[0]; ++i) {
    set_real(type, step.write(0, memory), i, kRareFunctions[step.variant](real_at(type, step.read(0, memory), i)));
  }
}

Status prepare_rare(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32, Type::f64}));
  PENSTOCK_TRY(p.write(0, p.type(0), p.shape(0)));
  p.run(&run_rare).n = {p.count(0)};
  p.step.variant = p.variant();
  return {};
}

Status prepare_unary(Preparation& p) { return unary(p, static_cast<Unary>(p.variant())); }

/// Functions with parameters: their names and what they are by default.
struct Parameters {
  Unary op;
  std::string_view first;
  float alpha;
  std::string_view second;
  float beta;
};
constexpr Parameters kParameters[] = {
    {Unary::leaky_relu, "alpha", 0.01f, "", 1},
    {Unary::thresholded_relu, "alpha", 1, "", 1},
    {Unary::elu, "alpha", 1, "", 1},
    {Unary::selu, "alpha", 1.67326319217681884765625f, "gamma", 1.05070102214813232421875f},
    {Unary::hard_sigmoid, "alpha", 0.2f, "beta", 0.5f},
    {Unary::swish, "alpha", 1, "", 1},
};

Status prepare_parametric(Preparation& p) {
  const Parameters& known = *std::ranges::find(kParameters, static_cast<Unary>(p.variant()), &Parameters::op);
  return unary(p, known.op, p.number(known.first, known.alpha), p.number(known.second, known.beta));
}

Status prepare_celu(Preparation& p) {
  const float alpha = p.number("alpha", 1);
  if (alpha == 0) return p.refuse("'alpha' is 0");
  return unary(p, Unary::elu, alpha, alpha);
}

Status prepare_gelu(Preparation& p) {
  return unary(p, p.text("approximate", "none") == "tanh" ? Unary::gelu_tanh : Unary::gelu);
}

/// n: elements, 1 if there is a lower and 1 if there is an upper bound, which are numbers of any type.
void run_clip(const Step& step, const Memory& memory) {
  const Type type = step.read_type(0);
  const auto bounded = [&](auto x, const auto& at) {
    if (step.n[1] != 0) x = std::max(x, at(type, step.read(1, memory), 0));
    return step.n[2] != 0 ? std::min(x, at(type, step.read(2, memory), 0)) : x;
  };
  for (Index i = 0; i < step.n[0]; ++i) {
    if (is_real(type)) {
      set_real(type, step.write(0, memory), i, bounded(real_at(type, step.read(0, memory), i), real_at));
    } else {
      set_integer(type, step.write(0, memory), i, bounded(integer_at(type, step.read(0, memory), i), integer_at));
    }
  }
}

Status prepare_clip(Preparation& p) {
  PENSTOCK_TRY(p.same_types(0, 3));
  for (std::size_t i = 1; i < p.reads(); ++i) {
    if (p.has(i) && p.count(i) != 1) return p.refuse("a bound has shape " + text_of(p.shape(i)) + ", not one element");
  }
  const bool known = (!p.has(1) || p.known(1) != nullptr) && (!p.has(2) || p.known(2) != nullptr);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (p.type(0) == Type::f32 && known) {
    return unary(p, Unary::clip, p.has(1) ? *p.known_floats(1) : -infinity, p.has(2) ? *p.known_floats(2) : infinity);
  }
  PENSTOCK_TRY(p.write(0, p.type(0), p.shape(0)));
  p.run(&run_clip).n = {p.count(0), p.has(1), p.has(2)};
  return {};
}

// Functions of two numbers -----------------------------------------------------------------------------------------

double binary_of(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::subtract:
      return a - b;
    case Binary::multiply:
      return a * b;
    case Binary::divide:
      return a / b;
    case Binary::maximum:
      return a != a || a > b ? a : b;
    case Binary::minimum:
      return a != a || a < b ? a : b;
    case Binary::prelu:
      return a < 0 ? a * b : a;
    case Binary::power:
      return std::pow(a, b);
    case Binary::modulo:
      return floored_remainder(a, b);
    case Binary::remainder:
      return std::fmod(a, b);
  }
  return 0;
}

/// Sums and products wrap around; a quotient by 0 is 0.
Index integer_binary(Binary op, Index a, Index b) {
  const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
  const bool divides = b != 0 && b != -1;
  switch (op) {
    case Binary::add:
      return static_cast<Index>(ua + ub);
    case Binary::subtract:
      return static_cast<Index>(ua - ub);
    case Binary::multiply:
      return static_cast<Index>(ua * ub);
    case Binary::divide:
      return divides ? a / b : static_cast<Index>(b == 0 ? 0 : 0 - ua);
    case Binary::maximum:
      return std::max(a, b);
    case Binary::minimum:
      return std::min(a, b);
    case Binary::prelu:
      return a < 0 ? static_cast<Index>(ua * ub) : a;
    case Binary::modulo:
      return divides ? ((a % b) + b) % b : 0;
    case Binary::remainder:
      return divides ? a % b : 0;
    case Binary::power:
      break;
  }
  std::uint64_t power = b < 0 ? 0 : 1, base = ua;
  if (b < 0 && (a == 1 || a == -1)) return b % 2 == 0 ? 1 : a;
  for (Index left = b; left > 0; left /= 2, base *= base) {
    if (left % 2 != 0) power *= base;
  }
  return static_cast<Index>(power);
}

/// A loop for each pair of reads; the result of one is the first operand of the next. f: a factor at the end, or none.
void run_binary(const Step& step, const Memory& memory) {
  float* y = step.result(0, memory);
  for (std::size_t k = 0; k < step.loops.size(); ++k) {
    const float *a = k == 0 ? step.floats(0, memory) : y, *b = step.floats(k + 1, memory);
    const StridedLoop& loop = step.loops[k];
    loop.rows([&](const StridedLoop::Strides& at) {
      memory.kernels.binary(static_cast<Binary>(step.variant), loop.inner(), a + at[1], loop.inner_stride(1), b + at[2],
                            loop.inner_stride(2), y + at[0]);
    });
  }
  if (!step.f.empty()) memory.kernels.unary(Unary::affine, step.n[0], y, y, step.f[0], 0);
}

/// y = a + b in 32 bits, which wrap.
void add_whole_numbers(const StridedLoop& loop, const std::byte* a, const std::byte* b, std::byte* y) {
  const auto *of_a = reinterpret_cast<const std::uint32_t*>(a), *of_b = reinterpret_cast<const std::uint32_t*>(b);
  auto* const sums = reinterpret_cast<std::uint32_t*>(y);
  const Index step_a = loop.inner_stride(1), step_b = loop.inner_stride(2);
  loop.rows([&](const StridedLoop::Strides& at) {
    for (Index i = 0; i < loop.inner(); ++i) sums[at[0] + i] = of_a[at[1] + i * step_a] + of_b[at[2] + i * step_b];
  });
}

void run_other_binary(const Step& step, const Memory& memory) {
  const Type type = step.write_type(0);
  std::byte* y = step.write(0, memory);
  const auto op = static_cast<Binary>(step.variant);
  for (std::size_t k = 0; k < step.loops.size(); ++k) {
    const std::byte *a = k == 0 ? step.read(0, memory) : y, *b = step.read(k + 1, memory);
    const Type of_b = step.read_type(k + 1);
    const StridedLoop& loop = step.loops[k];
    if (op == Binary::add && type == Type::i32 && of_b == Type::i32) {  // as quantised networks have them
      add_whole_numbers(loop, a, b, y);
      continue;
    }
    loop.rows([&](const StridedLoop::Strides& at) {
      for (Index i = 0; i < loop.inner(); ++i) {
        const Index of_a = at[1] + i * loop.inner_stride(1), other = at[2] + i * loop.inner_stride(2);
        if (is_real(type) || is_real(of_b)) {
          set_real(type, y, at[0] + i, binary_of(op, real_at(type, a, of_a), real_at(of_b, b, other)));
        } else {
          set_integer(type, y, at[0] + i, integer_binary(op, integer_at(type, a, of_a), integer_at(of_b, b, other)));
        }
      }
    });
  }
}

/// Powers whose exponent is a small constant, as norms and losses have it.
bool simple_power(const Preparation& p, Unary& op) {
  if (p.type(0) != Type::f32 || p.known(1) == nullptr || p.count(1) != 1 || p.rank(1) > p.rank(0)) return false;
  const double exponent = real_at(p.type(1), p.known(1), 0);
  op = exponent == 1 ? Unary::none : exponent == 2 ? Unary::square : exponent == 0.5 ? Unary::square_root : Unary::relu;
  return op != Unary::relu;
}

Status prepare_binary(Preparation& p) {
  auto op = static_cast<Binary>(p.variant());
  if (Unary simple{}; op == Binary::power && simple_power(p, simple)) return unary(p, simple);
  if (op != Binary::power) PENSTOCK_TRY(p.same_types(0, p.reads()));
  if (op == Binary::modulo && p.integer("fmod", 0) != 0) op = Binary::remainder;
  if (p.type(0) == Type::boolean) return p.unsupported("of type bool");
  Shape shape;
  PENSTOCK_TRY(p.broadcast_reads(0, p.reads(), shape));
  if (op == Binary::prelu && shape != p.shape(0)) return p.refuse("the slopes do not fit the input");
  PENSTOCK_TRY(p.write(0, p.type(0), shape));
  if (p.reads() == 1) {
    p.view(0);
    return {};
  }
  const bool floats = p.type(0) == Type::f32 && p.type(1) == Type::f32;
  Step& step = p.run(floats ? &run_binary : &run_other_binary);
  step.variant = static_cast<int>(op);
  step.is_binary = floats;
  for (std::size_t i = 1; i < p.reads(); ++i) {
    step.loops.push_back(broadcast_loop(shape, i == 1 ? p.shape(0) : shape, p.shape(i)));
  }
  if (p.reads() > 2) return {};
  if (p.shape(0) == shape) p.in_place(0);
  if (p.shape(1) == shape && p.type(1) == p.type(0)) p.in_place(1);
  return {};
}

Status prepare_mean(Preparation& p) {
  PENSTOCK_TRY(p.only(0, {Type::f32}));
  PENSTOCK_TRY(prepare_binary(p));
  if (p.viewed >= 0) return {};
  p.step.f = {1.0f / static_cast<float>(p.reads())};
  p.step.n = {elements(p.results[0].shape)};
  return {};
}

constexpr int of(Unary op) { return static_cast<int>(op); }
constexpr int of(Binary op) { return static_cast<int>(op); }

}  // namespace

Operators pointwise_operators() {
  static constexpr Operator operators[] = {
      {"Neg", prepare_unary, 1, 1, of(Unary::negate)},
      {"Abs", prepare_unary, 1, 1, of(Unary::absolute)},
      {"Sqrt", prepare_unary, 1, 1, of(Unary::square_root)},
      {"Exp", prepare_unary, 1, 1, of(Unary::exponential)},
      {"Log", prepare_unary, 1, 1, of(Unary::logarithm)},
      {"Reciprocal", prepare_unary, 1, 1, of(Unary::reciprocal)},
      {"Floor", prepare_unary, 1, 1, of(Unary::floor)},
      {"Ceil", prepare_unary, 1, 1, of(Unary::ceil)},
      {"Round", prepare_unary, 1, 1, of(Unary::round)},
      {"Sign", prepare_unary, 1, 1, of(Unary::sign)},
      {"Sin", prepare_unary, 1, 1, of(Unary::sine)},
      {"Cos", prepare_unary, 1, 1, of(Unary::cosine)},
      {"Erf", prepare_unary, 1, 1, of(Unary::erf)},
      {"Relu", prepare_unary, 1, 1, of(Unary::relu)},
      {"Sigmoid", prepare_unary, 1, 1, of(Unary::sigmoid)},
      {"Tanh", prepare_unary, 1, 1, of(Unary::tanh)},
      {"Softplus", prepare_unary, 1, 1, of(Unary::softplus)},
      {"Softsign", prepare_unary, 1, 1, of(Unary::softsign)},
      {"HardSwish", prepare_unary, 1, 1, of(Unary::hard_swish)},
      {"Mish", prepare_unary, 1, 1, of(Unary::mish)},
      {"Tan", prepare_rare, 1, 1, 0},
      {"Asin", prepare_rare, 1, 1, 1},
      {"Acos", prepare_rare, 1, 1, 2},
      {"Atan", prepare_rare, 1, 1, 3},
      {"Sinh", prepare_rare, 1, 1, 4},
      {"Cosh", prepare_rare, 1, 1, 5},
      {"Asinh", prepare_rare, 1, 1, 6},
      {"Acosh", prepare_rare, 1, 1, 7},
      {"Atanh", prepare_rare, 1, 1, 8},
      {"LeakyRelu", prepare_parametric, 1, 1, of(Unary::leaky_relu)},
      {"ThresholdedRelu", prepare_parametric, 1, 1, of(Unary::thresholded_relu)},
      {"Elu", prepare_parametric, 1, 1, of(Unary::elu)},
      {"Selu", prepare_parametric, 1, 1, of(Unary::selu)},
      {"HardSigmoid", prepare_parametric, 1, 1, of(Unary::hard_sigmoid)},
      {"Swish", prepare_parametric, 1, 1, of(Unary::swish)},
      {"Celu", prepare_celu, 1, 1},
      {"Gelu", prepare_gelu, 1, 1},
      {"Clip", prepare_clip, 1, 3},
      {"Add", prepare_binary, 2, 2, of(Binary::add)},
      {"Sub", prepare_binary, 2, 2, of(Binary::subtract)},
      {"Mul", prepare_binary, 2, 2, of(Binary::multiply)},
      {"Div", prepare_binary, 2, 2, of(Binary::divide)},
      {"Pow", prepare_binary, 2, 2, of(Binary::power)},
      {"Mod", prepare_binary, 2, 2, of(Binary::modulo)},
      {"PRelu", prepare_binary, 2, 2, of(Binary::prelu)},
      {"Max", prepare_binary, 1, kAny, of(Binary::maximum)},
      {"Min", prepare_binary, 1, kAny, of(Binary::minimum)},
      {"Sum", prepare_binary, 1, kAny, of(Binary::add)},
      {"Mean", prepare_mean, 1, kAny, of(Binary::add)},
  };
  return operators;
}

}  // namespace penstock::network
