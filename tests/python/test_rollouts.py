"""Rollouts in frameworks of reinforcement learning: Penstock's modules, policies and snippets beside the frameworks' own."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.10", reason="penstock.torch needs PyTorch 2.10")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

from test_reinforcement_learning import DONES, B, T, close  # noqa: E402


@pytest.mark.parametrize("name, missing, package", [("GRUModule", "torchrl", "torchrl"), ("MlpLstmPolicy", "sb3_contrib", "sb3-contrib")])
def test_a_framework_that_is_not_installed_is_named(name, missing, package):
    script = f"import sys; sys.modules['{missing}'] = None; import penstock.rl; penstock.rl.{name}"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"penstock.rl.{name} needs the package {package}" in result.stderr and f"pip install {package}" in result.stderr


def test_names_that_do_not_exist():
    import penstock.rl

    with pytest.raises(AttributeError, match="'penstock.rl' has no attribute 'GruModule', only GRUModule, LSTMModule"):
        penstock.rl.GruModule


KEYS = {"GRU": ["h"], "LSTM": ["h", "c"]}


def module_of(home, cell, *sizes, **options):
    keys = {"in_keys": ["x", *KEYS[cell]], "out_keys": ["y", *(("next", key) for key in KEYS[cell])]}
    return getattr(home, f"{cell}Module")(*sizes, **keys, **options)


@pytest.mark.parametrize("cell", KEYS)
@pytest.mark.parametrize("layers, given", [(1, "none"), (1, "zeros"), (1, "states"), (2, "zeros"), (2, "states")])
def test_torchrl_modules_give_what_torchrl_gives(cell, layers, given):
    modules = pytest.importorskip("torchrl.modules", reason="torchrl is not installed")
    import penstock.rl
    from tensordict import TensorDict

    torch.manual_seed(0)
    theirs = module_of(modules, cell, 4, 8, num_layers=layers)
    mine = module_of(penstock.rl, cell, 4, 8, num_layers=layers)
    mine.load_state_dict(theirs.state_dict())
    starts = ours.episode_starts(DONES.t(), torch.tensor([True, False, False]), batch_first=True)
    data = TensorDict({"x": torch.randn(B, T, 4), "is_init": starts.unsqueeze(-1)}, [B, T])
    for key in KEYS[cell] if given != "none" else ():
        data[key] = torch.randn(B, T, layers, 8)
        if given == "zeros":
            data[key][starts] = 0
    results = []
    for module in (theirs, mine):
        copy = data.clone()
        leaves = [copy["x"].requires_grad_(), *(copy[key].requires_grad_(given == "states") for key in KEYS[cell] if given != "none")]
        with modules.set_recurrent_mode(True):
            out = module(copy)
        loss = out["y"].sin().sum() + sum(out["next", key].cos().sum() for key in KEYS[cell])
        needed = [leaf for leaf in leaves if leaf.requires_grad]
        results.append([out["y"], *(out["next", key] for key in KEYS[cell]), *torch.autograd.grad(loss, [*needed, *module.parameters()])])
    for expected, got in zip(*results):
        close(got, expected, terms=16 * T * B)
    single = data[:, 0]
    close(mine(single.clone())["y"], theirs(single.clone())["y"])
    flat = TensorDict({"x": torch.randn(T, 4), "is_init": torch.zeros(T, 1, dtype=torch.bool)}, [T])
    with modules.set_recurrent_mode(True):
        close(mine(flat.clone())["y"], theirs(flat.clone())["y"])
        one, other = (module(data[:, :1].clone()) for module in (mine, theirs))  # rollouts of one step
    for key in ("y", *(("next", key) for key in KEYS[cell])):
        close(one[key], other[key])


def test_torchrl_modules_take_other_layers_and_refuse_options():
    modules = pytest.importorskip("torchrl.modules", reason="torchrl is not installed")
    import penstock.rl
    from tensordict import TensorDict

    layer = ours.MinGRU(4, 8, batch_first=True)
    module = module_of(penstock.rl, "GRU", gru=layer)
    starts = ours.episode_starts(DONES.t(), batch_first=True)
    data = TensorDict({"x": torch.randn(B, T, 4), "is_init": starts.unsqueeze(-1)}, [B, T])
    with modules.set_recurrent_mode(True):
        close(module(data.clone())["y"], layer(data["x"], reset_mask=starts)[0])
        with pytest.raises(ValueError, match="needs a tensordict with a time dimension"):
            module(data[0, 0])
    with pytest.raises(ValueError, match="recurrent_backend must not be given, not 'scan'"):
        module_of(penstock.rl, "GRU", 4, 8, recurrent_backend="scan")
    with pytest.raises(ValueError, match="bidirectional must be False"):
        module_of(penstock.rl, "LSTM", 4, 8, bidirectional=True)
    with pytest.raises(ValueError, match="one of penstock.torch or torch.nn, not LSTM"):
        module_of(penstock.rl, "LSTM", 4, 8, python_based=True)
    with pytest.raises(ValueError, match="GRUModule needs a layer with the number of states 1"):
        module_of(penstock.rl, "GRU", gru=ours.LSTM(4, 8, batch_first=True))
    with pytest.raises(RuntimeError, match="must have all states or none, and has no 'c'"):
        with modules.set_recurrent_mode(True):
            module_of(penstock.rl, "LSTM", 4, 8)(data.clone().set("h", torch.zeros(B, T, 1, 8)))


@pytest.mark.parametrize("options", [{}, {"shared_lstm": True, "enable_critic_lstm": False}, {"n_lstm_layers": 2}], ids=str)
def test_policies_of_stable_baselines_give_what_their_own_give(options):
    recurrent = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    import gymnasium

    import penstock.rl

    torch.manual_seed(0)
    options = {"lstm_hidden_size": 16, **options}
    theirs, mine = (
        recurrent.RecurrentPPO(policy, gymnasium.make("CartPole-v1"), n_steps=64, batch_size=32, n_epochs=2, policy_kwargs=options)
        for policy in ("MlpLstmPolicy", penstock.rl.MlpLstmPolicy)
    )
    assert type(mine.policy.lstm_actor) is ours.LSTM
    mine.policy.load_state_dict(theirs.policy.state_dict())
    for model in (theirs, mine):
        model.set_random_seed(1)
        model.learn(64)
    assert np.array_equal(mine.rollout_buffer.actions, theirs.rollout_buffer.actions)
    np.testing.assert_allclose(mine.rollout_buffer.values, theirs.rollout_buffer.values, rtol=1e-5, atol=1e-6)

    mine.policy.load_state_dict(theirs.policy.state_dict())
    batch = next(theirs.rollout_buffer.get(48))
    flags = batch.episode_starts.clone()
    flags[5] = 1.0  # an episode that starts inside a sequence
    results = []
    for policy in (theirs.policy, mine.policy):
        policy.zero_grad()
        values, log_prob, entropy = policy.evaluate_actions(batch.observations, batch.actions.long().flatten(), batch.lstm_states, flags)
        (values.sum() + log_prob.sum() + entropy.sum()).backward()
        results.append([values, log_prob, *(p.grad for p in policy.parameters() if p.grad is not None)])
    for expected, got in zip(*results):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5 * max(1.0, expected.abs().max().item()))


def snippet(name):
    """Runs the example of the page that defines `name` and returns what it has."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "reinforcement_learning.md").read_text()
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if name in code]
    names = {"__name__": "snippet"}
    exec(compile(code, "snippet", "exec"), names)
    return names


