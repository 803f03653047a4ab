"""Writes the figures of benchmarks/results into the pages: `python -m docs.write_figures`, and says which are old.

A template that begins with `|` is a row of a table, which is found by its first cell; no other row of the page has the
same. Edit rows here, and the rest of a page in the page. Any other template is a part of a sentence: the page has it
with other figures, perhaps over two lines, and only the figures are written. If a benchmark has no file, its figures
are dashes. The section on missed targets is written as a whole.
"""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any  # Any: JSON

from benchmarks.measures.report import RESULTS_DIR, format_value, is_complete, read_parts, read_targets

_ROOT = Path(__file__).parents[1]
_EDGE_COLUMNS = ("share", "exact", "greedy", "none")
_LANGUAGES = ("python", "typescript", "go", "rust")
_MODELS = ("default_f32", "default_q8_0", "large_q8_0", "large_q4_k_m")
_GGUF = {
    "first text after a keystroke": "first_text_ratio",
    "a healed line": "healing_overhead",
    "a healed line without draft tokens": "healing_overhead_alone",
}
_TYPISTS = ("", "_all", "_none", "_none_all", "_llama_server")
_TYPING = {
    "keystrokes saved with Tab": ("saved", ".0%"),
    "keystrokes saved with accept-word, too": ("saved_word", ".0%"),
    "wrong characters shown at a keystroke": ("wrong_chars_per_key", ".1f"),
    "suggestions that are entirely correct": ("shown_right_share", ".0%"),
}
_RUNTIMES = ("embedded", "triton")
_RELIABILITY = {
    "wrong texts while its parts die, hang, fail or lie": "{faults_wrong_texts_own_%s} of {faults_own_%s}",
    "until completions are back, worst: a server of one's own; one behind a port": (
        "{faults_back_s_max_own_%s:.1f} s; {faults_back_s_max_remote_%s:.1f} s"
    ),
    "until a keystroke is applied meanwhile, 99 of 100": "{faults_echo_ms_p99_own_%s:.0f} ms",
    "cancelled requests; those of them that were not released; others that were refused meanwhile": (
        "{cancels_%s:,}; {cancels_unreleased_%s}; {cancels_refused_%s}"
    ),
    "completed at 1.3, 3 and 10 times the load that it can serve, relative to that": (
        "{overload_completed_1_3_%s:.0%%}, {overload_completed_3_%s:.0%%}, {overload_completed_10_%s:.0%%}"
    ),
    "until an overloaded server refuses, 99 of 100": "{overload_refused_ms_p99_%s:.0f} ms",
    "until the last of 50 streams is told of a shutdown": "{shutdown_s_%s:.1f} s",
}
_REAL = {"py": "Python", "ts": "TypeScript", "go": "Go"}  # the languages of the published model
_REAL_TYPING = {
    "keystrokes saved with Tab, published model": ("saved", ".0%"),
    "ghost text that is entirely correct, published model": ("shown_right_share", ".0%"),
    "wrong characters shown at a keystroke, published model": ("wrong_chars_per_key", ".1f"),
}
_REAL_TIMES = {
    "llama.cpp, 4 bits": "llama_cpp",
    "guidance, 4 bits": "guidance",
    "transformers, 32 bits": "transformers",
    "transformers with its token healing, 32 bits": "transformers_healing",
}


def _list_real(name: str, figure: str, form: str) -> str:
    """A row with all languages in each cell."""
    contenders = ("exact", "none", "llama_server")
    cells = ["; ".join(f"{{{figure}_{each}_{key}:{form}}}" for key in _REAL) for each in contenders]
    return f"| {name} | {' | '.join(cells)} |"


_TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {  # by page and benchmark
    "README.md": {
        "real": (
            *(
                f"| {name} | {{exact_{key}:.0f}}% | {{greedy_{key}:.0f}}% | {{none_{key}:.0f}}% |"
                for key, name in _REAL.items()
            ),
        ),
    },
    "docs/operating.md": {
        "reliability": tuple(
            " | ".join([f"| {name}", *(text.replace("%s", each).replace("%%", "%") for each in _RUNTIMES)]) + " |"
            for name, text in _RELIABILITY.items()
        ),
    },
    "docs/measured.md": {
        "real": (
            *(_list_real(name, *figure) for name, figure in _REAL_TYPING.items()),
            *(
                f"| {name} | "
                + " | ".join(f"{{{key}_{each}:.1f}} ± {{half_width_{key}_{each}:.1f}}%" for each in _REAL)
                + " |"
                for name, key in (
                    ("`exact`, the default", "exact"),
                    ("`greedy`, a token mask at each step", "greedy"),
                    ("`single`, one token removed", "single"),
                    ("`none`, no healing", "none"),
                    ("guidance's healing", "guidance"),
                    ("transformers' healing", "transformers_healing"),
                    ("`exact` above `greedy`", "exact_over_greedy"),
                )
            ),
            "The first four complete at the same {num_identifiers_py} cursors in each language,",
            "by {calibration_error_py:.3f}, {calibration_error_ts:.3f} and {calibration_error_go:.3f} on average.",
            "{num_lines_py} lines in each language are typed, without the text below them.",
            "the first keystroke has its ghost text after {first_ghost_ms_p50:.0f} ms (median), the second after"
            " {second_ghost_ms_p50:.0f} ms,",
            "in Neovim it is visible after {neovim_key_to_ghost_ms_p50:.0f} ms, and before the next keystroke, 150 ms"
            " later, at {neovim_visible_share_150ms:.0%}.",
            "| midtoken, 8 bits | {line_ms_midtoken:.0f} ms | {cold_line_ms_midtoken:.0f} ms"
            " | {first_text_ms_midtoken:.0f} ms |",
            *(
                f"| {name} | "
                + " | ".join(
                    f"{{{time}_ms_{key}:.0f}} ms ({{{time}_ms_{key}_to_midtoken:.1f}})"
                    for time in ("line", "cold_line", "first_text")
                )
                + " |"
                for name, key in _REAL_TIMES.items()
            ),
        ),
        "accuracy": (
            "| `exact` (default) | {identifier_exact:.1f}% | {all_exact:.1f}% |",
            "| `greedy`: a token mask at each step | {identifier_greedy:.1f}% | {all_greedy:.1f}% |",
            "| `single`: one token removed | {identifier_single:.1f}% | |",
            "| `none` | {identifier_none:.1f}% | {all_none:.1f}% |",
            *(
                f"| {name} | " + " | ".join(f"{{{key}_{each}:.1f}}%" for each in _EDGE_COLUMNS) + " |"
                for key, name in (("edge", "on an edge"), ("inside", "inside a token"))
            ),
        ),
        "boundary": (
            "| midtoken | {recovered_plain:.1f}% | {mean_bytes:.1f} |",
            "| llguidance | {recovered_plain_llguidance:.1f}% | {mean_bytes_llguidance:.1f} |",
            "| two tokens removed | {recovered_plain_two_back:.1f}% | {mean_bytes_two_back:.1f} |",
            "| one token removed | {recovered_plain_one_back:.1f}% | {mean_bytes_one_back:.1f} |",
        ),
        "typing": (
            "midtoken saves {saved_to_none_below:.1f} times as many keystrokes as no healing at the same `confidence`,"
            " and shows {wrong_chars_per_key_below:.1f} wrong characters, without healing"
            " {wrong_chars_per_key_none_below:.1f}: `confidence` makes",
            *(
                f"| {name} | " + " | ".join(f"{{{key}{typist}_below:{form}}}" for typist in _TYPISTS) + " |"
                for name, (key, form) in _TYPING.items()
            ),
        ),
        "keystrokes": (
            "| needs the server | {ghost_ms_p50:.1f} ms | {ghost_ms_p99:.0f} ms |",
            "| the first one after opening a file, a jump or an acceptance | {first_ms_p50:.1f} ms"
            " | {first_ms_p99:.0f} ms |",
            "| agrees with the ghost text | {typed_ahead_ms_p50:.1f} ms | {typed_ahead_ms_p99:.1f} ms |",
            "{num_keys:,} replayed keystrokes",
            "{typed_ahead_share:.0%} of the keystrokes agree with the ghost text",
            "at {neovim_visible_share_150ms:.0%} of the {neovim_keys} keystrokes that have a suggestion",
            "| on the screen of a real Neovim, 150 ms between keystrokes | {neovim_key_to_ghost_ms_p50:.0f} ms"
            " | {neovim_key_to_ghost_ms_p99:.0f} ms |",
        ),
        "contestants": tuple(
            f"| {name} | {{line_ms_{key}:.1f}} ms | {{cold_line_ms_{key}:.0f}} ms | {{right_{key}:.0f}}% |"
            for name, key in (
                ("midtoken, in the same process", "midtoken"),
                ("midtoken, over gRPC", "midtoken_grpc"),
                ("llama.cpp, 8 bits", "llama_cpp_q8_0"),
                ("llama.cpp, 16 bits", "llama_cpp_f16"),
                ("guidance", "guidance"),
                ("transformers", "transformers"),
                ("transformers with its token healing", "transformers_healing"),
            )
        ),
        "runtimes": (
            "| embedded | {ready_s_embedded:.1f} s | {memory_MB_embedded} MB | {line_ms_embedded:.1f} ms |",
            "| Triton | {ready_s_triton:.1f} s | {memory_MB_triton} MB | {line_ms_triton:.1f} ms |",
        ),
        "load": (
            "Relative to that, {goodput_1:.0%} are answered when as many come, {goodput_1_3:.0%} at 1.3 times as many,"
            " and {goodput_3:.0%} at 3 times as many.",
            "that wait for each answer, {capacity_per_s:.0f} requests a second.",
            "A request that the server refuses is refused within {refused_ms_p99:.0f} ms",
        ),
        "real_size": (
            "| prefill of 1,000 tokens | {read_ratio_q8:.2f} | {read_ratio_q4:.2f} |",
            "| decode step | {decode_ratio_q8:.2f} | {decode_ratio_q4:.2f} |",
            "| token tree of five | {tree_ratio:.2f} | {tree_ratio_q4:.2f} |",
        ),
        "models": (
            "Of {num_families} families",
            "{num_right} give the answers of transformers, {num_refused} are refused by name, and {num_wrong} give",
        ),
        "gguf": (
            "Of {num_cuts} completions, {equal_choices} are those of onnxruntime and {tied_choices} are ties.",
            *(
                f"| {name} | " + " | ".join(f"{{{key}_{model}:.2f}}" for model in _MODELS) + " |"
                for name, key in _GGUF.items()
            ),
        ),
        "remote": (
            "Of {llama_server_cuts} completions in front of llama-server, {llama_server_equal} are those of midtoken's"
            " own engine, {llama_server_tied} ties, {wrong_texts} others; of {vllm_cuts} in front of vLLM,"
            " {vllm_equal}, {vllm_tied} and {vllm_wrong_texts}.",
            "llama-server completes {right_healed:.1%} of the identifiers correctly, by itself {right_plain:.1%}."
            " Healing takes {requests_per_choice:.1f} requests and {own_cpu_ms:.1f} ms of computation in midtoken,"
            " and adds {added_ms_p50:.0f} ms (median) until 8 tokens are there.",
        ),
        "characters": (
            "| `canonical` (default) | {bits_per_byte_canonical:.3f} | {jsd_canonical:.4f}"
            " | {bytes_per_cpu_s_canonical:.0f} |",
            "| `beam`, width 8 | {bits_per_byte_beam8:.3f} | {jsd_beam8:.4f} | {bytes_per_cpu_s_beam8:.0f} |",
            "| genlm-bytes, width 8 | {bits_per_byte_genlm8:.3f} | {jsd_genlm8:.4f} | {bytes_per_cpu_s_genlm8:.0f} |",
            "| the text's own tokens | {bits_per_byte_tokens:.3f} | | |",
            "`canonical` reads {bytes_per_cpu_s_canonical_unseen:.0f} bytes per CPU second.",
        ),
    },
    "docs/characters.md": {"boundary": ("in {recovered_plain:.0f}% of {num_cuts:,} cuts these were correct",)},
    "docs/fill_in.md": {
        "fill_in": (
            "| no suffix | {right_none:.1f}% | | {line_none:.1f}% |",
            *(
                f"| in `{key}`{note} | {{right_{key}:.1f}}% | {{difference_{key}:+.1f}} ± {{spread_{key}:.1f}}"
                f" | {{line_{key}:.1f}}% |"
                for key, note in (("psm", ""), ("psm_line", ""), ("spm", " (default)"), ("spm_line", ""))
            ),
            "the engine ends the completions that reach the suffix: {num_cut} of the {num_gaps:,}.",
        ),
    },
    "models/default/README.md": {
        "accuracy": (
            "| bits per byte | {bits_per_byte:.3f} |",
            "| identifiers completed correctly, 500 cursors | {identifier_exact:.1f}% with exact healing,"
            " {identifier_none:.1f}% without |",
            "| operators, indentation and words of strings, 210 cursors | {other_exact:.1f}% with exact healing,"
            " {other_none:.1f}% without |",
        ),
        "fill_in": (
            "| identifiers completed correctly with the text after the cursor, 1,000 cursors | {right_default:.1f}%"
            " in the layout `spm`, {right_none:.1f}% without that text |",
        ),
    },
}


