"""What midtoken does with a published model, SmolLM2-135M-Instruct, in code that is newer than the model.

    python -m benchmarks.real [--short] [--only PART ...]

`benchmarks.corpora.real_model` gets the weights, and `benchmarks.corpora.projects` the files: Python, TypeScript and Go
of packages that were first published after the model. midtoken runs it in 8 bits on onnxruntime, with one thread;
llama-server and guidance run the same GGUF file, and transformers the same numbers in float32.

- identifiers: cursors in any name outside of imports, after one to eight typed characters, with the 1,200 characters
  before the cursor. Decoding is greedy. A completion is right if it begins with exactly the rest of the name.
  `exact` has figures after one, two and more typed characters, too: the fewer, the more of a name is asked for.
  Calibration compares the probability of its text, at the end of each token, with how often that stands there.
- typing: lines are typed with the 1,200 characters above them and no text below. Tab is pressed where all that is shown
  is right. midtoken shows what is as likely as the default `confidence`, with healing and without; llama-server shows
  the whole line. `shown_right_share` is that of cursors anywhere in other lines.
- others: a quarter of the same cursors, completed by guidance and by transformers with its token healing.
- jumps: from the first two keys after a jump into a file of 400 lines or more to ghost text, through the language
  server, as in `benchmarks.keystrokes`. The first deletes the end of a name, the second types a letter of that again.
- neovim: ghost text on the screen of a real Neovim; see `benchmarks.measures.neovim_typing`.
- times: the same requests as in `benchmarks.contestants`, in Python. Only these depend on what else the machine does.

A part that was ended goes on where it was, if nothing has changed; see `benchmarks.measures.checkpoint`.
"""

import asyncio
import math
import random
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from aiohttp import ClientSession

from benchmarks.baselines.contestants.line_protocol import Request
from benchmarks.baselines.servers import run_llama_server
from benchmarks.contestants import TIMES, Entry, compare, find_llama_cpp_python
from benchmarks.corpora.cuts import Cut, draw_cuts_in_identifiers, draw_visits
from benchmarks.corpora.projects import load_new_files
from benchmarks.corpora.real_model import REAL_FOLDER, REAL_GGUF, fetch_real_model
from benchmarks.corpora.typing import Key, KeyKind, Session
from benchmarks.keystrokes import KeyTime, play
from benchmarks.measures.checkpoint import measure_each
from benchmarks.measures.host import run_host
from benchmarks.measures.neovim_typing import measure_typing
from benchmarks.measures.report import (
    Figures,
    Measured,
    Row,
    Stamp,
    Target,
    Value,
    find_percent,
    find_percentile,
    run_parts,
)
from benchmarks.measures.typing_trial import Cursors, GhostText, Line, Trial, Typist, draw_lines
from benchmarks.typing import LlamaServer, parse_options
from inference.config import EngineConfig
from inference.protocol.completion import Healing
from lsp_server.settings import Settings
from midtoken import Completion, load
from midtoken.connection import open_connection

_LANGUAGES = {"py": "python", "ts": "typescript", "go": "go"}
_HEALINGS = (Healing.NONE, Healing.SINGLE, Healing.GREEDY, Healing.EXACT)
_NUM_IDENTIFIERS, _NUM_OTHERS, _NUM_LINES, _NUM_VISITS, _NUM_REPEATS = 400, 100, 30, 12, 3
_NUM_JUMPS, _NUM_LONG_LINES = 8, 400
_NUM_SHORT = 10  # files; and a cursor or a line of each language
_CONTEXT_CHARS, _MAX_TOKENS = 1200, 12
_GRAPHS = REAL_FOLDER.with_name("graphs")
_ENDS = (*" ().,:;=[]{}<>", '"', "'")  # of a name; what follows is not asked for
_CONFIG = EngineConfig(REAL_FOLDER, dtype="int8", graph_dir=_GRAPHS)  # with as many threads as it chooses
_SEED, _LINE_SEEDS = 1, (101, 102)
_OTHERS = ("guidance", "transformers_healing")

