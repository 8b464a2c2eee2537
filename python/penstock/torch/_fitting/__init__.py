"""The trainer behind penstock.torch.fit: PyTorch's engines around Penstock's models, data and decisions.

One step, from the data to the weights: `batches` gives this rank its rows of the global batch, `placement` runs them on the
rank's device (DDP, FSDP2, torch.compile), `trainer` adds up what all ranks found and decides, `optimizers` updates
the weights, `average` averages them. `group` is the processes, `watch` names those that end, `checkpoints`
saves and resumes.
"""
