"""What reaches the completion server of 44 excluded files and 30 forms of secrets: nothing."""

from pathlib import Path

from benchmarks.corpora.private_files import count_secret_bytes, iter_excluded, iter_secrets
from benchmarks.measures.private_text import collect_sent_text


async def test_no_byte_of_them_is_sent_or_said(tmp_path: Path) -> None:
    text = await collect_sent_text(tmp_path)
    assert text.secret_bytes_sent == 0
    assert text.secret_bytes_said == 0
    # Every harmless document and every document with a secret was asked about, so the backend did record.
    num_excluded, num_secrets = len(list(iter_excluded())), len(list(iter_secrets()))
    assert (text.num_documents, text.num_asked) == (2 * num_excluded + num_secrets, num_excluded + num_secrets)
    excluded = [line for line in text.said if "excluded: " in line]
    assert len(excluded) >= num_excluded


def test_the_measure_counts_a_secret_that_is_sent() -> None:
    assert count_secret_bytes(["x = 12345678 9"], ["0123456789"]) == 8