_TARGETS = [
    target
    for key, name in (("py", "Python"), ("ts", "TypeScript"), ("go", "Go"))
    for target in (
        Target(f"exact_{key}", f"identifiers completed correctly, exact, {name}", at_least=76),
        Target(f"exact_over_greedy_{key}", f"percent more than greedy, {name}", at_least=3),
        Target(f"exact_to_none_{key}", f"to those without healing, {name}", at_least=7),
        Target(f"calibration_error_{key}", f"calibration error of identifiers, {name}", at_most=0.05),
    )
] + [
    Target("first_ghost_ms_p50", "milliseconds to ghost text after a jump into a long file", at_most=350),
    Target("neovim_key_to_ghost_ms_p50", "milliseconds from a key to ghost text in Neovim", at_most=60),
    Target("neovim_visible_share_150ms", "keys at which ghost text is visible before the next one", at_least=0.9),
]


def main() -> None:
    fetch_real_model()
    run_parts(
        "real",
        {
            "identifiers": _measure_identifiers,
            "typing": _measure_typing,
            "others": _measure_others,
            "jumps": _measure_jumps,
            "neovim": partial(measure_typing, config=_CONFIG),
            "times": _time,
        },
        _TARGETS,
    )


def _find_text(cut: Cut) -> str:
    """The text before the cursor; transformers' healing removes blanks at its beginning."""
    return cut.find_context(_CONTEXT_CHARS).lstrip()


class _Marks(TypedDict):
    """What is measured at a cursor."""

    right: dict[str, bool]  # by strategy or contestant
    claims: list[tuple[float, bool]]  # the probability of a text, and whether it stands there


def _measure_identifiers(is_short: bool) -> Iterator[Measured]:
    with load(REAL_FOLDER, dtype="int8", num_threads=1, graph_dir=_GRAPHS) as model:

        def measure(cut: Cut) -> _Marks:
            marks = _Marks(right={}, claims=[])
            for healing in _HEALINGS:
                found = model.complete(
                    _find_text(cut), strategy=healing, max_tokens=_MAX_TOKENS, extent="single_line", stop=_ENDS
                )
                marks["right"][healing] = cut.is_solved_by(found.text)
                marks["claims"] = [*_find_claims(found, cut.run_end + cut.suffix)]  # of the last, `exact`
            return marks

        yield from _compare_right("identifiers", measure, 1 if is_short else _NUM_IDENTIFIERS)


def _find_claims(found: Completion, following: str) -> Iterator[tuple[float, bool]]:
    """Yields how probable the text up to the end of each token is, and whether it stands there."""
    text, probability = "", 1.0
    for token in found.tokens:
        text, probability = text + token.text, probability * token.probability
        yield probability, following.startswith(text)


def _measure_others(is_short: bool) -> Iterator[Measured]:
    with ExitStack() as stack:
        contestants = {
            entry.name: stack.enter_context(entry.start()) for entry in _list_entries() if entry.name in _OTHERS
        }

        def measure(cut: Cut) -> _Marks:
            request = Request(_find_text(cut), _MAX_TOKENS)
            right = {name: cut.is_solved_by(each.complete(request).line) for name, each in contestants.items()}
            return _Marks(right=right, claims=[])

        yield from _compare_right("others", measure, 1 if is_short else _NUM_OTHERS)