PAGES = tuple(_TEMPLATES)
_PLOTTED = (("accuracy", "offsets"), ("typing", "curve"), ("keystrokes", "replay"))  # by docs.draw_results
_PRODUCT = (
    "trie_cache",
    "inference",
    "lsp_server",
    "midtoken",
    "model_repository",
    "models/default",
)  # what benchmarks measure
_MISSED = "## Targets that are missed\n"
_MISSED_PAGE = "docs/measured.md"


def main() -> None:
    used: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in _PLOTTED:
        used[each].append("docs/pictures")
    for page in PAGES:
        path = _ROOT / page
        text, parts = write_figures(page, path.read_text())
        path.write_text(text)
        for each in parts:
            used[each].append(page)
    print(*_list_ages(used), sep="\n")


def write_figures(page: str, text: str, results: Path = RESULTS_DIR) -> tuple[str, set[tuple[str, str]]]:
    """Returns the text of the page with the newest figures, and the benchmarks and parts that they are of.

    Raises ValueError if the page has no place for a template, or several, and KeyError if no part has a figure.
    """
    used = set()
    for benchmark, templates in _TEMPLATES[page].items():
        figures = PageFigures(read_parts(benchmark, results), is_complete(benchmark, results))
        for template in templates:
            write = write_row if template.startswith("|") else write_sentence
            text = write(text, template, figures)
        used |= {(benchmark, part) for part in figures.used}
    if page == _MISSED_PAGE:
        before, after = text.split(_MISSED)
        _, *rest = after.split("\n## ")
        text = "\n## ".join([f"{before}{_MISSED}{list_missed(results)}", *rest])
    return text, used


