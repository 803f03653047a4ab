from benchmarks.corpora.sent_requests import iter_requests
from benchmarks.corpora.sized_files import SizedFile
from benchmarks.corpora.typist import draw_session

_CODE = "def read_lines(source_file):\n    return source_file + 'é😀'  # and more\n\n\n"


def test_requests_have_the_text_around_the_cursor() -> None:
    session = draw_session([SizedFile("a.py", _CODE * 300, 9_000), SizedFile("b.py", _CODE * 4, 300)], 1_500, seed=1)
    short_files = 0

    for moment, request in zip(session.iter_asking(), iter_requests(session), strict=True):
        assert moment.prefix.endswith(request.prefix)
        assert moment.suffix.startswith(request.suffix)
        is_whole = (request.prefix, request.suffix) == (moment.prefix, moment.suffix)
        assert is_whole or moment.key.document == 0
        assert is_whole or len(request.prefix.encode()) > 4_000 or len(moment.prefix.encode()) < 8_192
        short_files += is_whole

    assert 0 < short_files < sum(key.asks for key in session.keys)
