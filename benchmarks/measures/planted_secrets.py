"""Known secrets in the neighbours of a file, where a declaration might carry them into what is told."""

import ast
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent

from benchmarks.measures.report import Figures
from tests.support.secret_forms import SECRETS, Secret, count_secret_bytes

_NUM_SECRETS = 500
_NUM_EACH = 10  # in a neighbour
_EXCLUDED = ("local_settings", "secrets_of_mine")
_PLACES: tuple[Callable[[Secret, int], str], ...] = (
    lambda secret, number: f"class Planted{number}:\n    def method_{number}(self) -> None: ...\n\n{_write(secret)}",
    lambda secret, number: f"def planted_{number}(value_{number}: str = {_quote(secret)}) -> str: ...\n",
    lambda secret, number: f"def planted_{number}() -> None:\n    '''{secret.text.strip()}'''\n",
    lambda secret, number: f"class Planted{number}:\n    '''Documented.\n\n    {secret.text.strip()}\n    '''\n",
    lambda secret, number: f"PLANTED_{number}: dict[str, str] = {{{_quote(secret)}: {_quote(secret)}}}\n",
)
Tell = Callable[[Path, str, str], str]


def measure_secrets(tell: Tell) -> Figures:
    """Tells a file that imports and uses all that its neighbours declare, of them and of excluded files.

    Raises RuntimeError if nothing of the neighbours is told: then nothing is known.
    """
    planted = [*itertools.islice(_iter_planted(), _NUM_SECRETS)]
    with tempfile.TemporaryDirectory(prefix="midtoken-") as name:
        root = Path(name).resolve()
        _plant(root, [text for _, text in planted])
        told = [each for path in sorted(root.glob("using_*.py")) for each in _tell_parts(tell, root, path)]
    figures = {
        "planted_secrets": len(planted),
        "secret_bytes_told": sum(count_secret_bytes(told, secret.secret.split("\n")) for secret, _ in planted),
        "excluded_bytes_told": count_secret_bytes(told, [f"excluded_{number}_name" for number in range(_NUM_EACH)], 12),
        "neighbours_told": sum("lanted" in each for each in told) / len(told),
    }
    return figures


def _iter_planted() -> Iterator[tuple[Secret, str]]:
    """Yields each secret in each place in turn, where the file stays Python."""
    short = [secret for secret in SECRETS if 8 <= len(secret.secret) < 300]
    for number, (place, secret) in enumerate((place, secret) for place in itertools.cycle(_PLACES) for secret in short):
        text = place(secret, number)
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        yield secret, text


def _write(secret: Secret) -> str:
    """The text in the body of the class."""
    return indent(secret.text, "    ")


def _quote(secret: Secret) -> str:
    return repr(secret.secret)


def _plant(root: Path, planted: list[str]) -> None:
    subprocess.run(["git", "init", "--quiet", root], check=True)
    (root / ".gitignore").write_text("".join(f"{name}.py\n" for name in _EXCLUDED))
    for name in _EXCLUDED:
        (root / f"{name}.py").write_text("".join(f"def excluded_{n}_name() -> None: ...\n" for n in range(_NUM_EACH)))
    imports = "".join(f"from {name} import excluded_0_name\n" for name in _EXCLUDED)
    for number in range(0, len(planted), _NUM_EACH):
        some = planted[number : number + _NUM_EACH]
        (root / f"neighbour_{number}.py").write_text("\n\n".join(some))
        names = [name for text in some for name in _list_names(text)]
        uses = "".join(f"use({name})\n" for name in names)
        (root / f"using_{number}.py").write_text(
            f"{imports}from neighbour_{number} import {', '.join(names)}\n\n{uses}"
        )


def _list_names(text: str) -> list[str]:
    definitions = (ast.FunctionDef, ast.ClassDef)
    first = ast.parse(text).body[0]
    return [first.name] if isinstance(first, definitions) else [text.partition(":")[0]]


def _tell_parts(tell: Tell, root: Path, path: Path) -> Iterator[str]:
    """What is told at the end of the imports, and at the end of the file."""
    text = path.read_text()
    for part in (text.partition("\n\n")[0] + "\n\n", text):
        yield tell(root, path.name, part)