def test_an_agent_of_cleanrl_gives_what_its_loop_gives():
    """Its flags are floats that mark starts before a step, and all steps of all environments are one axis."""
    agent = snippet("get_states")["Agent"]()
    x, starts = torch.randn(T * B, 16), ours.episode_starts(DONES, DONES[0])
    state = torch.randn(1, B, 128), torch.randn(1, B, 128)
    y, last = agent.get_states(x, state, starts.float().flatten())
    hidden = agent.network(x / 255.0).view(T, B, 512)
    lstm, expected = torch.nn.LSTM(512, 128), []
    lstm.load_state_dict(agent.lstm.state_dict())
    for t in range(T):
        keep = (1.0 - starts[t].float()).view(1, -1, 1)
        step, state = lstm(hidden[t : t + 1], tuple(keep * s for s in state))
        expected.append(step[0])
    close(y, torch.cat(expected), terms=512)
    for got, wanted in zip(last, state):
        close(got, wanted, terms=512)


class LstmWrapper(torch.nn.Module):
    """Has the attributes of PufferLib's LSTMWrapper, its keys of a state, and its rollout by a cell."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.policy = torch.nn.Module()
        self.policy.encode_observations = lambda x, state=None: x.tanh()
        self.policy.decode_actions = lambda h: (h[:, 1:], h[:, :1])
        self.lstm, self.cell = torch.nn.LSTM(inputs, hidden), torch.nn.LSTMCell(inputs, hidden)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.cell, name, getattr(self.lstm, f"{name}_l0"))

    def forward_eval(self, observations, state):
        inputs = self.policy.encode_observations(observations, state=state)
        state["lstm_h"], state["lstm_c"] = self.cell(inputs, (state["lstm_h"], state["lstm_c"]))
        return self.policy.decode_actions(state["lstm_h"])


def test_rollouts_and_training_of_pufferlib_start_episodes_alike():
    policy = type("Policy", (snippet("StartsOfEpisodes")["StartsOfEpisodes"], LstmWrapper), {})(4, 8)
    ours.convert(policy)
    assert isinstance(policy.lstm, ours.LSTM) and isinstance(policy.cell, ours.LSTMCell)
    assert policy.cell.weight_hh is policy.lstm.weight_hh_l0
    x, starts, steps = torch.randn(B, T, 4), ours.episode_starts(DONES).t(), []
    state = {"lstm_h": torch.ones(B, 8), "lstm_c": torch.ones(B, 8)}  # of an earlier rollout
    for t in range(T):
        state["done"] = starts[:, t]
        steps.append(policy.forward_eval(x[:, t], state))
    logits, values = policy(x, {"lstm_h": None, "lstm_c": None, "terminals": starts.float()})
    close(logits.unflatten(0, (B, T)), torch.stack([each[0] for each in steps], 1), terms=512)
    close(values, torch.cat([each[1] for each in steps], 1), terms=512)


def test_a_module_of_purejaxrl_gives_what_its_scan_gives():
    """Its cell is Flax's, whose weights are one matrix for each gate."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    flax = pytest.importorskip("flax.linen", reason="Flax is not installed")
    module, jnp = snippet("ScannedRNN")["ScannedRNN"], jax.numpy
    x, resets = jax.random.normal(jax.random.key(0), (T, B, 4)), ours.episode_starts(DONES, DONES[0]).numpy()
    h, cell = jax.random.normal(jax.random.key(1), (B, 8)), flax.GRUCell(features=8)
    weights = cell.init(jax.random.key(2), h, x[0])
    kernels = weights["params"]
    stacked = {
        "weight_ih_l0": [kernels[f"i{gate}"]["kernel"].T for gate in "rzn"],
        "weight_hh_l0": [kernels[f"h{gate}"]["kernel"].T for gate in "rzn"],
        "bias_ih_l0": [kernels[f"i{gate}"]["bias"] for gate in "rzn"],
        "bias_hh_l0": [jnp.zeros(16), kernels["hn"]["bias"]],
    }
    given = {"params": {"gru": {name: jnp.concatenate(parts) for name, parts in stacked.items()}}}
    assert jax.tree.structure(module().init(jax.random.key(3), h, (x, resets))) == jax.tree.structure(given)

    def theirs(x, h):
        def step(h, given):
            x, starts = given
            return cell.apply(weights, jnp.where(starts[:, None], 0, h), x)

        return jax.lax.scan(step, h, (x, resets))

    def mine(x, h):
        return module().apply(given, h, (x, resets))

    for function in (lambda f: f(x, h), lambda f: jax.grad(lambda *a: sum(jnp.sin(r).sum() for r in f(*a)), (0, 1))(x, h)):
        with jax.default_matmul_precision("highest"):
            pairs = zip(function(mine), function(theirs))
        for got, expected in pairs:
            close(torch.tensor(np.asarray(got)), torch.tensor(np.asarray(expected)))
    assert not module.initialize_carry(B, 8).any()


