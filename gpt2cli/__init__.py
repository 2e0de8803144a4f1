"""A command-line text generator for GPT-2 that shows its work.

From Python, with the same model, loop and records as the commands:

    model = gpt2cli.load("tinystories")
    for step in model.generate("Once upon a time", gpt2cli.SamplingOptions.of(top_k=40), seed=1):
        print(step.delta, end="")
    print(model.inspect("Once upon a").candidates[0].token.text)

Importing this package is light; `load` brings in torch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpt2cli.errors import Gpt2cliError
from gpt2cli.records import Completion, GenerationOptions, Row, SamplingOptions, Step

if TYPE_CHECKING:
    from gpt2cli.loading import LoadedModel

__version__ = "0.1.0"
__all__ = ["Completion", "GenerationOptions", "Gpt2cliError", "Row", "SamplingOptions", "Step", "load"]


def load(
    name: str = "tinystories",
    *,
    backend: str = "native",
    device: str = "auto",
    dtype: str = "float32",
    threads: int | None = None,
    on_fetch: Callable[[str], None] | None = None,
) -> "LoadedModel":
    """A model ready to use, by bundled name, folder or hub id; the other settings as the options of the same names.

    on_fetch: told what is about to be fetched from the hub; progress bars are shown only where it is given.
    Raises Gpt2cliError, with a message for the user, where it cannot be found, read, or run there.
    """
    import torch

    from gpt2cli.checkpoint import find_folder
    from gpt2cli.loading import load_folder

    if threads is not None:
        torch.set_num_threads(threads)
    folder = find_folder(name, on_fetch)
    return load_folder(folder, name, backend=backend, device=device, dtype=dtype)
