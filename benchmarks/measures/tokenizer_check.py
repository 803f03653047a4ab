"""Whether completions heal right with a tokenizer, or it is refused by name. Anything else is wrong.

The `tokenizers` library encodes the whole text. What the product keeps of its beginning, and the covering of the rest,
must be parts of that. Two differences are right: control tokens in a text stay text, so no text with one is checked;
and a text that is not in Unicode's composed form may be kept and healed in that form. What a vocabulary cannot spell
is replaced before.
"""

import json
import multiprocessing
import random
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.baselines.gguf_file import find_end, write_tokenizer_gguf
from benchmarks.corpora.awkward_text import draw_texts, insert_pieces
from benchmarks.corpora.languages import load_sources
from benchmarks.corpora.packaged_tokenizers import PACKAGED_TOKENIZERS, PackagedTokenizer
from benchmarks.corpora.tokenizer_kinds import TOKENIZER_KINDS
from benchmarks.corpora.tokenizer_training import describe_kind, write_kind
from benchmarks.measures.report import Outcome, find_mean
from inference.errors import ModelError
from inference.healing.covering import build_covering
from inference.healing.heal_point import find_heal_point
from inference.healing.loaded_tokenizer import LoadedTokenizer, load_tokenizer
from midtoken.gguf import read_metadata, write_folder_files

_NUM_CUTS = 3_000
_CUTS_PER_TEXT = 6
_DEFAULT_MODEL = Path("models/default")
_NUM_SPARE_TEXTS = 300  # texts with control tokens are not used
_SHOWN = 24  # characters or bytes

# An added token that the file does not mark as special may be a control token all the same. Tags of HTML are text.
_CONTROL = re.compile(r"<.*>|\[.*\]|\].*\[|</?\w+:|.*[|｜].*|/\w+", re.DOTALL)
_TAG = re.compile(
    r"</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|[biusa]|sub|sup|code"
    r"|html|body|img|span|ul|li|div|iframe|footer)>"
)


@dataclass(frozen=True, slots=True)
class LoadedTwice:
    """One tokenizer, as the product loads it, and as the `tokenizers` library does."""

    loaded: LoadedTokenizer
    oracle: Tokenizer

    def spells(self, spelled: bytes, text: str) -> bool:
        """True if the bytes are the text, or a blank and the text, in the form that the tokenizer gives it."""
        if spelled in (text.encode(), b" " + text.encode()):
            return True
        form = self.compose(spelled.decode(errors="replace"))
        return form in (self.compose(text), " " + self.compose(text))

    def compose(self, text: str) -> str:
        """The text in Unicode's composed form (NFC), if the tokenizer's normalizer gives it that form."""
        normalizer = self.oracle.normalizer
        composes = normalizer is not None and normalizer.normalize_str("e\u0301").endswith("é")
        return unicodedata.normalize("NFC", text) if composes else text

    def join(self, ids: Sequence[int]) -> bytes:
        """The joined bytes of the tokens."""
        return b"".join([self.loaded.vocabulary.token_bytes[token_id] for token_id in ids])


@dataclass(frozen=True, slots=True)
class Healed:
    """What the product makes of a text before the cursor."""

    kept_ids: tuple[int, ...]
    healed: bytes  # the text after the kept tokens
    crossings: tuple[tuple[tuple[int, ...], bytes], ...]  # the path after the kept tokens, and the remaining bytes


def load_twice(folder: Path, published: Path | None = None) -> LoadedTwice:
    """Loads the folder's tokenizer as for a model, and that which was published. Raises ModelError if it is refused."""
    loaded = load_tokenizer(folder)
    oracle = Tokenizer.from_file(str((published or folder) / "tokenizer.json"))
    oracle.no_truncation()  # truncation and padding are for training
    oracle.no_padding()
    return LoadedTwice(loaded, oracle)


def find_start_defect(tokenizer: LoadedTwice) -> str | None:
    """What is wrong with the tokens that every text begins with; None if nothing is."""
    encoding = tokenizer.oracle.encode("a")
    expected = tuple(encoding.ids[: encoding.special_tokens_mask.index(0)])
    if expected and tokenizer.loaded.start_ids != expected:
        return f"texts begin with the tokens {expected}, not {tokenizer.loaded.start_ids}"
    return None


def find_text_defect(tokenizer: LoadedTwice, text: str, ids: Sequence[int]) -> str | None:
    """What is wrong with the bytes of a text's tokens; None if nothing is."""
    spelled = tokenizer.join(ids)
    if tokenizer.spells(spelled, text):
        return None
    return f"the tokens of a text spell {spelled[-_SHOWN:]!r}, not {text.encode()[-_SHOWN:]!r}"


