"""The program: the command gpt2cli, and python -m gpt2cli."""

import signal


def main() -> None:
    # Until cli.main listens, an interrupt would be a traceback out of some import.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpt2cli.cli import main

    main()


if __name__ == "__main__":
    main()
