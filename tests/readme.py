"""The commands of README.md and what they print. Run as a script, it writes their present output into README.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PICTURE = ROOT / "examples" / "heat.svg"
PICTURED = (
    "Once upon a time, there was a little girl named Lily. She had a big red quasar. "
    "One day, it fell in love with a philosophy of zebras."
)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is printed below it.

    A command goes on in lines that begin with `> `, as in a shell.
    """
    parts = re.split(r"^\$ (.*(?:\n> .*)*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def shell(command: str) -> str:
    """What a reader of the README would see, in a terminal of 80 columns."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # An empty cache, so that `gpt2cli models` lists the same models everywhere.
    environment = os.environ | {"PATH": path, "COLUMNS": "80", "HF_HOME": os.devnull}
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("\n> ", "\n")],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.returncode in (0, 141), (command, ran.stderr)
    return ran.stdout


def draw(path: Path) -> None:
    """The picture of the README, made by the program itself."""
    shell(f'gpt2cli inspect-logits --heat --export {path} "{PICTURED}"')


def main() -> None:
    def rerun(match: re.Match[str]) -> str:
        return "```console\n" + "".join(f"$ {c}\n{shell(c)}" for c, _ in commands(match[1])) + "```"

    draw(PICTURE)
    README.write_text(BLOCK.sub(rerun, README.read_text()))


if __name__ == "__main__":
    main()
