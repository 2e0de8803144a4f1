"""Several samples of one prompt: it is run once, and the samples share the passes of the model."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import Tensor

from gpt2cli.batch.engine import Batch, Event, Request
from gpt2cli.errors import LogitsError
from gpt2cli.generation import last_hidden_state
from gpt2cli.protocol import Cache, LanguageModel, TextTokenizer
from gpt2cli.records import Completion, Step

IN_FLIGHT = 16


class Samples:
    """One iterator of events for each sample in turn. Read one to its end before the next: that is made meanwhile.

    Where the model's rows stand alone and the context does not slide, each is, to the last bit, what `generate` makes.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: TextTokenizer,
        request: Request,
        count: int,
        *,
        should_stop: Callable[[], bool],
        on_prompt: Callable[[int], None],
    ) -> None:
        """request: of any sample. should_stop, on_prompt: as in `generate`."""
        self._model = model
        self._request = request
        self._count = count
        self._should_stop = should_stop
        self._on_prompt = on_prompt
        self._batch: Batch[int] = Batch(model, tokenizer, IN_FLIGHT)
        self._prompt: tuple[Cache, Tensor] | None = None  # its cache, and its last row
        self._entered = 0
        self._made: defaultdict[int, deque[Event]] = defaultdict(deque)

    def __iter__(self) -> Iterator[Iterator[Step | Completion]]:
        for sample in range(self._count):
            yield self._events(sample)

    def _events(self, sample: int) -> Iterator[Step | Completion]:
        while True:
            while not self._made[sample]:
                self._turn()
            event = self._made[sample].popleft()
            if isinstance(event, LogitsError):
                raise event
            if isinstance(event, Completion):
                del self._made[sample]
                yield event
                return
            yield event

    def _turn(self) -> None:
        if self._prompt is None:
            cache, token_ids = self._model.new_cache(), self._request.prompt_token_ids
            self._prompt = cache, self._model.logits(last_hidden_state(self._model, token_ids, cache, self._on_prompt))
        cache, row = self._prompt
        while not self._batch.is_full and self._entered < self._count:
            self._batch.add(self._entered, replace(self._request, sample=self._entered), (cache.copy(), row))
            self._entered += 1
        if self._should_stop():
            self._batch.interrupt()
        for sample, event in self._batch.turn():
            self._made[sample].append(event)
