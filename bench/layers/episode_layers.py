"""Recurrent layers over rollouts with episodes: compares the time of Penstock's reset_mask with TorchRL's backends
`pad`, `scan` and on a GPU `triton`, and RecurrentPPO of sb3-contrib with its own policy and with Penstock's. Results of
layers must first be equal; the contenders take turns. Prints the tables of docs/reinforcement_learning.md: medians and
quartiles. On a CPU they are times of one processor, in which other programs do not count. Shapes of one step are also
measured as steps of a rollout, without gradients.

    python bench/layers/episode_layers.py [--device cuda] [--shapes 16x32x32x64] [--seconds 2]       needs torchrl
    python bench/layers/episode_layers.py --restarts [--device cuda] [--shapes 16x32x32x64]
    python bench/layers/episode_layers.py --ppo [--seconds 20 | --learn 50000]                      needs sb3-contrib
"""

import argparse
import os
import statistics
import time

import torch

import penstock.torch

END = 0.03  # probability that an episode ends with a step


def measured(runs, seconds, now):
    """Returns the times of each run, in turns of another order every time, after two that are not counted."""
    times = {name: [] for name in runs}
    names, end = list(runs), time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[names[0]]) < 6:
        for name in names:
            start = now()
            runs[name]()
            times[name].append(now() - start)
        names = names[1:] + names[:1]
    return {name: of[2:] for name, of in times.items()}


def spread(values, digits=3):
    low, _, high = statistics.quantiles(values, n=4)
    return " ".join((f"{statistics.median(values):.{digits}g}", f"({low:.{digits}g} to {high:.{digits}g})"))


def clock(device):
    """Returns the function that is the clock: of the processor's time, or of the day after the GPU's work."""

    def after_the_gpu():
        torch.cuda.synchronize()
        return time.perf_counter()

    return time.process_time if device == "cpu" else after_the_gpu


def rollout(cell, shape, device):
    """Returns a rollout as a tensordict, whose states are zero where episodes start, and the names of the states."""
    from tensordict import TensorDict

    rows, steps, inputs, hidden = shape
    states = ["h", "c"] if cell == "LSTM" else ["h"]
    dones = torch.rand(rows, steps) < END
    starts = penstock.torch.episode_starts(dones, batch_first=True)
    values = {"x": torch.randn(rows, steps, inputs), "is_init": starts.unsqueeze(-1)}
    values |= {name: torch.zeros(rows, steps, 1, hidden) for name in states}
    return TensorDict(values, [rows, steps]).to(device), states


