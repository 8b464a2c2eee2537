"""Learns tasks that need memory by PPO with a recurrent layer, in minutes on two cores.

python examples/rl/ppo_memory.py cartpole                   # CartPole without velocities: positions alone are seen
python examples/rl/ppo_memory.py repeat                     # repeat the symbol seen four steps ago
python examples/rl/ppo_memory.py cartpole --layer none      # a feedforward policy, for comparison

It prints the mean return of finished episodes and saves its curve as a picture. Several environments run side by side.
The training pass runs whole rollouts in one call: reset_mask starts the state again where an episode starts.
"""

import argparse
import time

import matplotlib.pyplot as plt
import torch
from torch import nn

import penstock.torch


class PositionCartPole:
    """CartPole-v1 of Gymnasium for N poles at once. Cart position and pole angle are seen, velocities are not."""

    observations, actions, longest, goal = 2, 2, 500, 450.0
    scale = 0.02  # of rewards in training, so that the values are about 1

    def __init__(self, count):
        self.state = torch.empty(count, 4).uniform_(-0.05, 0.05)  # x, x', angle, angle'
        self.age = torch.zeros(count)

    def observe(self):
        return self.state[:, [0, 2]] / torch.tensor([2.4, 0.21])

    def step(self, actions):
        """Returns rewards and dones, each [N], and starts finished episodes again at once."""
        x, dx, angle, turn = self.state.unbind(1)
        push = (20.0 * actions - 10.0 + 0.05 * turn**2 * angle.sin()) / 1.1
        bend = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
        drift = push - 0.05 * bend * angle.cos() / 1.1
        self.state = torch.stack([x + 0.02 * dx, dx + 0.02 * drift, angle + 0.02 * turn, turn + 0.02 * bend], 1)
        self.age += 1
        x, _, angle, _ = self.state.unbind(1)
        dones = (x.abs() > 2.4) | (angle.abs() > 0.2095) | (self.age >= self.longest)
        self.state[dones] = torch.empty(int(dones.sum()), 4).uniform_(-0.05, 0.05)
        self.age[dones] = 0
        return torch.ones(len(dones)), dones


class RepeatPrevious:
    """Shows one of four symbols a step. The action has to name the symbol shown four steps ago."""

    observations, actions, longest, goal = 4, 4, 40, 0.9
    scale = 5.0
    lag = 4

    def __init__(self, count):
        self.begin(count)

    def begin(self, count):
        self.symbols = torch.randint(4, (count, self.longest))
        self.age = 0

    def observe(self):
        return nn.functional.one_hot(self.symbols[:, self.age], 4).float()

    def step(self, actions):
        """Returns rewards and dones, each [N]. The return of a perfect episode is 1, that of guessing is 0.25."""
        scored = self.age >= self.lag
        right = (actions == self.symbols[:, self.age - self.lag]) & scored
        self.age += 1
        dones = torch.full((len(actions),), self.age == self.longest)
        if self.age == self.longest:
            self.begin(len(actions))
        return right / (self.longest - self.lag), dones


TASKS: dict[str, type] = {"cartpole": PositionCartPole, "repeat": RepeatPrevious}


class Agent(nn.Module):
    """An encoder, a recurrent layer, and heads for the action and the value."""

    def __init__(self, task, layer, width):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(task.observations, width), nn.Tanh())
        self.memory = None if layer == "none" else getattr(penstock.torch, layer)(width, width)
        self.actor, self.critic = nn.Linear(width, task.actions), nn.Linear(width, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)  # all actions are equally likely at first

    def forward(self, seen, state, starts):
        """Returns logits [T, N, A], values [T, N] and the last state. `starts` is True where an episode starts."""
        x = self.encoder(seen)
        if self.memory is not None:
            x, state = self.memory(x, state, reset_mask=starts)
        return self.actor(x), self.critic(x).squeeze(-1), state


def change(state, how):
    """Applies `how` to a state: None, a tensor [layers, N, H], or a tuple of them."""
    if state is None or isinstance(state, torch.Tensor):
        return None if state is None else how(state)
    return tuple(map(how, state))