def _compare_right(part: str, measure: Callable[[Cut], _Marks], num_cuts: int) -> Iterator[Measured]:
    """Yields a step for each language: what each strategy or contestant completes correctly, in percent."""
    figures: dict[str, Value] = {}
    rows: list[Row] = []
    for key, language in _LANGUAGES.items():
        cuts = draw_cuts_in_identifiers(load_new_files(language), _NUM_IDENTIFIERS, _SEED)[:num_cuts]
        marks: list[_Marks] = [*measure_each(f"real-{part}-{key}", cuts, measure, Stamp.take().commit)]
        found = [each["right"] for each in marks]
        right = {name: find_percent(each[name] for each in found) for name in found[0]}
        rows += [
            {"language": language, "by": name, "cursors": len(found), "right %": value,
             "± (95 %)": _find_half_width(each[name] for each in found)}
            for name, value in right.items()
        ]  # fmt: skip
        figures |= {f"{name}_{key}": value for name, value in right.items()} | {f"num_{part}_{key}": len(found)}
        figures |= {f"half_width_{name}_{key}": _find_half_width(each[name] for each in found) for name in right}
        if "exact" in right:
            figures[f"exact_over_greedy_{key}"] = right["exact"] - right["greedy"]
            figures[f"half_width_exact_over_greedy_{key}"] = _find_half_width(
                each["exact"] - each["greedy"] for each in found
            )
            figures[f"exact_to_none_{key}"] = right["exact"] / max(right["none"], 0.1)
            figures[f"calibration_error_{key}"] = _find_calibration_error(
                [claim for each in marks for claim in each["claims"]]
            )
        yield Measured(figures, rows)


def _find_calibration_error(claims: Sequence[tuple[float, bool]]) -> float:
    """Returns by how much probabilities differ from the share that is right: a mean over ten bins, by their claims."""
    bins: list[list[float]] = [[] for _ in range(10)]
    for probability, is_right in claims:
        bins[int(min(probability, 0.999) * len(bins))].append(probability - is_right)
    return sum(abs(sum(each)) for each in bins) / len(claims)


def _find_half_width(values: Iterable[float]) -> float:
    """Half of the interval in which the mean lies in 95 of 100 draws, in percent."""
    known = [*values]
    return 196 * statistics.pstdev(known) / math.sqrt(len(known))


_Ghosts = Mapping[str, tuple[GhostText, GhostText]]  # by contender: for a typist, and for cursors anywhere
_Typed = dict[str, int]  # the counts of a line


def _measure_typing(is_short: bool) -> Iterator[Measured]:
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            all_ghosts = runner.run(_open_ghosts(stack, Path(folder)))
            figures: dict[str, Value] = {}
            for key, language in _LANGUAGES.items():
                texts = [file.text for file in load_new_files(language)]
                typed, asked = (_draw_lines(texts, seed, 1 if is_short else _NUM_LINES) for seed in _LINE_SEEDS)
                ghosts = all_ghosts[language]

                def measure(pair: tuple[Line, Line], ghosts: _Ghosts = ghosts) -> dict[str, _Typed]:
                    return runner.run(_type(ghosts, *pair))

                pairs = [*zip(typed, asked, strict=True)]
                found = [*measure_each(f"real-typing-{key}", pairs, measure, Stamp.take().commit)]
                figures[f"num_lines_{key}"] = len(found)
                for name in ghosts:
                    figures |= _sum_up([each[name] for each in found], f"{name}_{key}")
                yield Measured(figures)
        finally:
            runner.run(stack.aclose())


async def _open_ghosts(stack: AsyncExitStack, folder: Path) -> dict[str, _Ghosts]:
    """What shows text, by language. The folder gets logs and locks."""
    options = parse_options(f"--model={REAL_FOLDER}", "--dtype=int8", "--threads=1", f"--state-dir={folder}")
    connection = await stack.enter_async_context(open_connection(options, idle_s=1.0))
    url = stack.enter_context(run_llama_server(REAL_GGUF, folder))
    session = await stack.enter_async_context(ClientSession(url))
    return {
        language: {
            **{
                str(healing): (trial.by_tab.ghost, trial.cursors.ghost)
                for healing in (Healing.NONE, Healing.EXACT)
                for trial in [Trial.build(connection, language, healing=str(healing), confidence=Settings().confidence)]
            },
            "llama_server": (LlamaServer(session, 0), LlamaServer(session, 1)),
        }
        for language in _LANGUAGES.values()
    }


def _draw_lines(texts: Sequence[str], seed: int, num_lines: int) -> list[Line]:
    """Lines with as much text above as a cursor has in `identifiers`, and none below."""
    lines = draw_lines(texts, num_lines, seed)
    return [replace(line, before=_cut_above(line.before), after="") for line in lines]


def _cut_above(text: str) -> str:
    return text[text.find("\n", max(0, len(text) - _CONTEXT_CHARS)) + 1 :]


