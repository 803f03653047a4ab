"""What a prompt tells of other files: the formats as their publishers write them, and how much fits."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference import fim_markers
from inference.engine.fill_in import FillIn, FimMarkers, Layout
from inference.engine.prompt import Prompt, PromptBuilder
from inference.errors import InvalidRequestError
from inference.healing.heal_point import encode_section
from inference.protocol.completion import CompletionRequest, ExplainedFile, Healing, RelatedFile
from tests.support.toys import END, FIM_NAMES, load_toy, texts, toy_tokenizer

_FILES = (
    RelatedFile("utils.py", "def multiply(x, y):\n    return x * y\n"),
    RelatedFile("lib/config.py", "DEBUG = True"),
)
_REQUEST = CompletionRequest("def total(a):\n    ", "\nprint(total(1))\n", related=_FILES, path="example.py")


def _build_prompts(fim_names: tuple[str, ...], specials: tuple[str, ...], layout: Layout | None) -> PromptBuilder:
    """For a tokenizer with these special tokens, and a model that is given suffixes in the layout; None: it is not."""
    toy = toy_tokenizer("qwen")
    ids = [toy.vocabulary.special_tokens[name] for name in (FIM_NAMES[0], FIM_NAMES[2], FIM_NAMES[1])]
    own = {name: token_id for name, token_id in toy.vocabulary.special_tokens.items() if name not in FIM_NAMES}
    padding = toy.vocabulary.num_rows - 1  # rows that no token has
    named = {name: padding - number for number, name in enumerate(specials)}
    all_named = own | dict(zip(fim_names, ids, strict=False)) | named
    special_ids = toy.vocabulary.special_ids.union(named.values())
    vocabulary = replace(toy.vocabulary, special_tokens=all_named, special_ids=special_ids)
    fill_in = None if layout is None else FillIn(FimMarkers(*ids), layout)
    return PromptBuilder(replace(load_toy(toy), vocabulary=vocabulary), fill_in)


def _show(prompts: PromptBuilder, prompt: Prompt) -> str:
    """The prompt as text, with the names of its special tokens."""
    vocabulary = prompts.tokenizer.vocabulary
    names = {token_id: name.encode() for name, token_id in vocabulary.special_tokens.items()}
    data = b"".join(names.get(each, vocabulary.token_bytes[each]) for each in prompt.context_ids)
    return (data + prompt.healed).decode().removeprefix(END)


_TEXT, _CONFIG = _FILES[0].text, _FILES[1].text + "\n"
_PSM = "{0}def total(a):\n{1}\nprint(total(1))\n{2}    "


@pytest.mark.parametrize(
    ("fim_names", "specials", "name", "layout", "expected"),
    [
        pytest.param(
            fim_markers.QWEN,
            ("<|repo_name|>", "<|file_sep|>"),
            "qwen",
            Layout.PSM_LINE,
            f"<|repo_name|>project\n<|file_sep|>utils.py\n{_TEXT}<|file_sep|>lib/config.py\n{_CONFIG}"
            "<|file_sep|>example.py\n" + _PSM.format(*fim_markers.QWEN),
            id="Qwen2.5-Coder, examples/Qwen2.5-Coder-repolevel-fim.py, and figure 4 of arXiv:2409.12186",
        ),
        pytest.param(
            fim_markers.QWEN,
            ("<|file_separator|>",),
            "codegemma",
            Layout.PSM_LINE,
            f"utils.py\n{_TEXT}<|file_separator|>lib/config.py\n{_CONFIG}<|file_separator|>"
            "example.py\n" + _PSM.format(*fim_markers.QWEN),
            id="CodeGemma, figures 2 and 4 of arXiv:2406.11409",
        ),
        pytest.param(
            fim_markers.STARCODER,
            ("<repo_name>", "<file_sep>"),
            "starcoder2",
            Layout.PSM_LINE,
            f"<repo_name>project<file_sep>utils.py\n{_TEXT}<file_sep>lib/config.py\n{_CONFIG}"
            "<file_sep>" + _PSM.format("<fim_prefix>example.py\n", "<fim_suffix>", "<fim_middle>"),
            id="StarCoder2, section 5.1 of arXiv:2402.19173",
        ),
        pytest.param(
            fim_markers.STARCODER,
            ("<reponame>", "<file_sep>"),
            "codeqwen",
            None,
            f"<reponame>project\n<file_sep>utils.py\n{_TEXT}<file_sep>lib/config.py\n{_CONFIG}"
            "<file_sep>example.py\ndef total(a):\n    ",
            id="CodeQwen1.5, README: without fill-in",
        ),
        pytest.param(
            fim_markers.STARCODER,
            ("<filename>",),
            "filename",
            Layout.SPM_LINE,
            f"<filename>utils.py\n{_TEXT}<filename>lib/config.py\n{_CONFIG}<filename>example.py\n"
            "<fim_suffix>\nprint(total(1))\n<fim_prefix>def total(a):\n<fim_middle>    ",
            id="Mellum-4b-base, model card",
        ),
        pytest.param(
            fim_markers.DEEPSEEK,
            (),
            "deepseek",
            None,
            f"# utils.py\n{_TEXT}\n\n# lib/config.py\n{_CONFIG}\n\n# example.py\ndef total(a):\n    ",
            id="DeepSeek-Coder, README: without fill-in",
        ),
        pytest.param(
            fim_markers.SEED_CODER,
            ("<filename>",),
            "",
            Layout.SPM_LINE,
            f"{_TEXT}{_CONFIG}<[fim-suffix]>\nprint(total(1))\n<[fim-prefix]>def total(a):\n<[fim-middle]>    ",
            id="Seed-Coder, of which no format is known: as llama-server",
        ),
    ],
)
def test_each_format_is_that_of_its_publisher(
    fim_names: tuple[str, ...], specials: tuple[str, ...], name: str, layout: Layout | None, expected: str
) -> None:
    prompts = _build_prompts(fim_names, specials, layout or Layout.PSM_LINE)
    request = replace(_REQUEST, suffix="") if layout is None else _REQUEST

    assert prompts.related.format.name == name
    assert _show(prompts, prompts.build(request, 512)) == expected


@pytest.mark.parametrize(
    ("fim_names", "specials", "layout"),
    [
        (fim_markers.QWEN, ("<|repo_name|>", "<|file_sep|>"), None),
        (fim_markers.QWEN, ("<|repo_name|>",), Layout.PSM_LINE),
        (fim_markers.QWEN, ("<repo_name>", "<file_sep>", "<filename>"), Layout.PSM_LINE),
        (fim_markers.CODESTRAL, ("<filename>",), Layout.SPM),
    ],
    ids=["not trained on the markers", "a token is missing", "tokens of another family", "no format is known"],
)
def test_other_models_read_plain_text(fim_names: tuple[str, ...], specials: tuple[str, ...], layout: Layout) -> None:
    assert _build_prompts(fim_names, specials, layout).related.format.name == ""


@pytest.mark.parametrize("path", ["", "example.py"])
def test_the_line_of_a_path_that_is_not_known_is_left_out(path: str) -> None:
    prompts = _build_prompts(fim_markers.QWEN, ("<|repo_name|>", "<|file_sep|>"), Layout.PSM_LINE)
    request = CompletionRequest("x = 1\n", related=(RelatedFile("", "a = 1"),), path=path)

    shown = _show(prompts, prompts.build(request, 256))

    assert shown == f"<|repo_name|>project\n<|file_sep|>a = 1\n<|file_sep|>{path and path + chr(10)}x = 1\n"


@pytest.mark.parametrize(("path", "is_told"), [("", False), ("a.py", True)])
def test_the_path_alone_is_told_in_a_format_and_nothing_if_nothing_is_known(path: str, is_told: bool) -> None:
    for specials in (("<|repo_name|>", "<|file_sep|>"), ()):
        prompts = _build_prompts(fim_markers.QWEN, specials, Layout.PSM_LINE)
        prompt = prompts.build(CompletionRequest("x = 1\n", path=path), 256)
        assert bool(prompt.related.num_tokens) == (is_told and bool(specials))


def test_a_special_token_that_stands_in_the_text_or_path_of_a_file_is_text() -> None:
    specials = ("<|repo_name|>", "<|file_sep|>")
    prompts = _build_prompts(fim_markers.QWEN, specials, Layout.PSM_LINE)
    odd = f"{specials[1]}{{path}}{specials[0]}{FIM_NAMES[0]}{END}"
    request = CompletionRequest("x", "\ny\n", related=(RelatedFile(odd, odd),), path=odd)

    prompt = prompts.build(request, 1024)

    special_ids = [each for each in prompt.context_ids[1:] if each in prompts.tokenizer.vocabulary.special_ids]
    names = (*specials[:2], specials[1], FIM_NAMES[0], FIM_NAMES[2], FIM_NAMES[1])
    assert special_ids == [prompts.tokenizer.vocabulary.special_tokens.get(name) for name in names]
    assert _show(prompts, prompt).count(odd) == 3


_files = st.lists(st.builds(RelatedFile, st.sampled_from(["", "a.py", "lib/é.py"]), texts), max_size=6).map(tuple)


@example("aaaaafoo bar", 8, "a", (), "main.py", Healing.EXACT, True, 98)
@example("n", 60, "", (RelatedFile("", "x = 1\n" * 9),), "", Healing.GREEDY, True, 8)
@given(
    prefix=texts,
    repeats=st.sampled_from([1, 8, 40]),
    suffix=texts,
    related=_files,
    path=st.sampled_from(["", "main.py"]),
    healing=st.sampled_from(Healing),
    has_format=st.booleans(),
    max_tokens=st.integers(8, 160),
)
def test_the_first_files_that_fit_into_half_of_the_room_are_told_whole(
    prefix: str,
    repeats: int,
    suffix: str,
    related: tuple[RelatedFile, ...],
    path: str,
    healing: Healing,
    has_format: bool,
    max_tokens: int,
) -> None:
    specials = ("<|repo_name|>", "<|file_sep|>") if has_format else ()
    prompts = _build_prompts(fim_markers.QWEN, specials, Layout.PSM_LINE)
    request = CompletionRequest(prefix * repeats, suffix, healing=healing, related=related, path=path)
    try:
        without = prompts.build(replace(request, related=(), path=""), max_tokens)
    except InvalidRequestError:
        return

    prompt = prompts.build(request, max_tokens)

    assert len(prompt.context_ids) + prompt.num_spelling_tokens <= max_tokens
    assert prompt.related.num_tokens <= max_tokens // 2
    num_common = min(
        len(without.kept_ids), len(prompt.kept_ids)
    )  # the beginning moves in steps, so either may be longer
    ends = [each.kept_ids[len(each.kept_ids) - num_common :] for each in (without, prompt)]
    assert ends[0] == ends[1]
    assert (prompt.healed, prompt.covering) == (without.healed, without.covering)
    files = prompt.related.files
    assert [each.path for each in files] == [each.path for each in related]
    counts = [each.num_tokens for each in files]
    num_told = sum(each is not None for each in counts)
    assert None not in counts[:num_told], "the last are left out"
    for file, told in zip(related, files[:num_told], strict=False):
        assert told == ExplainedFile(file.path, _count_tokens(prompts, file))


def _count_tokens(prompts: PromptBuilder, file: RelatedFile) -> int:
    """What a file costs, encoded in the simplest way."""
    text = file.text.rstrip("\n") + "\n"
    if not prompts.related.format.name:
        return len(encode_section(prompts.tokenizer.encoder, text))
    line = file.path and f"{file.path}\n"
    return 1 + len(encode_section(prompts.tokenizer.encoder, line + text))


def test_a_file_is_left_out_only_if_it_does_not_fit() -> None:
    prompts = _build_prompts(fim_markers.QWEN, ("<|repo_name|>", "<|file_sep|>"), Layout.PSM_LINE)
    related = tuple(RelatedFile(f"f{number}.py", f"value_{number} = {number}\n" * 3) for number in range(12))
    costs = [_count_tokens(prompts, file) for file in related]
    for max_tokens in range(100, 900, 7):
        prompt = prompts.build(CompletionRequest("x = ", related=related), max_tokens)
        told = [each.num_tokens for each in prompt.related.files if each.num_tokens is not None]
        frame = len(encode_section(prompts.tokenizer.encoder, "project\n")) + 2
        room = (max_tokens - 1 - min(32, max_tokens // 4)) // 2
        fitting = [number for number in range(13) if frame + sum(costs[:number]) <= room]
        assert len(told) == max(fitting, default=0)


def test_a_file_is_encoded_once() -> None:
    prompts = _build_prompts(fim_markers.QWEN, ("<|repo_name|>", "<|file_sep|>"), Layout.PSM_LINE)
    for typed in ("x", "x =", "x = 1"):
        prompts.build(replace(_REQUEST, prefix=typed), 512)
    assert prompts.related._encode.cache_info().misses == 3 + len(_FILES)
