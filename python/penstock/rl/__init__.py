"""Penstock's layers in frameworks of reinforcement learning.

``GRUModule`` and ``LSTMModule`` take the place of TorchRL's modules; ``MlpLstmPolicy``, ``CnnLstmPolicy`` and
``MultiInputLstmPolicy`` that of the policies of ``RecurrentPPO`` in sb3-contrib. A whole rollout runs in one call, in
which ``reset_mask`` starts the states again where episodes start. The framework is imported when a name is first used.
"""

import importlib

_PACKAGES = {
    "GRUModule": ("_torchrl", "torchrl"),
    "LSTMModule": ("_torchrl", "torchrl"),
    "CnnLstmPolicy": ("_stable_baselines", "sb3-contrib"),
    "MlpLstmPolicy": ("_stable_baselines", "sb3-contrib"),
    "MultiInputLstmPolicy": ("_stable_baselines", "sb3-contrib"),
}

__all__ = list(_PACKAGES)


def __getattr__(name):
    if name not in _PACKAGES:
        raise AttributeError(f"module 'penstock.rl' has no attribute '{name}', only {', '.join(_PACKAGES)}")
    module, package = _PACKAGES[name]
    try:
        return getattr(importlib.import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        message = f"penstock.rl.{name} needs the package {package} ({error}): pip install {package}"
        raise ModuleNotFoundError(message, name=error.name) from error
