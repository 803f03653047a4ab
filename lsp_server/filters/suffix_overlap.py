"""Text that repeats the rest of the cursor's line."""

from lsp_server.brackets import BRACKETS, QUOTES, count_faults, match_brackets
from lsp_server.text.context import Context


def replaces_rest(text: str, context: Context) -> bool:
    """True if the rest of the line is closing brackets, and the first line of `text` closes those already."""
    before, after = context.line_before, context.line_after.rstrip()
    line = text.partition("\n")[0]
    if not all(char in BRACKETS for char in after) or not match_brackets(line)[1].startswith(after):
        return False
    return count_faults(before + line) < count_faults(before + line + after)


def cut_to_line(text: str, context: Context) -> str:
    """In the middle of a line, keeps the first line, unless a block follows that closes the line's own brackets."""
    if not context.line_after.strip() or ("\n" in text.strip() and replaces_rest(text, context)):
        return text
    return text.partition("\n")[0]


def trim_overlap(text: str, context: Context) -> str:
    """In the middle of a line, removes an end of `text` that the rest of the line begins with, if one can be removed.

    Of several, it is the one that leaves the fewest brackets and quotes open, and of those the longest: `f(g(` needs
    the bracket of `x)` before `)`, and one of `h(x))` before `))`.
    """
    line, before, after = text.rstrip(), context.line_before, context.line_after.rstrip()
    if not after or "\n" in line:
        return text
    kept = [line]
    for length in range(1, min(len(line), len(after)) + 1):
        if after.startswith(line[-length:]) and not _cuts_word(line[-length:], after):
            kept.append(line[:-length])
    best = min(reversed(kept), key=lambda each: count_faults(before + each + after))
    return text if best == line else best


def trim_blanks(text: str, context: Context) -> str:
    """Removes white space at the end, but not where it separates `text` from a word or quote: `not ` before `x`."""
    after = context.line_after.rstrip()
    separates = bool(after) and "\n" not in text and (is_word(context.line_after[0]) or context.line_after[0] in QUOTES)
    return text if separates and text.strip() else text.rstrip()


def is_word(char: str) -> bool:
    """True for a character of a name."""
    return char.isalnum() or char == "_"


def _cuts_word(overlap: str, after: str) -> bool:
    """True if the overlap ends inside a word of the suffix: `e` does not repeat `else`."""
    return len(after) > len(overlap) and is_word(overlap[-1]) and is_word(after[len(overlap)])
