"""Writes the figures of benchmarks/results into the tables of the docs: `python -m docs.write_figures`.

A row of a table is found by its first cell, which no other row of the page has. Edit rows here, and the rest of a page
in the page.
"""

import json
from pathlib import Path

from benchmarks.measures.report import RESULTS_DIR

_ROOT = Path(__file__).parents[1]
_LANGUAGES = ("python", "typescript", "go", "rust")
_MODELS = ("default_f32", "default_q8_0", "large_q8_0", "large_q4_k_m", "states_q8_0")
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
    "suggestions that changed although the keystroke agreed": ("flicker", ""),
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
    "wait beside a user who sends 100 times as much, relative to a calm time, 99 of 100": (
        "{fairness_p99_ratio_%s:.1f} times as long"
    ),
    "growth of its memory under constant use": "{soak_growth_mib_%s:.0f} MiB in {soak_s_%s:.0f} s",
    "until the last of 50 streams is told of a shutdown": "{shutdown_s_%s:.1f} s",
}
_ROWS: dict[str, dict[str, tuple[str, ...]]] = {  # by page and benchmark
    "README.md": {
        "accuracy": (
            "| [identifiers completed correctly](docs/measured.md#accuracy) | {all_exact:.1f}% | {rows[4][none]:.1f}%"
            " without healing, {all_greedy:.1f}% with a token mask at each step |",
        ),
        "typing": (
            "| [keystrokes saved](docs/measured.md#keystrokes-saved) with Tab; with accept-word, too |"
            " {saved_below:.0%}; {saved_word_below:.0%} | whole lines shown {saved_all_below:.0%};"
            " {saved_word_all_below:.0%}; also without healing {saved_none_all_below:.0%};"
            " {saved_word_none_all_below:.0%}; llama-server {saved_llama_server_below:.0%};"
            " {saved_word_llama_server_below:.0%} |",
            "| ghost text that is entirely correct | {shown_right_share_below:.0%} | whole lines shown"
            " {shown_right_share_all_below:.0%}; also without healing {shown_right_share_none_all_below:.0%};"
            " llama-server {shown_right_share_llama_server_below:.0%} |",
            "| wrong characters shown at a keystroke | {wrong_chars_per_key_below:.1f} | whole lines shown"
            " {wrong_chars_per_key_all_below:.1f}; also without healing {wrong_chars_per_key_none_all_below:.1f};"
            " llama-server {wrong_chars_per_key_llama_server_below:.1f} |",
        ),
        "keystrokes": (
            "| [from a keystroke to new ghost text in Neovim, median](docs/measured.md#latency)"
            " | {neovim_key_to_ghost_ms_p50:.0f} ms | 150 ms between keystrokes |",
        ),
        "reliability": tuple(
            " | ".join([f"| {name}", *(text.replace("%s", each).replace("%%", "%") for each in _RUNTIMES)]) + " |"
            for name, text in _RELIABILITY.items()
        ),
        "fleet": (
            "| behind the gateway: back after each of four servers was killed; requests lost in a rolling restart |"
            " {failover_s_embedded:.1f} s ({killed_streams_embedded} streams failed); {lost_requests_embedded}"
            " | {failover_s_triton:.1f} s ({killed_streams_triton} stream failed); {lost_requests_triton} |",
        ),
    },
    "docs/measured.md": {
        "accuracy": (
            "| `exact` (default) | {identifier_exact:.1f}% | {all_exact:.1f}% |",
            "| `greedy`: a token mask at each step | {identifier_greedy:.1f}% | {all_greedy:.1f}% |",
            "| `single`: one token removed | {identifier_single:.1f}% | |",
            "| `none` | {identifier_none:.1f}% | {rows[4][none]:.1f}% |",
        ),
        "boundary": (
            "| midtoken | {recovered_plain:.1f}% | {mean_bytes:.1f} |",
            "| llguidance | {llguidance_recovered:.1f}% | {llguidance_mean_bytes:.1f} |",
            "| two tokens removed | {rows[2][recovered %]:.1f}% | {rows[9][bytes]:.1f} |",
            "| one token removed | {rows[1][recovered %]:.1f}% | {rows[8][bytes]:.1f} |",
        ),
        "fill_in": (
            "| text after the cursor, in the default layout | {right_default:.1f}% |",
            "| text before the cursor only | {right_without_suffix:.1f}% |",
        ),
        "typing": tuple(
            f"| {name} | " + " | ".join(f"{{{key}{typist}_below:{form}}}" for typist in _TYPISTS) + " |"
            for name, (key, form) in _TYPING.items()
        ),
        "keystrokes": (
            "| needs the server | {ghost_ms_p50:.1f} ms | {ghost_ms_p99:.0f} ms |",
            "| the first one after opening a file, a jump or an acceptance | {first_ms_p50:.1f} ms"
            " | {first_ms_p99:.0f} ms |",
            "| agrees with the ghost text | {typed_ahead_ms_p50:.1f} ms | {typed_ahead_ms_p99:.1f} ms |",
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
            "| as many as the server can answer | {goodput_1:.0%} | {rows[1][least share]:.2f} |",
            "| 1.3 times as many | {goodput_1_3:.0%} | {rows[2][least share]:.2f} |",
            "| 3 times as many | {goodput_3:.0%} | {rows[3][least share]:.2f} |",
        ),
        "editors": (
            "| Neovim | {neovim_steps:,} | {neovim_mismatches} |",
            "| VS Code | {vscode_steps:,} | {vscode_mismatches} |",
            "| Helix | {helix_steps:,} | {helix_mismatches} |",
            "| suggestions that repeat themselves | {situations} situations | {looping} |",
            "| suggestions that leave a bracket or string of the line open or surplus | {situations} situations"
            " | {unbalanced} |",
            "| suggestions that are the rest of a word with code after it, and no more | {rest_of_line_cuts} cursors"
            " | {rest_of_line_right:.1%} |",
            "| real code that the filter for repetition would cut | 20,000 continuations | {real_code_cut_share:.2%} |",
            "| declared only in another open file | {num_new_names} | {right_with_context:.1%}"
            " | {right_without_context:.1%} |",
            "| in the file already | {num_known_names} | {known_right_with_context:.1%}"
            " | {known_right_without_context:.1%} |",
            "| start | {start_s:.1f} s |",
            "| memory | {memory_mb:.0f} MB |",
            "| one keystroke in a file of 5 MB, 99th percentile | {key_ms_5mb_p99:.1f} ms |",
            "| secrets of the forms that the rules were written for | {secret_forms_sent} sent |",
            "| secrets of other forms | {secret_forms_unseen_replaced:.0%} of {secret_forms_unseen} replaced |",
            "| keystrokes in ordinary code that are taken for a secret | {false_refusals} of {false_refusal_keys:,},"
            " in {false_refusal_languages} languages |",
            "| host names of other machines looked up | {lookups_of_foreign_hosts} |",
        ),
        "context": (
            *(
                f"| {name} | " + " | ".join(f"{{{key}_{each}{form}}}" for each in _LANGUAGES) + " |"
                for name, key, form in (
                    ("told, of those that an imported file declares", "told_share", ":.0%"),
                    ("bytes told, median", "told_bytes", ":,.0f"),
                )
            ),
            "| processor time to index the files, at the lowest priority | {index_cpu_s:.0f} s |",
            "| memory of that process | {index_memory_mb:.0f} MB |",
            "| keystrokes for which the model reads at most one token of context | {context_reads_le_1_share:.1%} |",
            "| first keystrokes at a place whose context is cached | {prefetched_share:.1%} |",
            "| time to ghost text, relative to telling nothing | {ghost_ratio:.2f} |",
            "| secrets and excluded text told, of 500 planted secrets | {secret_bytes_told} bytes |",
        ),
        "real_size": (
            "| prefill of 1,000 tokens | {read_ratio_q8:.2f} | {read_ratio_q4:.2f} |",
            "| decode step | {decode_ratio_q8:.2f} | {decode_ratio_q4:.2f} |",
            "| decode step, one thread | {decode_ratio_q8_1_thread:.2f} | {decode_ratio_q4_1_thread:.2f} |",
            "| token tree of five | {tree_ratio:.2f} | {tree_ratio_q4:.2f} |",
            "| rest of a line after a keystroke | {line_ratio:.2f} | |",
            "| the same where code is typed again | {line_ratio_again:.2f} | |",
        ),
        "models": ("| model families | {num_right} of {num_families} | {num_refused} | {num_wrong} |",),
        "gguf": tuple(
            f"| {name} | " + " | ".join(f"{{{key}_{model}:.2f}}" for model in _MODELS) + " |"
            for name, key in _GGUF.items()
        ),
        "remote": (
            "| equal completions | {llama_server_equal} | {vllm_equal} |",
            "| ties: both completions equally likely | {llama_server_tied} | {vllm_tied} |",
            "| other completions | {wrong_texts} | {vllm_wrong_texts} |",
        ),
        "characters": (
            "| `canonical` (default) | {bits_per_byte_canonical:.3f} | {jsd_canonical:.4f}"
            " | {bytes_per_cpu_s_canonical:.0f} |",
            "| `beam`, width 8 | {bits_per_byte_beam8:.3f} | {jsd_beam8:.4f} | {bytes_per_cpu_s_beam8:.0f} |",
            "| genlm-bytes, width 8 | {bits_per_byte_genlm8:.3f} | {jsd_genlm8:.4f} | {bytes_per_cpu_s_genlm8:.0f} |",
            "| the text's own tokens | {bits_per_byte_tokens:.3f} | | |",
        ),
    },
    "docs/token_edges.md": {
        "accuracy": tuple(
            f"| {name} | {{rows[{row}][share]:.1f}}% | {{rows[{row}][exact]:.1f}}% | {{rows[{row}][greedy]:.1f}}%"
            f" | {{rows[{row}][none]:.1f}}% |"
            for row, name in ((4, "all"), (5, "on an edge"), (6, "inside a token"))
        ),
    },
    "docs/fill_in.md": {
        "fill_in": (
            "| no suffix | {rows[0][identifier]:.1f}% | | {rows[0][line]:.1f}% |",
            *(
                f"| {name} | {{rows[{row}][identifier]:.1f}}% | {{rows[{row}][to no suffix]:+.1f}}"
                f" ± {{rows[{row}][± (95 %)]:.1f}} | {{rows[{row}][line]:.1f}}% |"
                for row, name in (
                    (1, "in `psm`"),
                    (2, "in `psm_line`"),
                    (3, "in `spm` (default)"),
                    (4, "in `spm_line`"),
                )
            ),
        ),
    },
    "models/default/README.md": {
        "accuracy": (
            "| bits per byte | {bits_per_byte:.3f} (a 5-gram model with a prompt cache: 1.16) |",
            "| identifiers completed correctly, 500 cursors | {identifier_exact:.1f}% with exact healing,"
            " {identifier_none:.1f}% without |",
            "| operators, indentation and words of strings, 210 cursors | {other_exact:.1f}% with exact healing,"
            " {other_none:.1f}% without |",
        ),
        "fill_in": (
            "| identifiers completed correctly with the text after the cursor, 1,000 cursors | {right_default:.1f}%"
            " in the layout `spm`, {right_without_suffix:.1f}% without that text |",
        ),
    },
}


PAGES = tuple(_ROWS)


def main() -> None:
    for page in PAGES:
        path = _ROOT / page
        path.write_text(write_figures(page, path.read_text()))


def write_figures(page: str, text: str) -> str:
    """The text of the page with the newest figures."""
    lines = text.splitlines()
    for benchmark, rows in _ROWS[page].items():
        report = json.loads((RESULTS_DIR / f"{benchmark}.json").read_text())
        for row in rows:
            new = row.format(**report["figures"], rows=report["rows"])
            lines[_find_row(lines, new)] = new
    return "\n".join(lines) + "\n"


def _find_row(lines: list[str], row: str) -> int:
    """The place of the row with the same first cell."""
    first = row.split(" | ")[0] + " |"
    places = [place for place, line in enumerate(lines) if line.startswith(first)]
    if len(places) != 1:
        raise ValueError(f"{len(places)} rows of the page begin with {first!r}, not one")
    return places[0]


if __name__ == "__main__":
    main()
