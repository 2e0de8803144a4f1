"""What generate and inspect-logits do alike: read the prompt, load the model, turn the one into the other's ids."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

import gpt2cli
from gpt2cli.options import DEFAULT_MODEL, ModelChoice, Talk
from gpt2cli.output import note, progress, write_error
from gpt2cli.prompt import PromptSource, has_source, read_prompt

if TYPE_CHECKING:
    from gpt2cli.loading import LoadedModel


@dataclass(frozen=True)
class Session:
    """A loaded model and the prompt it is to continue."""

    loaded: "LoadedModel"
    prompt: str
    prompt_token_ids: list[int]


def open_session(source: PromptSource, choice: ModelChoice, talk: Talk, *, any_length: bool = False) -> Session:
    """Prompt first, so that a mistake in it is told before anything heavy is loaded.

    any_length: a text longer than the model's context is no mistake.
    """
    if not has_source(source):
        raise click.UsageError(
            'no prompt. Give one as an argument: gpt2cli generate "Once upon a time"; '
            "from a file: --file story.txt; or through a pipe: echo Once upon a time | gpt2cli generate"
        )
    # The one note that is not only for terminals: a script that waits for a silent pipe must be able to say so.
    prompt = read_prompt(source, lambda message: None if talk.quiet else write_error(f"gpt2cli: {message}\n"))
    if prompt.endswith(" "):
        note("the prompt ends in a space, which becomes a token of its own; most words bring their space along", talk)
    loaded = load_model(choice, talk)
    token_ids = loaded.prompt_token_ids(
        prompt,
        special_tokens=source.special_tokens,
        bos=source.bos,
        truncate=source.truncate,
        any_length=any_length and not source.truncate,
    )
    if source.truncate:
        all_tokens = len(loaded.tokenizer.encode(prompt, special_tokens=source.special_tokens))
        if len(token_ids) < all_tokens:
            note(f"the prompt was truncated from {all_tokens} to its last {len(token_ids)} tokens", talk)
    return Session(loaded, prompt, token_ids)


def draw_seed(what: str, talk: Talk) -> int:
    """A seed for a draw that was given none, and how to have the same `what` again."""
    import secrets

    seed = secrets.randbelow(2**31)
    note(f"seed {seed}; the same {what} again with --seed {seed}", talk)
    return seed


def load_model(choice: ModelChoice, talk: Talk) -> "LoadedModel":
    if choice.name == DEFAULT_MODEL:
        note(f"model {DEFAULT_MODEL}, a small story teller bundled with this program; for GPT-2 add -m gpt2", talk)
    with progress(f"loading {choice.name}", talk) as shown:

        def on_fetch(message: str) -> None:
            """Progress bars take the place of the spinner."""
            if shown:
                shown.stop()
            note(message, talk)

        return gpt2cli.load(
            choice.name,
            backend=choice.backend,
            device=choice.device,
            dtype=choice.dtype,
            threads=choice.threads,
            on_fetch=on_fetch if shown else None,
        )
