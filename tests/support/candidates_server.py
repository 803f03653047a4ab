"""A language server with several suggestions for each cursor.

`python -m tests.support.candidates_server TEXT…` suggests all of the texts.
"""

import sys

from lsprotocol import types
from pygls.lsp.server import LanguageServer


def main() -> None:
    server = LanguageServer("candidates", "1")

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    def _complete(params: types.InlineCompletionParams) -> types.InlineCompletionList:
        here = types.Range(params.position, params.position)
        return types.InlineCompletionList([types.InlineCompletionItem(text, range=here) for text in sys.argv[1:]])

    server.start_io()


if __name__ == "__main__":
    main()
