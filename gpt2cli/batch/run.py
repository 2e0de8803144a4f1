"""Rows of the input → texts that share passes of the model → records of the output."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt2cli.batch.engine import Batch, Request
from gpt2cli.batch.input import MAX_SEED, BatchRow, Line, LineReader, RowError, parse_row
from gpt2cli.batch.output import BatchOutput
from gpt2cli.errors import Gpt2cliError, PromptError
from gpt2cli.loading import LoadedModel
from gpt2cli.records import Completion, GenerationOptions, SamplingOptions, Step
from gpt2cli.serialize import JsonObject, Run, error_json, json_line, result_json

# What a record says of how it was made, and must say again when the run is continued.
ORIGIN = ("id", "model", "backend", "dtype", "device", "prompt", "prompt_token_ids", "sampling", "seed")


class BatchError(Gpt2cliError):
    """Rows failed; or one did, and the run was to stop at it."""


@dataclass(frozen=True)
class Work:
    """A row that can be run."""

    request: Request
    run: Run


@dataclass(frozen=True)
class Row:
    """A row of the input, counted from 0, and what is to be done: work, or the message that says why there is none."""

    number: int
    line: Line
    id: str | int | None
    work: Work | str
    steps: list[Step] = field(default_factory=list)  # as they are made, if it asks for them

    @property
    def with_steps(self) -> bool:
        return isinstance(self.work, Work) and self.work.request.options.details

    def record(self, outcome: Completion | str) -> JsonObject:
        """outcome: the text, or why there is none."""
        if isinstance(outcome, str):
            return error_json(self.id, self.line.number, outcome)
        assert isinstance(self.work, Work)
        result = result_json(self.work.run, outcome, self.steps if self.with_steps else None)
        return {"type": result["type"], "schema": result["schema"], "id": self.id, **result}


class BatchRun:
    """One run over an input. rows, failed: how many have ended, and how many of them without a text."""

    def __init__(
        self,
        loaded: LoadedModel,
        reader: LineReader,
        output: BatchOutput,
        settings: Mapping[str, Any],
        *,
        plain: bool,
        strict: bool,
    ) -> None:
        """settings: the command's options by name, for the rows that do not bring their own. plain, strict: of them."""
        self._loaded = loaded
        self._reader = reader
        self._output = output
        self._settings = settings
        self._plain = plain
        self._strict = strict
        self._drawn_seed: int | None = None
        self._stopped_by: list[tuple[int, str]] = []  # line and message of rows that failed, if one is to stop the run
        self._next_number = 0
        self.rows = 0
        self.failed = 0
        self.bytes_done = 0

    def resume(self) -> None:
        """Pass over the rows that the output holds. Raises OutputError where they are not of this input and command."""
        for number, record in self._output.finished():
            row = self._next_row(lambda: True, record)
            if row is None:
                raise self._output.refusal(number, "has no row in the input")
            self._check_finished(row, record)
            failed = record["type"] == "error"
            if failed and self._strict:
                raise BatchError(f"line {row.line.number} of the input: {record['error']}")
            self._count(row, failed=failed)

    def run(self, batch_size: int, should_stop: Callable[[], bool], on_turn: Callable[[int], None]) -> None:
        """Rows enter as others end. on_turn: told how many tokens have been made. Raises BatchError (strict)."""
        batch: Batch[Row] = Batch(self._loaded.model, self._loaded.tokenizer, batch_size)
        while not should_stop():
            self._fill(batch, should_stop)
            if batch.is_empty:
                break
            for row, event in batch.turn():
                if not isinstance(event, Step):
                    self._finish(row, event if isinstance(event, Completion) else str(event))
                elif row.with_steps:
                    row.steps.append(event)
            on_turn(batch.tokens_made)
        if self._stopped_by and not should_stop():
            raise BatchError("line {} of the input: {}".format(*min(self._stopped_by)))

    def _fill(self, batch: Batch[Row], should_stop: Callable[[], bool]) -> None:
        """Rows enter while there is room; texts in flight do not wait for an input that is slow."""
        while not (batch.is_full or self._output.is_behind or self._stopped_by or should_stop()):
            row = self._next_row(lambda: batch.is_empty and not should_stop())
            if row is None:
                return
            if isinstance(row.work, str):
                self._finish(row, row.work)
            else:
                batch.add(row, row.work.request)

    def _finish(self, row: Row, outcome: Completion | str) -> None:
        if isinstance(outcome, str) and self._strict:
            self._stopped_by.append((row.line.number, outcome))
            return
        self._output.put(row.number, json_line(row.record(outcome)))
        self._count(row, failed=isinstance(outcome, str))

    def _count(self, row: Row, *, failed: bool) -> None:
        self.rows += 1
        self.failed += failed
        self.bytes_done += row.line.end - row.line.start

    def _next_row(self, wait: Callable[[], bool], finished: Any = None) -> Row | None:
        """finished: the record that the output has of it already."""
        line = self._reader.read(wait)
        if line is None:
            return None
        number, row_id = self._next_number, None
        self._next_number += 1
        try:
            row = parse_row(line, plain=self._plain)
            row_id = row.id
            return Row(number, line, row_id, self._work(row, finished))
        except RowError as error:
            return Row(number, line, error.row_id, str(error))
        except PromptError as error:
            return Row(number, line, row_id, str(error))

    def _work(self, row: BatchRow, finished: Any) -> Work:
        """Raises PromptError where the row cannot be run."""
        values = {**self._settings, **row.settings}
        try:
            sampling = SamplingOptions.of(**{name: values[name] for name in SamplingOptions.NAMES})
        except ValueError as error:
            raise PromptError(str(error)) from None
        options = GenerationOptions(
            max_new_tokens=values["max_new_tokens"],
            stop=tuple(values["stop"]),
            eos_token_ids=frozenset() if values["ignore_eos"] else None,
            context_overflow=values["context_overflow"],
            details=values["show_logits"] > 0,
            candidates=values["show_logits"],
        )
        token_ids = self._loaded.prompt_token_ids(
            row.prompt, special_tokens=values["special_tokens"], bos=values["bos"], truncate=values["truncate"]
        )
        seed = row.settings.get("seed", self._settings["seed"])
        if seed is None and not sampling.greedy:
            seed = self._draw_seed(finished)
        model = self._loaded.model
        run = Run(
            model=model.name,
            backend=model.backend,
            dtype=model.dtype,
            device=model.device,
            prompt=row.prompt if isinstance(row.prompt, str) else self._loaded.tokenizer.decode(row.prompt),
            prompt_token_ids=token_ids,
            sampling=sampling,
            seed=seed,
        )
        return Work(Request(token_ids, sampling, self._loaded.with_eos(options), seed or 0), run)

    def _draw_seed(self, finished: Any) -> int:
        """One seed for all rows that need one and bring none; a run that is continued goes on with its own."""
        if self._drawn_seed is None:
            known = finished.get("seed") if isinstance(finished, dict) else None
            self._drawn_seed = known if type(known) is int and 0 <= known <= MAX_SEED else secrets.randbelow(2**31)
        return self._drawn_seed

    def _check_finished(self, row: Row, record: Any) -> None:
        """Raises OutputError unless this record can be what this run would have written for the row."""
        if not isinstance(record, dict) or record.get("type") not in ("result", "error"):
            raise self._output.refusal(row.number, "is no record of a batch")
        if record["type"] == "error":
            message = row.work if isinstance(row.work, str) else record.get("error")  # one of the model is not foreseen
            if not isinstance(message, str) or record != row.record(message):
                raise self._output.refusal(row.number, f"is not what line {row.line.number} of the input gives")
            return
        if isinstance(row.work, str):
            raise self._output.refusal(row.number, f"is a result, but line {row.line.number} of the input is bad")
        options = row.work.request.options
        expected = row.record(Completion(0, "", (), "length", ""))
        differing = [name for name in ORIGIN if record.get(name) != expected[name]]
        token_ids = record.get("token_ids")
        made = len(token_ids) if isinstance(token_ids, list) else options.max_new_tokens + 1
        if made > options.max_new_tokens or (record.get("finish_reason") == "length" and made < options.max_new_tokens):
            differing.append("max_new_tokens")
        if ("steps" in record) != options.details:
            differing.append("steps")
        if differing:
            raise self._output.refusal(row.number, f"has another {differing[0]} than this run would give it")
