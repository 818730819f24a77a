"""Tensors and JSON on disk: written whole or not at all, read without unpickling anything."""

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from gedikit.errors import StorageError

FORMAT = 1


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to disk, then move it into place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
    except OSError as error:
        raise _write_error(path, error) from error
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise _write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: _write_bytes(temporary, content))


def write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: _write_text(temporary, text))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], kind: str) -> None:
    """One safetensors file with `meta` as JSON in its header."""
    header = {"gedikit": json.dumps({"kind": kind, "format": FORMAT, **meta})}
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: safetensors.torch.save_file(whole, temporary, metadata=header))


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_tensors` wrote, or a sentence that says why not."""
    if not path.is_file():
        raise StorageError(f"there is no {kind} at {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not a {kind}: {error}") from error
    try:
        meta: dict[str, Any] = json.loads(header["gedikit"])
    except (KeyError, json.JSONDecodeError):
        raise StorageError(f"{path} was not written by gedikit") from None
    if meta.get("format", 0) > FORMAT:
        raise StorageError(
            f"{path} has format {meta['format']}, newer than the {FORMAT} this version reads: upgrade gedikit"
        )
    if meta.get("kind") != kind:
        raise StorageError(f"{path} holds a {meta.get('kind')}, not a {kind}")
    return tensors, meta


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write_error(path: Path, error: Exception) -> StorageError:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    full = full or "No space left" in str(error)
    why = "the disk is full" if full else (getattr(error, "strerror", None) or str(error))
    return StorageError(f"could not write {path}: {why}; what was there before is untouched")


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value
