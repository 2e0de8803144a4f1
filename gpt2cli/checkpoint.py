"""A model name → the folder that holds it → its config and weights.

A name is the bundled model, a folder in Hugging Face layout, or an id on the Hugging Face hub. Only safetensors
are opened; a pickle can run code, so none is ever read.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from gpt2cli.errors import CheckpointError

BUNDLED = "tinystories"
CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "vocab.txt")
TOKENIZER_SETTINGS = ("added_tokens.json", "tokenizer_config.json", "special_tokens_map.json")
MASK_BUFFERS = (".attn.bias", ".attn.masked_bias")  # of old checkpoints; they hold no weights
HUB_TIMEOUT = 5.0  # seconds without an answer from the hub


@dataclass(frozen=True)
class OfficialModel:
    """One of the models that OpenAI or Hugging Face published as GPT-2, under its short name."""

    repo_id: str
    parameters: int
    download_megabytes: int


OFFICIAL = {
    "gpt2": OfficialModel("openai-community/gpt2", 124_439_808, 548),
    "gpt2-medium": OfficialModel("openai-community/gpt2-medium", 354_823_168, 1520),
    "gpt2-large": OfficialModel("openai-community/gpt2-large", 774_030_080, 3247),
    "gpt2-xl": OfficialModel("openai-community/gpt2-xl", 1_557_611_200, 6432),
    "distilgpt2": OfficialModel("distilbert/distilgpt2", 81_912_576, 353),
}
OFFICIAL_IDS = OFFICIAL.keys() | {model.repo_id for model in OFFICIAL.values()}


@dataclass(frozen=True)
class KnownModel:
    """A model that can be named. parameters, size (bytes): None where the files are not here to tell."""

    name: str
    repo_id: str | None
    parameters: int | None
    size: int | None
    here: bool


def list_models() -> list[KnownModel]:
    """The bundled model, the official ones, and every other GPT-2 in the Hugging Face cache."""
    bundled = find_folder(BUNDLED)
    models = [KnownModel(BUNDLED, None, *_measure(bundled), here=True)]
    for name, official in OFFICIAL.items():
        size = official.download_megabytes * 10**6
        here = _cached(name) is not None
        models.append(KnownModel(name, official.repo_id, official.parameters, size, here))
    for repo_id in sorted(_cached_repo_ids() - OFFICIAL_IDS):
        folder = cached_folder(repo_id)
        if folder is not None and _is_gpt2(folder):
            models.append(KnownModel(repo_id, repo_id, *_measure(folder), here=True))
    return models


def _is_gpt2(folder: Path) -> bool:
    try:
        return read_config(folder).get("model_type") == "gpt2"
    except CheckpointError:
        return False


def _measure(folder: Path) -> tuple[int | None, int | None]:
    """(parameters, bytes) of a folder's weights; a tensor counts once, mask buffers not at all."""
    parameters = size = 0
    try:
        for path in _weight_files(folder):
            size += path.stat().st_size
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    if not name.endswith(MASK_BUFFERS):
                        parameters += math.prod(file.get_slice(name).get_shape())
    except (OSError, SafetensorError, CheckpointError):
        return None, None
    return parameters, size


def _cached_repo_ids() -> set[str]:
    from huggingface_hub import constants

    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return {repo_id for path in folders if _is_hub_id(repo_id := path.name[len("models--") :].replace("--", "/"))}


def find_folder(name: str, on_fetch: Callable[[str], None] | None = None) -> Path:
    """The folder of a model: bundled, local, or fetched into the Hugging Face cache.

    A folder, and a hub id that is cached, never cause a connection. Raises CheckpointError otherwise.
    on_fetch: told what is about to be fetched; progress bars are shown only where it is given.
    """
    if name == BUNDLED:
        return Path(str(files("gpt2cli") / "data" / BUNDLED))
    try:
        name.encode()
    except UnicodeEncodeError:  # neither records nor the reader of safetensors can spell it
        raise CheckpointError(f"the name of the model folder {name!r} is not UTF-8; rename it") from None
    try:
        folder = Path(os.path.expanduser(name))
        if name and folder.is_dir():
            return folder
        if folder.is_file():
            raise CheckpointError(f"{name} is a file; name the folder that holds it: --model {folder.parent}")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot look at the model folder {name!r}: {error}") from None
    if name.startswith(("/", ".", "~")) or not _is_hub_id(name):
        raise CheckpointError(
            f"no model {name!r}: there is no such folder, and it is not a hub id such as gpt2 or user/model; "
            "`gpt2cli models` lists what can be named"
        )
    return _cached(name) or _fetch(name, on_fetch)


