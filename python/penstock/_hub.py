"""Models as folders, and as repositories of the Hugging Face Hub: the methods that its users know."""

from __future__ import annotations

import os
import re

from . import _core
from .errors import BadInput, Incompatible, InvalidArgument, IoFailure

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

_CONFIG, _WEIGHTS, _CARD = "config.json", "model.safetensors", "README.md"
_REPOSITORY = re.compile(r"(?!.*(\.\.|--))\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)  # the Hub's own rule for names
_DESCRIBED = ("format_version", "model", "data")  # what config.json repeats from the metadata of the weights
_OWN = {"model_type", "architectures", "penstock_version", "parameters", "training", *_DESCRIBED}


def _hub(purpose):
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise
        text = f"{purpose} needs the package huggingface_hub: pip install huggingface_hub"
        raise ModuleNotFoundError(text, name="huggingface_hub") from None
    return huggingface_hub


def _write(path, text):
    _core.write_file(path, [text.encode()], _core.FileKind.any)


def _read_config(path):
    """Returns the content of a config.json of Penstock."""
    import json

    try:
        with open(path, "rb") as file:
            config = json.loads(file.read())
    except FileNotFoundError:
        folder = os.path.dirname(path)
        advice = "give a folder that save_pretrained() wrote, or read a model file by load(FILE)"
        raise IoFailure(f"'{folder}' has no {_CONFIG}: {advice}") from None
    except OSError as error:
        raise IoFailure(f"cannot read '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON: {error}") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind != "penstock":
        raise Incompatible(f"{path}: its model_type must be 'penstock', not {kind!r}: it belongs to another library")
    return config


def _describe(weights):
    """Returns what the header of a sound model file says, as it is in config.json."""
    import json
    from math import prod

    with open(weights, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    metadata = header.pop("__metadata__")
    return {
        "parameters": sum(prod(tensor["shape"]) for tensor in header.values()),
        **json.loads(metadata["penstock"]),
        "training": parsed_history(json.loads(metadata.get("penstock.history", "{}"))),
    }


def parsed_history(history):
    """Returns the notes on training. Those that files hold as JSON texts are parsed, and left out if that fails."""
    import json

    notes = {name: value for name, value in history.items() if isinstance(value, (int, str))}
    for name in ("options", "scores"):
        try:
            parsed = json.loads(notes.pop(name, ""))
        except (TypeError, ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            notes[name] = parsed
    return notes


def _difference(one, other, place):
    """Returns the place of the first difference between two JSON values, and both values there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                return _difference(one.get(name), other.get(name), f"{place}.{name}")
    return place, one, other


def _check_agreement(config, folder):
    description = _describe(os.path.join(folder, _WEIGHTS))
    for name in _DESCRIBED:
        if config.get(name) != description[name]:
            place, said, true = _difference(config.get(name), description[name], name)
            raise Incompatible(
                f"{os.path.join(folder, _CONFIG)}: {place} is {str(said)[:60]}, but {_WEIGHTS} has {str(true)[:60]}: "
                "the files belong to different models; write both by save_pretrained(), or read the weights alone by "
                "load(FILE)"
            )


def _folder_of(name, options):
    """Returns the folder of a model: a local one, or that to which the Hub's files were downloaded."""
    path = os.fspath(name)
    if os.path.isdir(path):
        if options["revision"] is not None:
            raise InvalidArgument(f"revision must be None for a folder, and '{path}' is one: it names a state of a repository")
        if not os.path.exists(os.path.join(path, _WEIGHTS)):
            raise IoFailure(f"'{path}' has no {_WEIGHTS}: save_pretrained() writes it")
        return path
    if os.path.exists(path):
        raise IoFailure(f"'{path}' is a file: from_pretrained() reads a folder; load() reads a model file")
    if not _REPOSITORY.fullmatch(path):
        raise IoFailure(f"there is no folder '{path}', and a repository is named OWNER/NAME")
    hub = _hub(f"there is no folder '{path}', and a repository of the Hub")
    about = {"library_name": "penstock", "library_version": _core.system_info()["version"]}
    files = [hub.hf_hub_download(path, file, **about, **options) for file in (_CONFIG, _WEIGHTS)]
    return os.path.dirname(files[-1])


class Pretrained:
    """Saves and loads a model as a folder of the form that the Hugging Face Hub expects.

    The arguments are those of ``huggingface_hub.ModelHubMixin``. Only a repository on the Hub needs that package.
    """

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        *,
        config: dict[str, Any] | None = None,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: dict[str, Any] | None = None,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Writes a folder with ``model.safetensors``, ``config.json`` and ``README.md``, the model card.

        ``model.safetensors`` is the file of :meth:`save`, which all commands of the program read. ``config.json`` has
        the architecture, the description of the data and the notes on training, and needs no weights to be read. A
        ``README.md`` that you have written, or whose marker you have removed, stays as it is.

        Args:
            save_directory: The folder. It is made if it is missing. Other files in it stay.
            config: Further entries of ``config.json``.
            repo_id: Name of the model in its card, and of the repository on the Hub. None: the name of the folder.
            push_to_hub: True: also uploads the folder.
            model_card_kwargs: What training does not know, for the card: ``license``, ``language``, ``datasets``,
                ``tags``, ``description``.

        The other arguments are those of :meth:`push_to_hub`.

        Returns:
            The address of the commit on the Hub, or None.

        Raises:
            InvalidArgument: ``config`` replaces an entry of Penstock.
            Incompatible: The folder has the ``config.json`` of another library.
            IoFailure: A file cannot be written.
        """
        if push_to_hub_kwargs and not push_to_hub:
            raise TypeError(f"save_pretrained() takes {min(push_to_hub_kwargs)} only with push_to_hub=True")
        folder = os.path.abspath(os.fspath(save_directory))
        self._write_folder(folder, repo_id or os.path.basename(folder), config, model_card_kwargs)
        if not push_to_hub:
            return None
        name = repo_id or os.path.basename(folder)
        return self.push_to_hub(name, config=config, model_card_kwargs=model_card_kwargs, **push_to_hub_kwargs)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        **model_kwargs: Any,
    ) -> Self:
        """Reads a model that :meth:`save_pretrained` wrote.

        Args:
            pretrained_model_name_or_path: A folder, or the name of a repository on the Hub, ``OWNER/NAME``, which needs
                the package ``huggingface_hub``.
            model_kwargs: Arguments of :meth:`load`.

        The other arguments are those of ``huggingface_hub.hf_hub_download``.

        Raises:
            BadInput: A file is damaged.
            Incompatible: ``config.json`` belongs to another library or to other weights.
            InvalidArgument: ``revision`` is given for a folder.
            IoFailure: There is no such folder, or a file of it is missing.
            ModuleNotFoundError: The Hub is needed, but ``huggingface_hub`` is not installed.
        """
        options = {"force_download": force_download, "token": token, "cache_dir": cache_dir,
                   "local_files_only": local_files_only, "revision": revision}  # fmt: skip
        folder = _folder_of(pretrained_model_name_or_path, options)
        config = _read_config(os.path.join(folder, _CONFIG))
        model = cls.load(os.path.join(folder, _WEIGHTS), **model_kwargs)  # type: ignore[attr-defined]
        _check_agreement(config, folder)
        return model

    def push_to_hub(
        self,
        repo_id: str,
        *,
        config: dict[str, Any] | None = None,
        commit_message: str = "Upload a model of Penstock",
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        create_pr: bool | None = None,
        allow_patterns: list[str] | str | None = None,
        ignore_patterns: list[str] | str | None = None,
        delete_patterns: list[str] | str | None = None,
        model_card_kwargs: dict[str, Any] | None = None,
    ) -> str:
        """Uploads the folder of :meth:`save_pretrained` to the Hugging Face Hub in one commit.

        A card on the Hub whose marker was removed stays as it is.

        Args:
            repo_id: The repository, ``OWNER/NAME``. It is made if it is missing.
            config, model_card_kwargs: As for :meth:`save_pretrained`.

        The other arguments are those of ``huggingface_hub.ModelHubMixin.push_to_hub``.

        Returns:
            The address of the commit.

        Raises:
            ModuleNotFoundError: ``huggingface_hub`` is not installed.
        """
        import shutil
        import tempfile

        hub = _hub("push_to_hub()")
        api = hub.HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            if api.file_exists(repo_id, _CARD, revision=branch):
                card = hub.hf_hub_download(repo_id, _CARD, revision=branch, token=token)
                shutil.copyfile(card, os.path.join(folder, _CARD))
            self._write_folder(folder, repo_id, config, model_card_kwargs)
            return api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
                allow_patterns=allow_patterns,
                ignore_patterns=ignore_patterns,
                delete_patterns=delete_patterns,
            )

    def _write_folder(self, folder, name, extra, card_options):
        import json

        from ._card import card_text, checked_options, is_own_card

        config, weights, card = (os.path.join(folder, file) for file in (_CONFIG, _WEIGHTS, _CARD))
        extra, card_options = json.loads(json.dumps(extra or {})), checked_options(card_options or {})
        taken = sorted(extra.keys() & _OWN)
        if taken:
            raise InvalidArgument(f"config must not have the entry '{taken[0]}', which Penstock writes: choose another name")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise IoFailure(f"cannot make the folder '{folder}': {error.strerror}") from error
        for file in (config, weights, card):
            if os.path.exists(file) and not os.path.isfile(file):
                raise IoFailure(f"'{file}' is no regular file: remove it, or give another folder")
        if os.path.exists(config):
            _read_config(config)  # refuses to replace that of another library
        self.save(weights)  # type: ignore[attr-defined]
        content = {
            "model_type": "penstock",
            "architectures": ["penstock.Model", "penstock.torch.SequenceModel"],  # that read it
            "penstock_version": _core.system_info()["version"],
            **_describe(weights),
        }
        _write(config, json.dumps({**content, **extra}, indent=2) + "\n")
        if not os.path.exists(card) or is_own_card(card):
            _write(card, card_text(content, name, card_options))
