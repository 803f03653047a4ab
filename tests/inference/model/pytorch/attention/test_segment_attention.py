import pytest
import torch

from inference.model.pytorch.attention import SegmentAttention
from inference.model.pytorch.pool import build_lone_segment
from inference.model.pytorch.transformers_hook import Reach, ScoreRule
from tests.support.attention_oracle import REACHES, build_pass, check_pass


@pytest.mark.parametrize("softcap", [None, 0.5])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("kind", REACHES)
def test_each_row_attends_to_the_keys_it_may_see(kind: str, has_sinks: bool, softcap: float | None) -> None:
    for seed in range(6):
        check_pass(SegmentAttention, build_pass(seed), REACHES[kind], softcap=softcap, has_sinks=has_sinks)


def test_rows_whose_keys_are_not_stored_attend_to_those_of_the_pass() -> None:
    states = torch.randn(2, 2, 3, 4)
    query, key = states[0], states[1]

    out = SegmentAttention([build_lone_segment(range(7, 10))], torch.device("cpu")).attend(
        0, query, key, key, ScoreRule(Reach(), 1.0)
    )

    expected = torch.nn.functional.scaled_dot_product_attention(query, key, key, is_causal=True, scale=1.0)
    torch.testing.assert_close(out.transpose(0, 1), expected)
