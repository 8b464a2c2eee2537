"""penstock.csp beside enumeration of all values in Python, and what it refuses."""

import gc
import itertools
import operator
import random
import resource
import signal
import weakref

import pytest

import penstock
from penstock import csp


def tiles():
    m = csp.Model()
    warps, tile, stages = m.var("warps", [1, 2, 4, 8]), m.var("tile", csp.divisors(768)), m.var("stages", range(1, 5))
    m.require("shared memory fits", tile * 768 * 2 + stages * 16384 <= 227 * 1024)
    m.require("tiles cover the units", tile * warps >= 64)
    m.require("whole tiles of 8", tile % 8 == 0)
    m.require("one stage for short tiles", csp.implies(tile <= 16, stages == 1))
    m.minimise(csp.ceil_div(768, tile) * 10 + warps + 8 // stages)
    return m, warps, tile, stages


def test_the_best_solution_and_explanations():
    m, warps, tile, stages = tiles()
    best = m.solve()
    assert dict(best) == {"warps": 1, "tile": 128, "stages": 2} and best.cost == 65
    assert best["tile"] == best[tile] == 128 and best[tile * warps - 1] == 127 and best[csp.minimum(tile, 3)] == 3
    assert repr(best) == "Solution(warps = 1, tile = 128, stages = 2, cost 65)"
    found = m.explain()
    assert found.best == best and found.conflict == [] and found.left_out == 0
    by_value = {(a.variable, a.value): a for a in found.alternatives}
    assert by_value["warps", 2].cost == 66 and by_value["warps", 2].excluded_by == []
    assert by_value["tile", 12].excluded_by == ["whole tiles of 8"]
    assert "tile = 12: excluded by 'whole tiles of 8'" in str(found)
    assert m.first() in m.all() and m.all(3) == m.all()[:3] and m.all()[0] == best
    assert list(m.variables) == ["warps", "tile", "stages"]


def test_a_conflict_is_minimal():
    m, _, tile, stages = tiles()
    m.require(stages >= 3)
    m.require("long tiles", tile >= 128)
    assert m.solve() is None and m.first() is None and m.all() == []
    assert m.conflict() == ["shared memory fits", "stages >= 3", "long tiles"] == m.explain().conflict
    assert m.constraint_text("long tiles") == "tile >= 128"


def test_text_gives_the_same_problem():
    m = csp.parse("x in {1, 5, 9}; y in -3..3; far: x + y > 6; minimise x * x + y")
    assert dict(m.solve()) == {"x": 5, "y": 2} and m.solve().cost == 27
    m.require("odd", m.variables["y"] % 2 == 1)
    assert dict(m.solve()) == {"x": 5, "y": 3}
    with pytest.raises(penstock.BadInput, match="1:11: "):
        csp.parse("x in 1..3 nonsense")


OPERATORS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARISONS = [operator.eq, operator.ne, operator.le, operator.lt, operator.ge, operator.gt]


def random_expression(draw, variables, depth):
    """An expression as a function of the values of all variables, which may be expressions or numbers."""
    if depth == 0 or draw.random() < 0.2:
        i, constant = draw.randrange(len(variables)), draw.choice([-3, -1, 2, 5])
        return (lambda v: v[i]) if draw.random() < 0.7 else (lambda v: constant)
    a, b = (random_expression(draw, variables, depth - 1) for _ in range(2))
    kind = draw.randrange(8)
    if kind < 3:
        return lambda v: OPERATORS[kind](a(v), b(v))
    if kind < 5:
        divisor = draw.choice([-4, -3, 2, 7])
        return lambda v: OPERATORS[kind](a(v), divisor)
    if kind == 5:
        return lambda v: csp.minimum(a(v), b(v)) if isinstance(v[0], csp.Expression) else min(a(v), b(v))
    if kind == 6:
        return lambda v: csp.maximum(a(v), b(v)) if isinstance(v[0], csp.Expression) else max(a(v), b(v))
    divisor = draw.choice([-4, 3])
    return lambda v: csp.ceil_div(a(v), divisor) if isinstance(v[0], csp.Expression) else -(a(v) // -divisor)


@pytest.mark.parametrize("seed", range(60))
def test_all_solutions_are_those_of_an_enumeration(seed):
    """Python's own arithmetic on numbers is the oracle, negative divisors and dividends included."""
    draw = random.Random(seed)
    domains = [sorted(draw.sample(range(-6, 9), draw.randint(1, 5))) for _ in range(3)]
    m = csp.Model()
    variables = [m.var(f"v{i}", domain) for i, domain in enumerate(domains)]
    kept = []
    for _ in range(draw.randint(1, 3)):
        a, b = (random_expression(draw, variables, 2) for _ in range(2))
        compare = draw.choice(COMPARISONS)

        def holds(v, a=a, b=b, compare=compare):
            return compare(a(v), b(v))

        constraint = holds(variables)
        if isinstance(constraint, bool):  # of constants alone
            continue
        m.require(constraint)
        kept.append(holds)
    cost = random_expression(draw, variables, 2)
    m.minimise(cost(variables))
    expected = [v for v in itertools.product(*domains) if all(holds(v) for holds in kept)]
    found = m.all()
    assert sorted(tuple(s.values()) for s in found) == sorted(expected)
    assert [s.cost for s in found] == sorted(cost(v) for v in expected)
    m.maximise(cost(variables))
    best = m.solve()
    assert (best is None) == (expected == [])
    if best is not None:
        assert best.cost == max(cost(v) for v in expected)


def test_conditions():
    m = csp.Model()
    x, y, z = (m.var(name, range(4)) for name in "xyz")
    m.require(csp.all_different(x, y, z) & ~((x == 1) | (y == 2)))
    m.require(csp.one_of(x + y, [3, 5]))
    expected = [v for v in itertools.product(range(4), repeat=3)
                if len(set(v)) == 3 and not (v[0] == 1 or v[1] == 2) and v[0] + v[1] in (3, 5)]  # fmt: skip
    assert sorted(tuple(s.values()) for s in m.all()) == expected
    assert m.solve()[csp.select(x < y, 10, 20)] in (10, 20)


def test_functions_of_python():
    m = csp.Model()
    x, y = m.var("x", range(10)), m.var("y", range(10))
    bits = m.call("bits", [x * 3], lambda n: n.bit_count(), 0, 8)
    m.require("three bits", bits == 3)
    m.minimise(lambda s: (s["x"] - 6.5) ** 2 + s[y + 1] / 2)
    best = m.solve()
    expected = min(((a - 6.5) ** 2 + (b + 1) / 2, a, b) for a in range(10) for b in range(10) if (3 * a).bit_count() == 3)
    assert (best.cost, best["x"], best["y"]) == expected

    def fails(solution):
        raise OSError("no such weights")

    m.minimise(fails)
    with pytest.raises(OSError, match="no such weights"):
        m.solve()
    m.minimise(lambda s: "cheap")
    with pytest.raises(penstock.InvalidArgument, match="the cost returned 'cheap', which is not a number"):
        m.solve()
    m.minimise(lambda s: m.require(x == 1))
    with pytest.raises(penstock.InvalidArgument, match="the model is being searched"):
        m.solve()
    m.minimise(x)
    assert m.solve() is not None  # as good as before
    far = csp.Model()
    v = far.var("v", range(3))
    far.require(far.call("f", [v], lambda n: 10**30, 0, 5) == 1)
    with pytest.raises(penstock.InvalidArgument, match="f returned 10+, which is not a whole number within 64 bits"):
        far.solve()


def test_limits():
    m = csp.Model()
    x = m.var("x", csp.values(1, 1000))
    y = m.var("y", csp.values(1, 1000))
    m.limit(solutions=100)
    with pytest.raises(csp.LimitReached, match="solutions"):
        m.all()
    m.limit(seconds=1e-9)
    m.minimise(lambda s: s[x] * s[y] % 7)
    with pytest.raises(penstock.Interrupted):
        m.solve()
    m.limit()
    assert m.first() is not None
    with pytest.raises(penstock.InvalidArgument, match="seconds must be above 0, not -1"):
        m.limit(seconds=-1)


@pytest.mark.parametrize("search", [
    lambda m: m.minimise(lambda s: -sum(s.values())) or m.solve(),  # Python's code runs between solutions
    lambda m: m.all(),  # none runs
])  # fmt: skip
def test_ctrl_c_ends_a_search(search, ctrl_c_is_heard):
    m = csp.Model()
    many = [m.var(f"x{i}", range(40)) for i in range(12)]
    m.require(sum(v * v for v in many) % 97 == 5)
    m.limit(seconds=60)
    before = signal.signal(signal.SIGVTALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.3)  # of this process's own time: the search has begun on any machine
    try:
        with pytest.raises(KeyboardInterrupt):
            search(m)
    finally:
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("work, error, said", [
    (lambda m, x, y: m.var("x", [1]), penstock.InvalidArgument, "there is a variable 'x' already"),
    (lambda m, x, y: m.var("z", []), penstock.InvalidArgument, "domain"),
    (lambda m, x, y: m.var("z", 3), TypeError, "domain must be a Domain, a range or a list of whole numbers, not 3"),
    (lambda m, x, y: m.var("z", [1.5]), TypeError, "a value of a domain must be a whole number, not 1.5"),
    (lambda m, x, y: x + 0.5, TypeError, "must be a whole number, not 0.5"),
    (lambda m, x, y: x * True, TypeError, "must be a whole number, not True"),
    (lambda m, x, y: x / 2, TypeError, r"use a // b, which rounds down"),
    (lambda m, x, y: x + 2**70, penstock.InvalidArgument, r"must be within 2\^62 - 1"),
    (lambda m, x, y: 1 <= x < y, TypeError, r"write \(a <= b\) & \(b <= c\)"),
    (lambda m, x, y: m.require(x == 1 and y == 2), TypeError, "true or false only in a solution"),
    (lambda m, x, y: m.require("odd", x), TypeError, "constraint must be a Constraint, such as a <= b"),
    (lambda m, x, y: m.require(True), TypeError, "a constraint must be a Constraint"),
    (lambda m, x, y: bool(x), TypeError, "has a value only in a solution"),
    (lambda m, x, y: m.require("zero", 12 // (x - 2) == 3) or m.solve(), penstock.InvalidArgument, "zero"),
    (lambda m, x, y: m.require(csp.Model().var("w", [1, 2]) == x), penstock.InvalidArgument, "model"),
    (lambda m, x, y: m.solve()["w"], KeyError, "no variable 'w', only x, y"),
    (lambda m, x, y: m.call("f", [], int, 0, 1), penstock.InvalidArgument, "'f' must have 1 to 8 arguments, not 0"),
    (lambda m, x, y: m.limit(second=3), TypeError, "second"),
    (lambda m, x, y: csp.divisors(0), penstock.InvalidArgument, "0"),
])  # fmt: skip
def test_mistakes_are_named(work, error, said):
    m = csp.Model()
    x, y = m.var("x", range(1, 4)), m.var("y", range(1, 4))
    with pytest.raises(error, match=said):
        work(m, x, y)


@pytest.mark.parametrize("domain, count", [
    (range(0, 10**9, 7), 142857143), (range(10**30, 0, -7), None), (itertools.count(), 2000001),
    (itertools.cycle([1, 2]), 2000001), ((2 * i for i in range(10**12)), 2000001),
])  # fmt: skip
@pytest.mark.parametrize("take", [lambda d: csp.Model().var("x", d), lambda d: csp.one_of(3, d)])
def test_lists_without_end_are_refused_at_once(domain, count, take):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(penstock.InvalidArgument, match=rf"at most 1000000, not {count or ''}.* or more: use csp.values"):
        take(domain)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # kB


def test_long_lists_of_few_values_are_taken():
    assert len(csp.Model().var("x", [1, 2, 3] * 10**6)._model._variables) == 1
    assert csp.Model().var("x", range(10**15, 0, -1)) is not None


def test_domains():
    assert list(csp.divisors(12)) == [1, 2, 3, 4, 6, 12] and list(csp.powers_of_two(3, 20)) == [4, 8, 16]
    assert list(csp.multiples(5, 1, 16)) == [5, 10, 15] and len(csp.values(-3, 10**12)) == 10**12 + 4
    assert 4 in csp.divisors(12) and 5 not in csp.divisors(12) and str(csp.values(1, 9)) == "1..9"


def test_what_outlives_its_model():
    def problem():
        m = csp.Model()
        x = m.var("x", range(5))
        m.minimise(lambda s: s[x * x])  # a cycle: the model, the function, the variable
        return m.solve(), x * 3, weakref.ref(m)

    solution, expression, alive = problem()
    assert solution["x"] == 0 and solution[expression] == 0 and str(expression) == "x * 3"
    assert alive() is not None
    del solution, expression
    gc.collect()
    assert alive() is None
