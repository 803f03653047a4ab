"""Whether completions heal right with a tokenizer, or it is refused by name. Anything else is wrong.

    python -m benchmarks.measures.tokenizers.tokenizer_check [NAME ...]

checks all tokenizers, or those whose names contain one of the given ones, and prints a line for each.
"""

import hashlib
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.corpora.languages import load_sources
from benchmarks.corpora.tokenizers.packaged_tokenizers import PACKAGED_TOKENIZERS, find_missing
from benchmarks.corpora.tokenizers.tokenizer_kinds import TOKENIZER_KINDS, describe_kind, write_kind
from benchmarks.corpora.tokenizers.tokenizer_texts import draw_texts, insert_pieces
from benchmarks.measures.tokenizers.tokenizer_judge import (
    Subject,
    find_added_texts,
    find_control_texts,
    find_cut_defect,
    find_start_defect,
    find_text_defect,
    heal,
    is_text,
    load_subject,
)
from inference.errors import ModelError

RIGHT, REFUSED, WRONG = "right", "refused", "wrong"

_NUM_CUTS = 3_000
_NUM_WORKERS = 2
_CUTS_PER_TEXT = 6
_DEFAULT_MODEL = Path("models/default")
_NUM_SPARE_TEXTS = 300  # texts with control tokens are not used
_SHOWN_CHARS = 24


@dataclass(frozen=True, slots=True)
class TokenizerRow:
    """The outcome for one tokenizer."""

    name: str
    source: str  # the parts of a tokenizer that is built; the package of a real one
    outcome: str  # "right", "refused" or "wrong"
    reason: str  # the words of the refusal, or the number of defects and the first one; empty if right
    num_cuts: int
    mean_healed_bytes: float | None


@dataclass(frozen=True, slots=True)
class TokenizerFolder:
    """A tokenizer to check."""

    name: str
    source: str
    folder: Path  # as a model folder, with `tokenizer.json`


def check_tokenizers(
    progress: Callable[[TokenizerRow], None] | None = None,
    num_cuts: int = _NUM_CUTS,
    names: Sequence[str] = (),
    num_workers: int = _NUM_WORKERS,
) -> list[TokenizerRow]:
    """A row for every tokenizer that is built, and for every packaged one that has been downloaded.

    `progress` is called with each row. `names`: check only tokenizers whose names contain one of these.
    `benchmarks.corpora.tokenizers.packaged_tokenizers.find_missing` lists the packaged tokenizers that are not there.
    """
    sources = [source.texts for source in load_sources(seed=0)]
    texts = draw_texts(sources, num_cuts // _CUTS_PER_TEXT + _NUM_SPARE_TEXTS, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        folders = [each for each in _find_folders(Path(folder)) if any(name in each.name for name in names or [""])]
        rows = []
        for row in _iter_rows(folders, texts, num_cuts, num_workers):
            rows.append(row)
            if progress is not None:
                progress(row)
    return rows


def _iter_rows(
    folders: Sequence[TokenizerFolder], texts: Sequence[str], num_cuts: int, num_workers: int
) -> Iterator[TokenizerRow]:
    """The rows, in order. Tokenizers that differ only in their control tokens are checked once."""
    digests = [_digest(found.folder) for found in folders]
    distinct = dict(zip(reversed(digests), reversed(folders), strict=True))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_workers, context) as workers:
        futures = {
            digest: workers.submit(check_tokenizer, distinct[digest], texts, num_cuts)
            for digest in dict.fromkeys(digests)
        }
        for found, digest in zip(folders, digests, strict=True):
            yield replace(futures[digest].result(), name=found.name, source=found.source)


