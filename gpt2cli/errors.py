"""What a user can cause and can mend. Every message says what to do instead."""


class Gpt2cliError(Exception):
    """Base of all errors whose message is meant for the user; the program ends with exit code 1."""


class PromptError(Gpt2cliError):
    """The prompt text cannot be used: not UTF-8, unreadable, or longer than the model's context."""


class TokenizerError(Gpt2cliError):
    """The tokenizer files cannot be read, or describe a tokenizer that is not byte-level BPE."""


class CheckpointError(Gpt2cliError):
    """The model cannot be found, fetched, read, or does not fit its own config."""


class DeviceError(Gpt2cliError):
    """The device is absent, or cannot compute in the dtype that was asked for."""


class LogitsError(Gpt2cliError):
    """A row of logits from which no token can be chosen."""


class FileError(Gpt2cliError):
    """A file that was asked for cannot be written."""
