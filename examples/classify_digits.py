"""Classifies handwritten digits with a GRU in PyTorch, row by row: 1,797 images of 8 x 8 pixels from scikit-learn.

pip install '.[torch]' scikit-learn
python examples/classify_digits.py
"""

import torch
from sklearn.datasets import load_digits

import penstock.torch


class Reader(torch.nn.Module):
    """Reads an image [B, 8, 8] from the top row to the bottom row and classifies its last state as one of 10 digits."""

    def __init__(self, hidden_size=64):
        super().__init__()
        self.rows = penstock.torch.GRU(8, hidden_size, batch_first=True)
        self.digit = torch.nn.Linear(hidden_size, 10)

    def forward(self, images):
        _, last = self.rows(images)
        return self.digit(last[-1])


def main(passes=20, batch=32):
    torch.manual_seed(0)
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    images = torch.from_numpy(digits.images).float()[order] / 16
    labels = torch.from_numpy(digits.target)[order]
    held_out = len(labels) // 4
    train_images, train_labels = images[held_out:], labels[held_out:]

    model = Reader()
    trainer = penstock.torch.StableTrainer(model, learning_rate=5e-3)  # Adam; gradients are clipped
    for number in range(passes):
        for picked in torch.randperm(len(train_labels)).split(batch):
            report = trainer.train_step(train_images[picked], train_labels[picked])
        if number % 5 == 4:
            print(f"pass {number + 1}: loss {report['loss']:.3f}, norm of the gradients {report['grad_norm']:.2f}")

    model.eval()
    with torch.inference_mode():
        accuracy = (model(images[:held_out]).argmax(1) == labels[:held_out]).float().mean().item()
    print(f"{100 * accuracy:.1f} % right of {held_out} images that were held out")
    return accuracy


if __name__ == "__main__":
    assert main() > 0.9