def heal(tokenizer: LoadedTwice, typed: str) -> Healed:
    """What the product makes of a text before the cursor."""
    encoder, trie = tokenizer.loaded.encoder, tokenizer.loaded.trie
    point = find_heal_point(encoder, typed)
    covering = build_covering(encoder, trie, point)
    tree = covering.tree.with_chain((0,))
    paths = [tree.find_path(crossing.node) for crossing in covering.crossings]
    common_ids: tuple[int, ...] = covering.common_ids
    return Healed(
        kept_ids=point.kept_ids + common_ids,
        healed=point.healed[len(tokenizer.join(common_ids)) :],
        crossings=tuple(
            (tuple([tree.branch_ids[branch] for branch in path]), crossing.remaining_bytes)
            for path, crossing in zip(paths, covering.crossings, strict=True)
        ),
    )


def find_cut_defect(tokenizer: LoadedTwice, healed: Healed, typed: str, text: str, ids: tuple[int, ...]) -> str | None:
    """What is wrong with what the product made of `typed`, the beginning of `text`; None if nothing is.

    `ids`: the tokens of the whole text, by the `tokenizers` library.
    """
    if ids[: len(healed.kept_ids)] != healed.kept_ids:
        return "the kept tokens are not the first tokens of the finished text"
    begun = tokenizer.join(healed.kept_ids) + healed.healed
    if not tokenizer.spells(begun, typed):
        return f"the kept tokens and the healed bytes spell {begun[-_SHOWN:]!r}"
    if not tokenizer.join(ids).startswith(begun):
        joins = not tokenizer.compose(text).startswith(tokenizer.compose(typed))  # "e", the cursor, a combining accent
        return None if joins else "the kept and healed bytes do not begin the finished text"
    following = ids[len(healed.kept_ids) :]
    num_crossings = sum(_crosses(tokenizer, healed, crossing, following) for crossing in healed.crossings)
    return None if num_crossings == 1 else f"the finished text takes {num_crossings} crossings of the covering tree"


def _crosses(
    tokenizer: LoadedTwice, healed: Healed, crossing: tuple[tuple[int, ...], bytes], following: tuple[int, ...]
) -> bool:
    """True if the tokens after the kept ones are the crossing's path, and one that spells the rest and more."""
    path, remaining = crossing
    if following[: len(path)] != path or tokenizer.join(path) + remaining != healed.healed:
        return False
    token = tokenizer.join(following[len(path) : len(path) + 1])
    return token.startswith(remaining) and len(token) > len(remaining)


@dataclass(frozen=True, slots=True)
class TokenizerRow:
    """The outcome for one tokenizer."""

    name: str
    source: str  # the parts of a tokenizer that is built; the package of a real one
    outcome: Outcome
    reason: str  # the words of the refusal, or the number of defects and the first one; empty if right
    num_cuts: int
    mean_healed_bytes: float | None


@dataclass(frozen=True, slots=True)
class TokenizerFolder:
    """A tokenizer to check."""

    name: str
    source: str
    folder: Path  # as a model folder, with `tokenizer.json`
    published: Path | None = None  # the folder of the tokenizer that it was made of


