"""logits → a file, a slice of rows at a time: the whole [T, V] never exists in memory."""

import json
import math
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from gpt2cli.files import replacing
from gpt2cli.protocol import LanguageModel
from gpt2cli.scoring import hidden_slices

Part = NDArray[np.float32] | NDArray[np.int64]


@dataclass(frozen=True)
class StreamedArray:
    """An array of a known shape, given in parts along its first axis. dtype: numpy's name."""

    shape: tuple[int, ...]
    dtype: str
    parts: Iterable[Part]


def save_logits(path: Path, model: LanguageModel, token_ids: list[int], stride: int) -> None:
    """token_ids [T] int64, hidden_states [T, n_embd] and logits [T, V] float32, as npz or safetensors by the name.

    Raises FileError where the file cannot be written; what was there before then stays.
    """
    hidden = [part.states for part in hidden_slices(model, token_ids, stride)]
    seq_len, n_embd = len(token_ids), hidden[0].shape[1]
    arrays = {
        "token_ids": StreamedArray((seq_len,), "int64", [np.array(token_ids, dtype=np.int64)]),
        "hidden_states": StreamedArray((seq_len, n_embd), "float32", (h.float().cpu().numpy() for h in hidden)),
        "logits": StreamedArray((seq_len, model.vocab_size), "float32", (model.logits(h).numpy() for h in hidden)),
    }
    with replacing(path) as file:
        (write_npz if path.suffix.lower() == ".npz" else write_safetensors)(file, arrays)


def write_npz(file: IO[bytes], arrays: Mapping[str, StreamedArray]) -> None:
    """numpy's archive: a zip, uncompressed, with one .npy in it for each array."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            header = {"descr": np.dtype(array.dtype).str, "fortran_order": False, "shape": array.shape}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for part in array.parts:
                    member.write(part.tobytes())


def write_safetensors(file: IO[bytes], arrays: Mapping[str, StreamedArray]) -> None:
    """The length of a JSON header, the header, and the data in its order, all little-endian."""
    header, offset = {}, 0
    for name, array in arrays.items():
        end = offset + math.prod(array.shape) * np.dtype(array.dtype).itemsize
        kind = {"int64": "I64", "float32": "F32"}[array.dtype]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        for part in array.parts:
            file.write(part.astype(np.dtype(array.dtype).newbyteorder("<")).tobytes())