def collect(agent, task, steps, state, done):
    """Runs `steps` steps. Returns the rollout as tensors [T, N, ...], the state and the dones after it."""
    rows = []
    for _ in range(steps):
        seen, start = task.observe(), done
        logits, value, state = agent(seen[None], state, start[None])
        action = torch.distributions.Categorical(logits=logits[0]).sample()
        reward, done = task.step(action)
        rows.append((seen, action, logits[0].log_softmax(-1).gather(1, action[:, None])[:, 0], value[0], reward, done))
    return [torch.stack(each) for each in zip(*rows)], state, done


def advantages_of(values, last, rewards, dones, gamma=0.99, smoothing=0.95):
    """Returns the generalised advantage estimates [T, N]. `last` [N] are the values after the rollout."""
    advantages, running = torch.empty_like(values), torch.zeros_like(last)
    for t in reversed(range(len(values))):
        goes_on = (~dones[t]).float()  # dones[t] is about the end of step t
        after = last if t + 1 == len(values) else values[t + 1]
        running = rewards[t] + gamma * goes_on * after - values[t] + gamma * smoothing * goes_on * running
        advantages[t] = running
    return advantages


def improve(agent, optimizer, rollout, starts, state, advantages, epochs=4, parts=4):
    """Runs PPO's updates. A part of the batch has some of the environments, each with all its steps."""
    seen, actions, before, values, _, _ = rollout
    targets = advantages + values
    for _ in range(epochs):
        for some in torch.randperm(seen.shape[1]).chunk(parts):
            entering = change(state, lambda s: s[:, some])
            logits, value, _ = agent(seen[:, some], entering, starts[:, some])  # one call for the whole rollout
            policy = torch.distributions.Categorical(logits=logits)
            ratio = (policy.log_prob(actions[:, some]) - before[:, some]).exp()
            gain = advantages[:, some]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            loss = -torch.min(gain * ratio, gain * ratio.clamp(0.8, 1.2)).mean()
            loss = loss + 0.5 * (value - targets[:, some]).square().mean() - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def learn(task, agent, updates, steps, count):
    """Returns the curve: (environment steps, mean return of the episodes that ended) by update."""
    optimizer = torch.optim.Adam(agent.parameters(), lr=2e-3, eps=1e-5)
    state, done = None, torch.ones(count, dtype=torch.bool)  # every environment starts an episode
    running, curve, began = torch.zeros(count), [], time.perf_counter()
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - update / updates)
        entering, first = state, done
        with torch.no_grad():
            rollout, state, done = collect(agent, task, steps, state, done)
            last = agent(task.observe()[None], state, done[None])[1][0]
        _, _, _, values, rewards, dones = rollout
        starts = penstock.torch.episode_starts(dones, first)
        improve(agent, optimizer, rollout, starts, entering, advantages_of(values, last, task.scale * rewards, dones))

        ended = []
        for reward, end in zip(rewards, dones):
            running += reward
            ended += running[end].tolist()
            running[end] = 0
        if ended:
            curve.append(((update + 1) * steps * count, sum(ended) / len(ended)))
        if ended and update % 10 == 9:
            seconds = time.perf_counter() - began
            print(f"{curve[-1][0]:8} steps, {seconds:5.1f} s: mean return {curve[-1][1]:.2f}", flush=True)
    return curve


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--layer", default="GRU", choices=("GRU", "LSTM", "MinGRU", "none"))
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", default="returns.png")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the calls are too small to share
    task = TASKS[options.task](32)
    agent = Agent(task, options.layer, 64)
    curve = learn(task, agent, options.updates, steps=128, count=32)
    latest = [mean for _, mean in curve[-10:]]
    print(f"mean return of the last {len(latest)} updates: {sum(latest) / len(latest):.2f}, goal {task.goal}")
    plt.plot(*zip(*curve))
    plt.axhline(task.goal, color="grey", linestyle=":")
    plt.xlabel("environment steps")
    plt.ylabel("mean return")
    plt.title(f"{options.task}, {options.layer}")
    plt.savefig(options.picture)


if __name__ == "__main__":
    main()