class PageFigures(Mapping[str, Any]):
    """The figures of a benchmark, and which of its parts were asked for."""

    def __init__(self, parts: Mapping[str, Mapping[str, Any]], is_complete: bool) -> None:
        self._parts, self._is_complete = parts, is_complete
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """Returns a dash for what a part may have that was not measured."""
        for part, content in self._parts.items():
            if name in content["figures"]:
                self.used.add(part)
                return content["figures"][name]
        if self._is_complete:
            raise KeyError(f"no part has the figure {name}")
        return _Dash()

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class _Dash:
    """A figure that was not measured."""

    def __format__(self, _form: str) -> str:
        return "–"


def write_row(text: str, template: str, figures: Mapping[str, Any]) -> str:
    """The text with a new row in place of the one with the same first cell. Raises ValueError."""
    row = template.format_map(figures)
    first = row.split(" | ")[0] + " |"
    lines = text.split("\n")
    places = [place for place, line in enumerate(lines) if line.startswith(first)]
    if len(places) != 1:
        raise ValueError(f"{len(places)} rows of the page begin with {first!r}, not one")
    lines[places[0]] = row
    return "\n".join(lines)


def write_sentence(text: str, template: str, figures: Mapping[str, Any]) -> str:
    """The text with new figures in the only place that has the words of the template. Raises ValueError."""
    pieces = re.split(r"(\{.*?\})", template)
    pattern = "".join(r"(\S+)" if piece.startswith("{") else _match_words(piece) for piece in pieces)
    found = [*re.finditer(pattern, text)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} places of the page have the words {template!r}, not one")
    fields = [piece for piece in pieces if piece.startswith("{")]
    for number, field in reversed([*enumerate(fields, 1)]):
        start, end = found[0].span(number)
        text = text[:start] + field.format_map(figures) + text[end:]
    return text


def _match_words(piece: str) -> str:
    """A pattern for the words, in one line or several."""
    return r"\s+".join(re.escape(words) for words in re.split(r"\s+", piece))


def list_missed(results: Path) -> str:
    """The section on the targets that the results miss."""
    targets = [
        (path.stem, each) for path in sorted(results.glob("*.json")) for each in read_targets(path.stem, results)
    ]
    missed = [(name, each) for name, each in targets if each["is_met"] is False]
    rows = [f"- `{name}`: {each['meaning']}: {format_value(each['value'])} ({each['limit']})" for name, each in missed]
    judged = sum(each["is_met"] is not None for _, each in targets)
    intro = f"Of {judged} targets that were measured, {len(missed)} are missed:"
    return "\n".join(["", intro, "", *rows, ""])


def _list_ages(used: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    """Yields a line for each part that is older than what it measures."""
    for path in sorted(RESULTS_DIR.glob("*.json")):
        for part, stamp in read_parts(path.stem).items():
            if (age := describe_age(path.stem, stamp)) is not None:
                pages = ", ".join(used.get((path.stem, part), ["on no page"]))
                yield f"{path.stem}: {part}: {age} ({pages})"


def describe_age(benchmark: str, stamp: Mapping[str, Any], root: Path = _ROOT) -> str | None:
    """What is wrong with the commit that a part was measured at; None if the code is still the same."""
    commit, changed = stamp["commit"].rstrip("+"), stamp["commit"].endswith("+")
    own = "tests/reliability" if benchmark == "reliability" else f"benchmarks/{benchmark}.py"
    command = ["git", "rev-list", "--count", f"{commit}..HEAD", "--", *_PRODUCT, own]
    counted = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if counted.returncode != 0:
        return f"its commit {commit[:8]} is not in the repository"
    faults = [f"{counted.stdout.strip()} commits since {commit[:8]} ({stamp['date'][:10]}) changed what it measures"]
    faults = [] if counted.stdout.strip() == "0" else faults
    faults += ["the tree that was measured differed from its commit"] if changed else []
    return "; ".join(faults) or None


if __name__ == "__main__":
    main()
