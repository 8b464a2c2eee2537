"""Where the model of a run lies: one device, copies that share gradients (DDP), or shards (FSDP2)."""

from __future__ import annotations

import contextlib
import warnings

import torch
from torch import nn

from ...errors import InvalidArgument

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .group import Group

SHARDINGS = ("ddp", "fsdp")


class Placement:
    """The model of a run on this rank.

    Args:
        module: The model on the CPU, the same on all ranks.
        group: The ranks.
        sharding: ``"ddp"``: each rank has the whole model. ``"fsdp"``: each has a part of every tensor, and a block is
            put together while it runs.
        compile: False, True, or the name of a backend of torch.compile. Blocks are compiled one by one.

    Attributes:
        module: The model.
        parameters: This rank's part of each parameter that is trained, by name.
    """

    def __init__(self, module: nn.Module, group: Group, sharding: str, compile: bool | str) -> None:
        if sharding not in SHARDINGS:
            raise InvalidArgument(f"sharding must be one of {', '.join(SHARDINGS)}, not {sharding!r}")
        self.module, self.group = module.train(), group
        self.sharded = sharding == "fsdp" and group.size > 1
        if compile:
            for block in module.blocks:  # type: ignore[union-attr]
                block.compile(**({} if compile is True else {"backend": compile}))
        if self.sharded:
            self._shard()
        else:
            module.to(group.device)
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._call = module
        if group.size > 1 and not self.sharded:
            devices = [group.device] if group.device.type == "cuda" else None
            self._call = nn.parallel.DistributedDataParallel(module, devices, gradient_as_bucket_view=True)

    def _shard(self):
        from torch.distributed.fsdp import fully_shard

        # FSDP warns of outputs that are views, as the state of a convolution is; nothing here changes them in place.
        warnings.filterwarnings("ignore", "(?s).*pre-backward hook", UserWarning)
        mesh = torch.distributed.init_device_mesh(self.group.device.type, (self.group.size,))
        for block in self.module.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.module, mesh=mesh)

    def run(self, *arguments, **options):
        """Runs the model with gradients."""
        return self._call(*arguments, **options)

    def answer(self, *arguments, **options):
        """Runs the model in evaluation mode, without gradients."""
        self.module.eval()
        with torch.no_grad():
            result = self.module(*arguments, **options)
        self.module.train()
        if self.sharded:
            self.module.reshard()  # which FSDP leaves to the backward pass; parameters() would be whole until then
        return result

    @contextlib.contextmanager
    def accumulating(self, more: bool) -> Iterator[None]:
        """In it, the gradients of backward passes are added up on each rank; they are exchanged unless ``more``."""
        if self.sharded:
            self.module.set_requires_gradient_sync(not more)  # type: ignore[operator]
            yield
        elif more and self.group.size > 1:
            with self._call.no_sync():  # type: ignore[operator]
                yield
        else:
            yield

    def norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """Returns the norm of all gradients together, of all ranks."""
        norm = nn.utils.get_total_norm(gradients)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def values(self) -> list[torch.Tensor]:
        """Returns copies of this rank's part of the weights."""
        return [p.detach().clone() for p in self.parameters.values()]

    @torch.no_grad()
    def set_values(self, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self.parameters.values(), values):
            parameter.copy_(value)

    def full_state(self) -> dict[str, torch.Tensor]:
        """Returns the whole weights on the CPU of rank 0; empty on the others."""
        if not self.sharded:
            return self.module.state_dict() if self.group.rank == 0 else {}
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        return get_model_state_dict(self.module, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
