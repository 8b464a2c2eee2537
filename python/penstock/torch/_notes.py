"""Names of cells in state_dicts, whose shapes and names of weights do not tell them."""


class CellNote:
    """A base of modules with one cell: their state_dict says it, and weights of another are refused.

    The note lies where PyTorch keeps the versions of modules: torch.save writes it, and penstock.interchange.load reads
    it. A dict that was made anew from the items of a state_dict, or that torch.nn wrote, has none, and is taken.
    """

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        notes = getattr(destination, "_metadata", {})
        notes.setdefault(prefix.removesuffix("."), {})["cell"] = self._cell()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        said, own = local_metadata.get("cell"), self._cell()
        if said not in (None, own):
            where = f"{prefix.removesuffix('.')}: " if prefix else ""
            errors.append(
                f"{where}the weights are those of a cell '{said}', and this {type(self).__name__} has '{own}'; "
                f"build the module that they were trained in. dict(state_dict) drops the note, and takes them anyway."
            )
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)
