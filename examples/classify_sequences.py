"""Classifies noisy lines as rising or falling with an LSTM cell and a softmax.

The training loop is written out: forward pass, backward pass, update of the weights.

python examples/classify_sequences.py
"""

import numpy as np

import penstock


def lines(rows, random):
    """Returns noisy sequences [B, T, 1] that rise (label 1) or fall (label 0), and their labels."""
    labels = random.integers(0, 2, rows)
    slopes = (2 * labels - 1)[:, None] * np.linspace(0, 1, 30)
    return (slopes + random.normal(0, 1, (rows, 30)))[:, :, None].astype(np.float32), labels


def main():
    random = np.random.default_rng(0)
    cell = penstock.LSTMCell(1, 16)
    tape = cell.tape()
    readout = np.zeros((2, 16), np.float32)
    rate = 0.5
    for step in range(200):
        x, labels = lines(64, random)
        y, _ = cell.forward(x, tape=tape)
        logits = y[:, -1] @ readout.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)

        # Backward pass of the mean cross-entropy, from the logits to the weights.
        dlogits = p.copy()
        dlogits[np.arange(64), labels] -= 1
        dlogits /= 64
        dy = np.zeros_like(y)
        dy[:, -1] = dlogits @ readout
        cell.zero_gradients()
        cell.backward(dy, tape=tape, input_gradient=False)
        readout -= rate * dlogits.T @ y[:, -1]
        with cell.edit() as weights:
            for name, gradient in cell.gradients.items():
                weights[name] -= rate * gradient
        if step % 50 == 49:
            loss = -np.log(p[np.arange(64), labels]).mean()
            print(f"step {step + 1}: loss {loss:.3f}")

    x, labels = lines(1000, random)
    y, _ = cell.forward(x)
    accuracy = ((y[:, -1] @ readout.T).argmax(axis=1) == labels).mean()
    print(f"{100 * accuracy:.1f} % right of 1000 new lines")
    return accuracy


if __name__ == "__main__":
    assert main() > 0.9
