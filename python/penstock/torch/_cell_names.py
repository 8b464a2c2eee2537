"""Names of cells in state_dicts. Names and shapes of weights do not always identify the cell."""


class CellNote:
    """Base of modules with one cell. Their state_dict names the cell, and weights of another cell are refused.

    The name is stored in the state_dict's metadata, where PyTorch keeps the versions of modules. torch.save writes it
    and penstock.interchange.load reads it. A dict without metadata is accepted: one of torch.nn, or a new dict made
    from the items of a state_dict. If the cell evaluates as another one, as with zoneout, penstock.interchange takes that.
    """

    def _evaluated(self):
        """Returns the name of the cell that evaluation computes, or a text that no cell has as its name."""
        return self._cell()

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        notes = getattr(destination, "_metadata", {})
        note = notes.setdefault(prefix.removesuffix("."), {})
        note["cell"] = self._cell()
        if self._evaluated() != self._cell():
            note["evaluates"] = self._evaluated()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        said, own = local_metadata.get("cell"), self._cell()
        if said not in (None, own):
            where = f"{prefix.removesuffix('.')}: " if prefix else ""
            errors.append(
                f"{where}the weights are those of a cell {said!r}, and this {type(self).__name__} has '{own}'; "
                f"build the module that they were trained in. dict(state_dict) drops the note, and takes them anyway."
            )
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)