@pytest.mark.parametrize("heads", [1, 2])
def test_the_gru_of_dreamer_normalises_its_gates(heads):
    layer = ours.Recurrent(snippet("dreamer_gru")["dreamer_gru"], 4, 8, num_heads=heads)
    x, h = torch.randn(T, B, 4), torch.zeros(B, 8)
    y, _ = layer(x)
    with torch.no_grad():
        layer.bias_ih_l0[: 3 * 8].normal_()
        y, _ = layer(x)
    weights = layer.weight_hh_l0.view(heads, 3, 8 // heads, 8 // heads)
    gain, shift = layer.bias_ih_l0[24:].view(2, 3, heads, 8 // heads)
    for t in range(T):
        wx = torch.nn.functional.linear(x[t], layer.weight_ih_l0, layer.bias_ih_l0[:24]).view(B, 3, heads, -1)
        rh = torch.einsum("kgij,bkj->bgki", weights, h.view(B, heads, -1)) + layer.bias_hh_l0.view(3, heads, -1)
        gates = (wx + rh).transpose(1, 2).flatten(2)
        gates = torch.nn.functional.layer_norm(gates, gates.shape[2:], eps=1e-3).view(B, heads, 3, -1).transpose(1, 2)
        r, c, u = (gates * gain + shift).flatten(2).unbind(1)
        h = u.sigmoid() * (r.sigmoid() * c).tanh() + (1 - u.sigmoid()) * h
        close(y[t], h)