def check_tokenizer(found: TokenizerFolder, texts: Sequence[str], num_cuts: int) -> TokenizerRow:
    """Checks one tokenizer with cuts of `texts`."""
    name, source = found.name, found.source
    try:
        subject = load_subject(found.folder)
    except ModelError as error:
        message = str(error)
        outcome = REFUSED if message and "\n" not in message else WRONG
        return TokenizerRow(name, source, outcome, _shorten_paths(message, found.folder), 0, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # when the code of the tokenizers library panics, it raises a BaseException
        return TokenizerRow(name, source, WRONG, f"loading raised {type(error).__name__}: {error}", 0, None)
    return check_subject(name, source, subject, texts, num_cuts)


def check_subject(name: str, source: str, subject: Subject, texts: Sequence[str], num_cuts: int) -> TokenizerRow:
    """Checks a tokenizer that has been loaded."""
    rng = random.Random(name)
    defects = [find_start_defect(subject)]
    num_healed_bytes: list[int] = []
    num_done = 0
    for text in _iter_usable_texts(subject, texts, rng):
        if num_done == num_cuts:
            break
        ids = tuple(subject.oracle.encode(text, add_special_tokens=False).ids)
        defects.append(find_text_defect(subject, text, ids))
        cuts = [rng.randrange(1, len(text)) for _ in range(min(_CUTS_PER_TEXT, num_cuts - num_done))]
        defects += [_check_cut(subject, text, cut, ids, num_healed_bytes) for cut in cuts]
        num_done += len(cuts)
    if num_done < num_cuts:
        defects.append("there are too few texts without its control tokens")
    found = [defect for defect in defects if defect is not None]
    reason = f"{len(found):,} defects in {num_done:,} cuts; {found[0]}" if found else ""
    mean_healed_bytes = statistics.fmean(num_healed_bytes) if num_healed_bytes else None
    return TokenizerRow(name, source, WRONG if found else RIGHT, reason, num_done, mean_healed_bytes)


def _check_cut(subject: Subject, text: str, cut: int, ids: tuple[int, ...], num_healed_bytes: list[int]) -> str | None:
    try:
        healed = heal(subject, text[:cut])
        num_healed_bytes.append(len(healed.healed))
        defect = find_cut_defect(subject, healed, text[:cut], text, ids)
    except Exception as error:  # whatever the product raises here is a defect
        defect = f"{type(error).__name__}: {error}"
    shown = f"{text[max(cut - _SHOWN_CHARS, 0) : cut]!r} before {text[cut : cut + _SHOWN_CHARS]!r}"
    return None if defect is None else f"{defect}: {shown}"


def _iter_usable_texts(subject: Subject, texts: Sequence[str], rng: random.Random) -> Iterator[str]:
    """The texts without control tokens, some of them with added tokens that are text."""
    controls, pieces = find_control_texts(subject.oracle), find_added_texts(subject.oracle)
    for text in texts:
        with_pieces = insert_pieces(text, pieces, rng)
        if len(with_pieces) > 1 and not any(control in with_pieces for control in controls):
            yield with_pieces


def _find_folders(folder: Path) -> Iterator[TokenizerFolder]:
    """The tokenizers to check. Those that are built are written into `folder`."""
    yield TokenizerFolder("default", str(_DEFAULT_MODEL), _DEFAULT_MODEL)
    for kind in TOKENIZER_KINDS:
        yield TokenizerFolder(kind.name, describe_kind(kind), write_kind(kind, folder / kind.name))
    for tokenizer in PACKAGED_TOKENIZERS:
        if tokenizer.is_fetched:
            yield TokenizerFolder(tokenizer.name, tokenizer.source, tokenizer.folder)


def _digest(folder: Path) -> str:
    """The same for tokenizers that differ only in their control tokens, of which many packages have variants."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return f"not a tokenizer.json: {folder}"
    spec = json.loads(path.read_bytes())
    added = [token for token in spec["added_tokens"] if is_text(token["content"], token["special"])]
    parts = [spec["normalizer"], spec["pre_tokenizer"], spec["post_processor"], spec["decoder"], spec["model"], added]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _shorten_paths(message: str, folder: Path) -> str:
    return message.replace(f"{folder}/", "").replace(str(folder), "the folder")


def _print_row(row: TokenizerRow) -> None:
    healed = "" if row.mean_healed_bytes is None else f"{row.mean_healed_bytes:.1f} bytes"
    print(f"{row.outcome:8}{row.name:32}{row.num_cuts:6,} {healed:12}{row.reason}", flush=True)


if __name__ == "__main__":
    for missing in find_missing():
        print(f"not downloaded: {missing.source}")
    check_tokenizers(_print_row, names=sys.argv[1:])