def check_tokenizers(num_workers: int, num_folders: int | None = None) -> list[TokenizerRow]:
    """A row for every tokenizer that is built, and for every packaged one that is here, or for the first."""
    print("looking for source code", flush=True)
    texts = draw_texts(load_sources(seed=0), _NUM_CUTS // _CUTS_PER_TEXT + _NUM_SPARE_TEXTS, seed=0)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(num_workers, context) as workers:
        check = partial(check_folder, texts=texts, num_cuts=_NUM_CUTS)
        rows = []
        for row in workers.map(check, islice(_iter_folders(Path(folder)), num_folders)):
            print(f"{row.name:32}{row.outcome:8} {row.reason}", flush=True)
            rows.append(row)
    return rows


def check_folder(found: TokenizerFolder, texts: Sequence[str], num_cuts: int) -> TokenizerRow:
    """Checks one tokenizer with cuts of `texts`, six of each."""
    name, source = found.name, found.source
    try:
        tokenizer = load_twice(found.folder, found.published)
    except ModelError as error:
        message = str(error).replace(f"{found.folder}/", "").replace(str(found.folder), "the folder")
        outcome = Outcome.REFUSED if message and "\n" not in message else Outcome.WRONG
        return TokenizerRow(name, source, outcome, message, 0, None)
    return check_tokenizer(name, source, tokenizer, texts, num_cuts)


def check_tokenizer(
    name: str, source: str, tokenizer: LoadedTwice, texts: Sequence[str], num_cuts: int
) -> TokenizerRow:
    """Checks a tokenizer that has been loaded."""
    rng = random.Random(name)
    defects = [find_start_defect(tokenizer)]
    num_healed_bytes: list[int] = []
    num_done = 0
    encoder = tokenizer.loaded.encoder
    for drawn in islice(_iter_usable_texts(tokenizer.oracle, texts, rng), num_cuts // _CUTS_PER_TEXT):
        composed = encoder.normalize(drawn)
        text = encoder.replace_unspelled(composed) if encoder.find_unspelled(composed) else drawn
        ids = tuple(tokenizer.oracle.encode(text, add_special_tokens=False).ids)
        defects.append(find_text_defect(tokenizer, text, ids))
        for cut in [rng.randrange(1, len(text)) for _ in range(_CUTS_PER_TEXT)]:
            defects.append(_check_cut(tokenizer, text, cut, ids, num_healed_bytes))
            num_done += 1
    if num_done < num_cuts:
        defects.append("there are too few texts without its control tokens")
    found = [defect for defect in defects if defect is not None]
    reason = f"{len(found):,} defects in {num_done:,} cuts; {found[0]}" if found else ""
    outcome = Outcome.WRONG if found else Outcome.RIGHT
    return TokenizerRow(name, source, outcome, reason, num_done, find_mean(num_healed_bytes))


def _check_cut(
    tokenizer: LoadedTwice, text: str, cut: int, ids: tuple[int, ...], num_healed_bytes: list[int]
) -> str | None:
    try:
        healed = heal(tokenizer, text[:cut])
        num_healed_bytes.append(len(healed.healed))
        defect = find_cut_defect(tokenizer, healed, text[:cut], text, ids)
    except Exception as error:  # whatever the product raises here is a defect
        defect = f"{type(error).__name__}: {error}"
    shown = f"{text[max(cut - _SHOWN, 0) : cut]!r} before {text[cut : cut + _SHOWN]!r}"
    return None if defect is None else f"{defect}: {shown}"


def _iter_usable_texts(oracle: Tokenizer, texts: Sequence[str], rng: random.Random) -> Iterator[str]:
    """The texts without control tokens, some of them with added tokens that are ordinary text, such as blanks."""
    added = oracle.get_added_tokens_decoder().values()
    controls = [
        token.content
        for token in added
        if token.special or (_CONTROL.fullmatch(token.content) and not _TAG.fullmatch(token.content))
    ]
    pieces = [token.content.replace("▁", " ") for token in added if token.content not in controls]
    for text in texts:
        with_pieces = insert_pieces(text, pieces, rng)
        if len(with_pieces) > 1 and not any(control in with_pieces for control in controls):
            yield with_pieces


def _iter_folders(folder: Path) -> Iterator[TokenizerFolder]:
    """The tokenizers to check. Those that are built are written into `folder`."""
    yield TokenizerFolder("default", str(_DEFAULT_MODEL), _DEFAULT_MODEL)
    for kind in TOKENIZER_KINDS:
        yield TokenizerFolder(kind.name, describe_kind(kind), write_kind(kind, folder / kind.name))
    for packaged in PACKAGED_TOKENIZERS:
        if packaged.is_fetched:
            yield TokenizerFolder(packaged.name, packaged.source, packaged.folder)
            if packaged.pre_tokenizer is not None:
                made = _make_folder(packaged, folder / f"{packaged.name}.gguf")
                yield TokenizerFolder(f"{packaged.name}, of GGUF", packaged.source, made, packaged.folder)


def _make_folder(packaged: PackagedTokenizer, path: Path) -> Path:
    """The model folder for a GGUF file with the tokenizer."""
    spec = json.loads((packaged.folder / "tokenizer.json").read_text(encoding="utf-8"))
    encoding = Tokenizer.from_file(str(packaged.folder / "tokenizer.json")).encode("a")
    ids = {"tokenizer.ggml.eos_token_id": find_end(spec), "tokenizer.ggml.add_bos_token": False}
    if encoding.special_tokens_mask[0]:
        ids |= {"tokenizer.ggml.bos_token_id": encoding.ids[0], "tokenizer.ggml.add_bos_token": True}
    write_tokenizer_gguf(path, spec, packaged.pre_tokenizer, **ids)
    made = path.with_name(f"{packaged.name} made")
    made.mkdir()
    for name, content in write_folder_files(read_metadata(path)).items():
        (made / name).write_text(json.dumps(content), encoding="utf-8")
    return made
