import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks.baselines.contestants.line_protocol import KeptTokens
from midtoken.installed import find_default_model

_TEXT = "def f(self):\n    return self.name in names  # and so on\n\n\nclass Node:\n    x = 1\n"


def _build_blanks() -> Tokenizer:
    """As GPT-2's: a line break and the blanks after it are one token, but for the last blank."""
    merges = [("Ċ", "Ġ"), ("ĊĠ", "Ġ"), ("ĊĠĠ", "Ġ")]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


@pytest.mark.parametrize("is_default", [True, False])
def test_kept_tokens_are_those_of_the_whole_text_at_each_key(is_default: bool) -> None:
    path = find_default_model() / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path)) if is_default else _build_blanks()
    kept = KeptTokens(lambda text: list(tokenizer.encode(text).ids))

    for end in [*range(1, len(_TEXT)), 5, 40]:
        assert kept.encode(_TEXT[:end]) == tokenizer.encode(_TEXT[:end]).ids, _TEXT[:end]
