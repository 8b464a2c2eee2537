"""Policies for RecurrentPPO of sb3-contrib."""

from sb3_contrib.common.recurrent import policies

from penstock.torch import convert


class _OneCall:
    """Mixin that replaces the policy's LSTMs by Penstock's, and its loop over the steps by one call."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        convert(self)  # the parameters, which the optimiser has, stay

    @staticmethod
    def _process_sequence(features, lstm_states, episode_starts, lstm):
        """Runs [rows * steps, features] from the states (h, c). Returns [rows * steps, H] and the last states."""
        rows = lstm_states[0].shape[1]
        x = features.reshape(rows, -1, lstm.input_size).transpose(0, 1)
        starts = episode_starts.reshape(rows, -1).t() != 0  # the framework has them as floats
        y, states = lstm(x, lstm_states, reset_mask=starts)
        return y.transpose(0, 1).flatten(0, 1), states


class MlpLstmPolicy(_OneCall, policies.RecurrentActorCriticPolicy):
    """``"MlpLstmPolicy"`` of ``sb3_contrib.RecurrentPPO`` with Penstock's LSTM, in arguments and results the same.

    ``RecurrentPPO(penstock.rl.MlpLstmPolicy, env)`` uses it.
    """


class CnnLstmPolicy(_OneCall, policies.RecurrentActorCriticCnnPolicy):
    """``"CnnLstmPolicy"`` with Penstock's LSTM, as :class:`MlpLstmPolicy`."""


class MultiInputLstmPolicy(_OneCall, policies.RecurrentMultiInputActorCriticPolicy):
    """``"MultiInputLstmPolicy"`` with Penstock's LSTM, as :class:`MlpLstmPolicy`."""