def _repo_id(name: str) -> str:
    return OFFICIAL[name].repo_id if name in OFFICIAL else name


def _cached(name: str) -> Path | None:
    """cached_folder of a model's name. Before the hub had user names, gpt2 was cached under its short one."""
    return cached_folder(_repo_id(name)) or (cached_folder(name) if name in OFFICIAL else None)


def cached_folder(repo_id: str) -> Path | None:
    """The folder of a hub model in the Hugging Face cache, if all that it needs is there."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(repo_id, CONFIG)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    # Other programs fetch the tokenizer apart from the weights. A model of which nobody knows whether it has one of
    # its own must not be run with GPT-2's; the hub's client leaves a listing of what it has fetched completely.
    listing = folder.parent.parent / "trees" / f"{folder.name}.json"
    if repo_id not in OFFICIAL_IDS and not listing.exists() and not has_tokenizer(folder):
        return None
    try:
        return folder if all(path.exists() for path in _weight_files(folder)) else None
    except CheckpointError:
        return None


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder brings a tokenizer; GPT-2's own serves one that does not."""
    return any((folder / name).exists() for name in TOKENIZER_FILES)


def _is_hub_id(name: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def _fetch(name: str, on_fetch: Callable[[str], None] | None) -> Path:
    """Download a model's config, tokenizer and safetensors into the cache that all Hugging Face programs share."""
    import huggingface_hub as hub
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    repo_id, endpoint = _repo_id(name), hub.constants.ENDPOINT
    hub.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if on_fetch is None:
        hub.utils.disable_progress_bars()  # type: ignore[attr-defined]
    try:
        siblings = hub.HfApi().model_info(repo_id, timeout=HUB_TIMEOUT).siblings or []
        there = {sibling.rfilename for sibling in siblings}
        if WEIGHTS not in there and INDEX not in there:
            raise CheckpointError(
                f"{repo_id} has no {WEIGHTS}; other weight files can run code when opened, so they are not fetched"
            )
        if on_fetch is not None:
            on_fetch(f"fetching {repo_id} from {endpoint}")
        # The weights last, so that a folder with weights in it has all the rest.
        hub.snapshot_download(
            repo_id, allow_patterns=[CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES, *TOKENIZER_SETTINGS]
        )
        weights = [WEIGHTS] if WEIGHTS in there else [INDEX, "model-*.safetensors"]
        return Path(hub.snapshot_download(repo_id, allow_patterns=weights))
    except GatedRepoError:
        raise CheckpointError(
            f"{repo_id} asks for its terms to be accepted on {endpoint}/{repo_id}; "
            "accept them there, then log in here with `hf auth login`"
        ) from None
    except RepositoryNotFoundError:
        raise CheckpointError(
            f"no model {name!r}: there is no such folder, and {endpoint} has no public model {repo_id}; "
            "`gpt2cli models` lists what can be named"
        ) from None
    except CheckpointError:
        raise
    except OfflineModeIsEnabled:
        reason = "HF_HUB_OFFLINE is set"
    # The hub's client raises the errors of its HTTP library, which differs from version to version.
    except Exception as error:
        reason = f"it could not be fetched from {endpoint} ({str(error) or type(error).__name__})"
    raise CheckpointError(
        f"no model {name!r} here: there is no folder of that name, {repo_id} is not in the cache "
        f"({hub.constants.HF_HUB_CACHE}), and {reason}. Connect and try again, name a folder that holds "
        f"{CONFIG} and {WEIGHTS}, or use the bundled --model {BUNDLED}"
    )


def read_config(folder: Path) -> dict[str, Any]:
    """config.json as a dict; the eos_token_id of generation_config.json, where there is one, replaces its own."""
    if not (folder / CONFIG).exists():
        raise CheckpointError(f"{folder} has no {CONFIG}, so it is not a model folder")
    config = _read_json_object(folder / CONFIG)
    if (folder / GENERATION_CONFIG).exists():
        generation = _read_json_object(folder / GENERATION_CONFIG)
        if generation.get("eos_token_id") is not None:
            config["eos_token_id"] = generation["eos_token_id"]
    return config


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors, mapped from disk. Raises CheckpointError, naming the file."""
    weights: dict[str, Tensor] = {}
    for path in _weight_files(folder):
        _refuse_special(path)
        try:
            with open(path, "rb"):  # the reader of safetensors calls every file missing that it cannot open
                weights.update(load_file(path))
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing; the index names it") from None
        except SafetensorError as error:
            raise CheckpointError(f"{path} is incomplete or not a safetensors file ({error}); fetch it again") from None
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"cannot read {path}: {error}") from None
    return weights


class StoredWeights(Mapping[str, Tensor]):
    """Tensors of a folder, by the names of `fit_weights`; each is mapped from disk anew whenever it is asked for.

    So one that is copied into another form leaves no pages of the file behind in memory.
    """

    def __init__(self, folder: Path, names: Iterable[str], prepare: Callable[[str, Tensor], Tensor]) -> None:
        """prepare: what is done to the tensor of a name. The folder is one that `read_weights` has read."""
        self._prepare = prepare
        places = {}
        for path in _weight_files(folder):
            with safe_open(path, framework="pt") as file:
                places.update({stored.removeprefix("transformer."): (path, stored) for stored in file.keys()})  # noqa: SIM118
        self._places = {name: places[name] for name in names}

    def __getitem__(self, name: str) -> Tensor:
        path, stored = self._places[name]
        with safe_open(path, framework="pt") as file:
            return self._prepare(name, file.get_tensor(stored))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def fit_weights(
    weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], *, tied: bool
) -> dict[str, Tensor]:
    """The tensors that the model needs, under the names of `shapes`. Raises CheckpointError where they do not fit.

    Dropped are: the `transformer.` prefix, the causal mask buffers of old checkpoints, and an `lm_head.weight` that
    equals the embedding. One that differs is kept, as transformers does, whatever the config says.
    """
    found = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    _refuse("holds twice, with and without `transformer.`:", [n for n in weights if f"transformer.{n}" in weights])
    found = {n: t for n, t in found.items() if not n.endswith(MASK_BUFFERS)}
    expected = dict(shapes)
    if not tied or "lm_head.weight" in found:
        expected["lm_head.weight"] = shapes["wte.weight"]
    _refuse("lacks", sorted(expected.keys() - found.keys()))
    _refuse("has unknown", sorted(found.keys() - expected.keys()))
    _refuse(
        "does not fit its config:",
        [f"{n} is {list(found[n].shape)}, not {list(s)}" for n, s in expected.items() if found[n].shape != s],
    )
    _refuse(
        "holds what is no float:",
        [f"{n} is {tensor.dtype}" for n, tensor in found.items() if not tensor.is_floating_point()],
    )
    if "lm_head.weight" in found and tied and found["lm_head.weight"].equal(found["wte.weight"]):
        del found["lm_head.weight"]
    return found


def _refuse(what: str, names: list[str]) -> None:
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise CheckpointError(f"the checkpoint {what} {', '.join(names[:5])}{more}")


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / INDEX).exists():
        weight_map = _read_json_object(folder / INDEX).get("weight_map")
        names = list(weight_map.values()) if isinstance(weight_map, dict) else []
        if not names or not all(isinstance(n, str) and n == Path(n).name and n.endswith(".safetensors") for n in names):
            raise CheckpointError(f"{folder / INDEX} does not map tensors to safetensors files of its own folder")
        return [folder / name for name in sorted(set(names))]
    pickles = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for p in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{folder} has no {WEIGHTS}, only {pickles[0]}, which can run code when opened and is not read; convert it "
            "where you trust it: transformers' from_pretrained, then save_pretrained, writes safetensors"
        )
    raise CheckpointError(f"{folder} has no {WEIGHTS}")


def _refuse_special(path: Path) -> None:
    """A pipe would wait for ever, and a device may never end."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"cannot read {path}: it is no file")


def _read_json_object(path: Path) -> dict[str, Any]:
    _refuse_special(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return data
