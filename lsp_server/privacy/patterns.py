"""Patterns as in .gitignore. Each is compared with one path at a time, as Git does: a folder, then what is in it.

pathspec translates them. It differs from Git in sets such as `[!a-z]` and in blanks at the end, so these are translated
here. Text and paths are bytes written as Latin-1, because `?` and sets mean one byte.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

_TRAILING_BLANKS = re.compile(r"((?:\\.|[^\\])*?) *", re.DOTALL)
_NAMED_SETS: dict[str, Callable[[str], bool]] = {  # those of the C locale
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "blank": lambda char: char in " \t",
    "cntrl": lambda char: ord(char) < 32 or ord(char) == 127,
    "digit": str.isdecimal,
    "graph": lambda char: 32 < ord(char) < 127,
    "lower": str.islower,
    "print": str.isprintable,
    "punct": lambda char: 32 < ord(char) < 127 and not char.isalnum(),
    "space": lambda char: char in " \t\n\v\f\r",
    "upper": str.isupper,
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}
_ASCII = [chr(code) for code in range(128)]
_BYTES = [chr(code) for code in range(256)]
# Git compares what is before the first wildcard by itself. So `a**/b` is like `a`, then `**/b`.
_BEFORE_STARS = re.compile("[^*?\\\\\ue000-\uf8ff]+(?<!/)(?=\\*\\*(?:/|$))")
# A star and what follows it, before another star: if that follows in several places, the first is as good as any other.
# Without this, `*a*a*a*a*b` takes seconds for some names.
_STAR = r"\[\^/\]\*"
_BETWEEN_STARS = re.compile(rf"{_STAR}((?:(?!{_STAR})[^()])+)(?={_STAR})")
_MAX_DEEP = 3  # `**` in a pattern; each makes the time for a path as much longer as the path is deep
_FIRST_MARK = 0xE000  # characters from here on stand for regular expressions; none of them is in Latin-1


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file."""

    text: str
    line: int  # from 1
    is_negated: bool
    needs_folder: bool
    regex: re.Pattern[str]

    def matches(self, path: str, is_folder: bool) -> bool:
        """Compares it with a path relative to the folder of the ignore file, without a slash at either end."""
        return (is_folder or not self.needs_folder) and self.regex.fullmatch(path) is not None


def parse_patterns(lines: Iterable[str]) -> tuple[Pattern, ...]:
    """Returns the patterns of the lines of an ignore file. Comments, and lines that cannot match, are left out."""
    numbered = enumerate(lines, 1)
    return tuple(pattern for number, line in numbered if (pattern := parse_pattern(line, number)) is not None)


def parse_pattern(line: str, number: int = 1) -> Pattern | None:
    """Returns the pattern of a line; None for a comment, a blank line and a pattern that can match nothing."""
    text = line.removesuffix("\r")
    trimmed = _TRAILING_BLANKS.fullmatch(text)
    text = trimmed[1] if trimmed else text  # one that ends with a single backslash is kept, and matches nothing
    if text.startswith("#"):
        return None
    named = text.removeprefix("!")
    bare = named.removesuffix("/")
    is_negated = named != text
    regex = _translate(bare, "/" in bare, is_negated) if bare else None
    return None if regex is None else Pattern(text, number, is_negated, bare != named, regex)


def is_refused(text: str) -> bool:
    """True for a pattern that is not blank and no comment, and can still match nothing, such as one with half a set."""
    try:
        is_missing = parse_pattern(to_latin1(text)) is None
    except UnicodeEncodeError:  # half of a surrogate pair
        return True
    return is_missing and bool(text.strip()) and not text.startswith("#")


def find_last_match(patterns: tuple[Pattern, ...], path: str, is_folder: bool) -> Pattern | None:
    """Returns the pattern that decides about a path within one list: the last one that matches it."""
    return next((pattern for pattern in reversed(patterns) if pattern.matches(path, is_folder)), None)


def to_latin1(path: str) -> str:
    """Returns the bytes of a path as Latin-1, the form that patterns are compared with."""
    return os.fsencode(path).decode("latin-1")