def graphed(step):
    """Returns the replay of a CUDA graph of `step`."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def steps(cell, shape, device):
    """Functions by name that run a step of all rows without gradients and update the state in place."""
    rows, _, inputs, hidden = shape
    ours = getattr(penstock.torch, cell)(inputs, hidden, device=device)
    theirs = getattr(torch.nn, cell)(inputs, hidden, device=device)
    theirs.load_state_dict(ours.state_dict())
    x, starts = torch.randn(1, rows, inputs, device=device), torch.rand(1, rows, device=device) < END
    keep = ~starts.unsqueeze(-1)

    def of(layer, masked):
        states = [torch.zeros(1, rows, hidden, device=device) for _ in range(2 if cell == "LSTM" else 1)]

        @torch.no_grad()
        def step():
            before = states if masked else [state * keep for state in states]
            form = {"reset_mask": starts} if masked else {}
            y, after = layer(x, before[0] if len(before) == 1 else tuple(before), **form)
            for state, new in zip(states, after if isinstance(after, tuple) else (after,)):
                state.copy_(new)
            return [y]

        return step

    return {"reset_mask": of(ours, True), "torch.nn": of(theirs, False)}


def compare_steps(options, shape):
    """Compares steps of a rollout; prints a table."""
    print("A step of all rows without gradients, milliseconds; the state is updated in place")
    print("| layer | reset_mask | torch.nn | reset_mask, CUDA graph | torch.nn, CUDA graph |\n|---|---|---|---|---|")
    for cell in ("GRU", "LSTM"):
        runs = steps(cell, shape, options.device)
        check_equal(cell, shape, options.device, runs)
        if options.device == "cuda":
            runs |= {f"{name}, CUDA graph": graphed(run) for name, run in runs.items()}
        times = measured(runs, options.seconds, clock(options.device))
        print(f"| {cell} | {' | '.join(spread([1e3 * t for t in of]) for of in times.values())} |", flush=True)


def check_equal(cell, shape, device, runs):
    """Ends the program unless all runs have the results of the first."""
    results = {name: run() for name, run in runs.items()}
    expected = next(iter(results.values()))
    for name, values in results.items():
        for got, wanted in zip(values, expected):
            error = (got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30)
            if not error < (1e-5 if device == "cpu" else 1e-2):  # a GPU's TF32
                raise SystemExit(f"{cell} {shape}: results of {name} differ by {error}")


def contenders(cell, shape, device, backends):
    """Functions by name that run forward and backward passes, and the function that returns their results."""
    import torchrl.modules

    import penstock.rl

    given, states = rollout(cell, shape, device)
    keys = {"in_keys": ["x", *states], "out_keys": ["y", *(("next", name) for name in states)]}
    theirs, ours = getattr(torchrl.modules, f"{cell}Module"), getattr(penstock.rl, f"{cell}Module")
    modules = {f"TorchRL {name}": theirs(*shape[2:], **keys, recurrent_backend=name) for name in backends}
    modules["penstock.rl"] = ours(*shape[2:], **keys)
    layer = getattr(penstock.torch, cell)(*shape[2:], batch_first=True)
    for module in modules.values():
        getattr(module, cell.lower()).load_state_dict(layer.state_dict())
        module.to(device)
    layer.to(device)
    x, starts = given["x"], given["is_init"].squeeze(-1)
    dy = torch.randn(*shape[:2], shape[3], device=device)
    restarts = tuple(torch.zeros(1, shape[3], device=device) for _ in states)

    def trained(module, forward):
        module.zero_grad()
        y = forward()
        y.backward(dy)
        return [y.detach(), *(parameter.grad for parameter in module.parameters())]

    def of_module(module):
        with torchrl.modules.set_recurrent_mode(True):
            return trained(module, lambda: module(given.clone())["y"])

    reset_to = restarts if len(restarts) > 1 else restarts[0]
    runs = {"reset_mask": lambda: trained(layer, lambda: layer(x, reset_mask=starts)[0])}
    runs["reset_to"] = lambda: trained(layer, lambda: layer(x, reset_mask=starts, reset_to=reset_to)[0])
    runs |= {name: (lambda module=module: of_module(module)) for name, module in modules.items()}
    return runs


def compare_layers(options):
    backends = options.backends or (("pad", "scan", "triton") if options.device == "cuda" else ("pad", "scan"))
    columns = ["reset_mask", "reset_to", "penstock.rl", *(f"TorchRL {name}" for name in backends)]
    print(f"Forward and backward pass, float32, milliseconds; an episode ends with {END:.0%} of the steps")
    print(f"| layer, B x T x I x H | {' | '.join(columns)} | best of TorchRL / reset_mask |")
    print("|---" * (len(columns) + 2) + "|")
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes]
    for shape in shapes:
        for cell in ("GRU", "LSTM"):
            runs = contenders(cell, shape, options.device, backends)
            check_equal(cell, shape, options.device, runs)
            times = measured(runs, options.seconds, clock(options.device))
            best = min(statistics.median(of) for name, of in times.items() if name.startswith("TorchRL"))
            cells = [spread([1e3 * t for t in times[name]]) for name in columns]
            ratio = best / statistics.median(times["reset_mask"])
            print(f"| {cell} {'x'.join(map(str, shape))} | {' | '.join(cells)} | {ratio:.1f} |", flush=True)
    for shape in shapes:
        if shape[1] == 1:
            compare_steps(options, shape)


def restarting(cell, shape, device):
    """Returns functions by name that run forward and backward passes of one layer, whose states start again at zeros
    or at given states, which have gradients."""
    rows, steps, inputs, hidden = shape
    layer = getattr(penstock.torch, cell)(inputs, hidden, batch_first=True, device=device)
    x, starts = torch.randn(rows, steps, inputs, device=device), torch.rand(rows, steps, device=device) < END
    dy = torch.randn(rows, steps, hidden, device=device)

    def of(axes):
        count = 0 if axes is None else 2 if cell == "LSTM" else 1
        states = [torch.zeros(1, *axes, hidden, device=device).requires_grad_() for _ in range(count)]
        to = {"reset_to": tuple(states) if count > 1 else states[0]} if count else {}

        def run():
            for leaf in (*layer.parameters(), *states):
                leaf.grad = None
            y = layer(x, reset_mask=starts, **to)[0]
            y.backward(dy)
            return [y.detach(), *(parameter.grad for parameter in layer.parameters())]

        return run

    given = {"a learnt state": (), "one for each row": (rows,), "one for each step": (rows, steps)}
    return {"reset_mask": of(None)} | {name: of(axes) for name, axes in given.items()}


def compare_restarts(options):
    """Compares states with which rows start again; prints a table."""
    print("Forward and backward pass, float32, milliseconds; then what given states add, and its standard error")
    print("| layer, B x T x I x H | reset_mask | a learnt state | one for each row | one for each step |")
    print("|---|---|---|---|---|")
    for text in options.shapes:
        shape = tuple(map(int, text.split("x")))
        for cell in ("GRU", "LSTM", "MinGRU"):
            runs = restarting(cell, shape, options.device)
            check_equal(cell, shape, options.device, runs)
            times = measured(runs, options.seconds, clock(options.device))
            zeros, *given = times.values()
            cells = [spread([1e3 * t for t in zeros])]
            for of in given:
                more = [100 * (t / zero - 1) for t, zero in zip(of, zeros)]
                error = 1.25 * statistics.stdev(more) / len(more) ** 0.5  # of the median
                cells.append(f"{statistics.median(more):.1f} ± {error:.1f} %")
            print(f"| {cell} {text} | {' | '.join(cells)} |", flush=True)


def compare_returns(options, policies, learnt):
    """Compares whole runs of RecurrentPPO; prints a table."""
    print(f"{options.learn} steps of RecurrentPPO, CartPole-v1, 8 environments; mean return of the last 100 episodes")
    print("| policy | steps a second | returns |\n|---|---|---|")
    now = clock(options.device)
    for name, policy in policies.items():
        rates, returns = [], []
        for seed in range(options.seeds):
            start = now()
            model = learnt(policy, options.learn, seed)
            rates.append(model.num_timesteps / (now() - start))
            returns.append(statistics.mean(episode["r"] for episode in model.ep_info_buffer))
        seeds = ", ".join(f"{value:.0f}" for value in returns)
        print(f"| {name} | {statistics.median(rates):,.0f} | {statistics.mean(returns):.0f} ({seeds}) |", flush=True)


def compare_ppo(options):
    import gymnasium
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    import penstock.rl

    count, steps = 8, 128
    policies = {"RecurrentPPO's own": "MlpLstmPolicy", "penstock.rl": penstock.rl.MlpLstmPolicy}

    def learnt(policy, total, seed=0):
        envs = DummyVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))] * count)
        return RecurrentPPO(policy, envs, n_steps=steps, seed=seed, device=options.device).learn(total)

    if options.learn:
        compare_returns(options, policies, learnt)
        return
    models = {name: learnt(policy, count * steps) for name, policy in policies.items()}
    print("Training passes of RecurrentPPO with its default settings, CartPole-v1, 8 environments, steps a second")
    print("| policy | training pass | rollout |")
    print("|---|---|---|")

    def collected(model):
        _, callback = model._setup_learn(count * steps, None)
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)

    now = clock(options.device)
    training = measured({name: model.train for name, model in models.items()}, options.seconds, now)
    collecting = {name: (lambda model=model: collected(model)) for name, model in models.items()}
    rollouts = measured(collecting, options.seconds / 2, now)
    for name, model in models.items():
        passes = [count * steps * model.n_epochs / t for t in training[name]]
        print(f"| {name} | {spread(passes, 4)} | {spread([count * steps / t for t in rollouts[name]], 4)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shapes", nargs="+", default=["16x32x32x64"], help="rows x steps x inputs x hidden size")
    parser.add_argument(
        "--backends", nargs="+", choices=("pad", "scan", "triton"), help="of TorchRL; triton compiles for minutes"
    )
    parser.add_argument("--ppo", action="store_true", help="policies of RecurrentPPO instead of layers")
    parser.add_argument("--restarts", action="store_true", help="given states instead of TorchRL")
    parser.add_argument("--learn", type=int, default=0, metavar="STEPS", help="with --ppo: compare returns after these")
    parser.add_argument("--seeds", type=int, default=3, help="of --learn")
    parser.add_argument("--precision", choices=("ieee", "tf32"), help="of float32 layers on a GPU; else PyTorch's default")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if options.precision:
        torch.backends.cudnn.rnn.fp32_precision = options.precision  # which Penstock's layers read, too
    precision = torch.backends.cudnn.rnn.fp32_precision if options.device == "cuda" else "float32"
    print(f"Penstock {penstock.__version__}, torch {torch.__version__}, one thread, load {os.getloadavg()[0]:.1f}, ", end="")
    print(f"products in {precision}\n")
    compare = compare_ppo if options.ppo else compare_restarts if options.restarts else compare_layers
    compare(options)


if __name__ == "__main__":
    main()