async def _type(ghosts: _Ghosts, line: Line, other: Line) -> dict[str, _Typed]:
    """What came of typing a line, and of asking in another one, by contender. All ask at the same cursor."""
    at = random.Random(other.text).randrange(len(other.text))
    found = {}
    for name, (typed, asked) in ghosts.items():
        typist, cursors = Typist(typed), Cursors(asked)
        await typist.type(line)
        await cursors.ask(other, at)
        found[name] = {
            "chars": typist.num_chars, "keys": typist.num_keys, "wrong": typist.num_wrong,
            "shown": len(cursors.rights), "right": sum(cursors.rights),
        }  # fmt: skip
    return found


def _sum_up(found: Sequence[_Typed], where: str) -> Figures:
    total = {name: sum(each[name] for each in found) for name in found[0]}
    return {
        f"saved_{where}": 1 - total["keys"] / total["chars"],
        f"wrong_chars_per_key_{where}": total["wrong"] / total["keys"],
        f"shown_right_share_{where}": total["right"] / total["shown"] if total["shown"] else None,
    }


def _measure_jumps(is_short: bool) -> Figures:
    session = _draw_jumps(1 if is_short else _NUM_JUMPS)

    async def play_once() -> Sequence[KeyTime]:
        async with run_host(_CONFIG) as url:
            return (await play(url, session)).times

    times = asyncio.run(play_once())
    return {
        f"{name}_ghost_ms_p{percent}": find_percentile([each.total_ms for each in times[start::2]], percent)
        for start, name in enumerate(("first", "second"))
        for percent in (50, 90)
    }


def _draw_jumps(num_files: int) -> Session:
    """A jump into the second half of each of so many files of a language."""
    source, texts, keys = random.Random(_SEED), list[str](), list[Key]()
    for language in _LANGUAGES.values():
        long = [file.text for file in load_new_files(language) if file.text.count("\n") >= _NUM_LONG_LINES]
        for text in long[:num_files]:
            name = source.choice([*re.compile(r"[A-Za-z]{6,}").finditer(text, len(text) // 2)])
            at, end, document = name.start() + 3, name.end(), len(texts)
            keys += [
                Key(document, KeyKind.JUMP, at, at, "", at, 0.0),
                Key(document, KeyKind.DELETE, at, end, "", at, 0.0, is_first=True),
                Key(document, KeyKind.LETTER, at, at, text[at], at + 1, 0.2),
            ]
            texts.append(text)
    return Session((*texts,), (*keys,))


def _list_entries() -> list[Entry]:
    """The contestants. Raises SystemExit if an environment is missing."""
    folder, file = str(REAL_FOLDER), str(REAL_GGUF)
    ours, llama_cpp = Path(sys.executable), find_llama_cpp_python()
    return [
        Entry("midtoken", ours, "midtoken", (folder, "--dtype=int8", f"--graph-dir={_GRAPHS}")),
        Entry("llama_cpp", llama_cpp, "llama_cpp_python", (file,)),
        Entry("guidance", llama_cpp, "guidance_gen", (file,)),
        Entry("transformers", ours, "transformers_generate", (folder,)),
        Entry("transformers_healing", ours, "transformers_generate", (folder, "--healing")),
    ]


def _time(is_short: bool) -> Iterator[Measured]:
    """Yields a step for each repeat, with the ratios of the others' times to midtoken's."""
    entries, files = _list_entries(), load_new_files("python")
    if is_short:  # the others run in another part
        steps = compare(entries[:2], draw_visits(files[:_NUM_SHORT], 1, _SEED), 1)
    else:
        steps = compare(entries, draw_visits(files, _NUM_VISITS, _SEED), _NUM_REPEATS)
    for found in steps:
        ours, *others = found.rows
        ratios = {
            f"{name}_{row['contestant']}_to_midtoken": float(row[name] or 0) / float(ours[name] or 1)
            for row in others
            for name in TIMES
        }
        yield Measured({**found.figures, **ratios}, found.rows)


if __name__ == "__main__":
    main()