def _translate(text: str, is_anchored: bool, is_negated: bool) -> re.Pattern[str] | None:
    """Returns the regular expression of a pattern without `!` and slash around it; None if it can match nothing."""
    marked = _mark_sets(text)
    if marked is None:
        return None
    glob, regexes = marked
    glob = re.sub(r"\*{3,}", "**", glob)  # Git takes more stars for two
    literal = ""
    if is_anchored:
        glob = glob.removeprefix("/")
        found = _BEFORE_STARS.match(glob)
        literal = found[0] if found else ""
        glob = glob[len(literal) :] if literal else f"/{glob}"
    regex = _translate_glob(glob, is_negated)
    if regex is None:
        return None
    if literal:
        # What `**` stands for may begin with a slash here, so `(?:.+/)?` becomes `(?:.*/)?`, and `.+` becomes `.*`.
        regex = re.escape(literal) + regex.removeprefix("^").replace(".+", ".*", 1)
    regex = _BETWEEN_STARS.sub(r"(?>[^/]*?\1)", regex)
    return re.compile("".join(regexes.get(char, char) for char in regex), re.DOTALL)


def _translate_glob(glob: str, is_negated: bool) -> str | None:
    segments = [segment if segment == "**" else re.sub(r"\*+", "*", segment) for segment in glob.split("/")]
    segments = [each for each, after in zip(segments, [*segments[1:], ""], strict=True) if not each == after == "**"]
    if segments.count("**") > _MAX_DEEP:
        if is_negated:
            return None
        segments = _shorten(segments)
    if segments[-1] == "**" and len(segments) > 1:
        segments.append("*")  # what is in a folder, but not the folder
    glob = "/".join(segments)
    try:
        regex, _ = GitIgnoreSpecPattern.pattern_to_regex(f"\\{glob}" if glob.startswith(("!", "#")) else glob)
    except ValueError:
        return None
    return ".+" if regex == "." else regex


def _shorten(segments: list[str]) -> list[str]:
    """Returns a pattern that matches more: with one `**` for the first, the last and all between them."""
    last = len(segments) - segments[::-1].index("**")
    return [*segments[: segments.index("**") + 1], *segments[last:]]


def _mark_sets(text: str) -> tuple[str, dict[str, str]] | None:
    """Replaces sets and blanks by marks. Returns also the regular expression that each mark stands for."""
    glob, at = "", 0
    regexes: dict[str, str] = {}
    while at < len(text):
        char, regex = text[at], ""
        at += 1
        if char == "\\" and text[at : at + 1].isspace():
            char = text[at]
            at += 1
        if char == "[":
            read = _read_set(text, at)
            if read is None:
                return None
            chars, at = read
            regex = f"[{''.join(map(re.escape, chars))}]" if chars else "(?!)"
        elif char.isspace():
            regex = re.escape(char)
        elif char == "\\":
            char += text[at : at + 1]
            at += 1
        if regex:
            char = chr(_FIRST_MARK + len(regexes))
            regexes[char] = regex
        glob += char
    return glob, regexes


def _read_set(text: str, at: int) -> tuple[list[str], int] | None:
    """Returns the bytes in a set whose `[` is before `at`, and the place after its `]`; None if it is invalid.

    Steps as in Git's wildmatch.c. A set never contains `/`.
    """
    is_negated = text[at : at + 1] in ("!", "^")
    at += is_negated
    chars: set[str] = set()
    first, previous = True, ""
    while first or text[at : at + 1] != "]":
        first = False
        char = text[at : at + 1]
        if char == "[" and text[at + 1 : at + 2] == ":" and (close := text.find("]", at + 2)) >= 0:
            if text[close - 1] == ":" and close - 1 >= at + 2:
                if (test := _NAMED_SETS.get(text[at + 2 : close - 1])) is None:
                    return None
                chars |= {each for each in _ASCII if test(each)}
                at, previous = close + 1, ""
                continue
        elif char == "-" and previous and text[at + 1 : at + 2] not in ("", "]"):
            at += 2 if text[at + 1] == "\\" else 1
            chars |= {each for each in _BYTES if previous <= each <= text[at : at + 1]}
            if not text[at : at + 1]:
                return None
            at, previous = at + 1, ""
            continue
        elif char == "\\":
            at += 1
            char = text[at : at + 1]
        if not char:
            return None
        chars.add(char)
        at, previous = at + 1, char
    return [each for each in _BYTES if (each in chars) != is_negated and each != "/"], at + 1
