"""Finds values beside a telling name: `password = "…"`, `config("DB_PASSWORD", default="…")`, `return "…"` in a getter.

There is no grammar of any language. From each name of a secret the text is read on to the end of its statement, as
literals, words and marks. How surprising a value must be depends on what is between:

1. next to the name of a password, with marks of assignment between them at most: whatever a person could choose;
2. elsewhere in its statement, or beside a name such as `token`: characters that look random, or that obey the rules
   for passwords (letters of both cases, digits and a special character).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import re2

from lsp_server.privacy.surprise import RANDOM_BITS, is_random


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From a character to before another one."""

    start: int
    end: int


# Names of passwords in any language, those of other secrets, and those that need something before them.
_PASSWORDS = (
    r"passw(?:or)?d|passwort|passphrase|passcode|pswd|pwd|secret|(?:api|access|private|secret)[_.-]?key"
    r"|requirepass|masterauth|identified\s+by|kennwort|contrase(?:ñ|n|ny)a|mot_?de_?passe|palavra_?passe|senha"
    r"|wachtwoord|l[öo]senord(?:et)?|secret[ao]|passord"
    r"|salasana|adgangskode|jelszó|jelszo|lozinka|slaptažodis|hasło|şifre|geheim|секрет|пароль|密码|密碼|口令|パスワード"
    r"|비밀번호|암호|סיסמה|كلمة_?المرور|पासवर्ड|mật_?khẩu|mat_?khau"
)
_SHORT_PASSWORDS = "pass|pw|psk|mdp|clave|heslo|haslo|geslo|sifre|parol[ae]?|parool"
_OTHERS = "token|jwt|bearer|cookie|session|salt|auth|login|connect|credential"
_SHORT_OTHERS = "[a-z]+pw|key|auth|pw|sig|otp|pin|dsn|pdo"
_NAME = re2.compile(rf"[\pL\pN_.$-]*(?i:{_PASSWORDS}|{_SHORT_PASSWORDS}|{_OTHERS}|{_SHORT_OTHERS})[\pL\pN_.$-]*")
# How such a name ends. Words after that, but those of _LABEL, do not matter.
_END = r"(?i:s?)\d*(?P<rest>[^a-zA-Z].*|(?<![A-Z])[A-Z].*)?$"
_PASSWORD = re.compile(rf"(?:(?i:{_PASSWORDS}|(?<![^\W_])(?:{_SHORT_PASSWORDS}))|[A-Z]PASS|[a-z]P(?:ass|w)){_END}")
_OTHER_NAME = re.compile(
    rf"(?:(?i:{_OTHERS}|getconnection|authorization|(?<![^\W_])(?:{_SHORT_OTHERS}))|[a-z](?:Key|Auth)){_END}"
)
_LABEL = re.compile(
    r"(?i)(?:file|path|name|dir|folder|ur[li]|endpoint|field|label|help|text|type|prefix|suffix|len|length|size|min|max"
    r"|regex|pattern|format|policy|ids?|env|var|header|param|prompt|error|message|msg|template|column|class|changed|hash"
    r"|expir|valid|count|index|ref|arn|store|manager|provider|placeholder|enable|require|hint|title|desc|scope|ttl|timeout|algo?|kind|mode|state|location)"
)
_GETTER = re.compile(r"\b(?:def|fn|func|fun|function|sub|val|method)\s+(?:\w+[.:]+)?$")  # before its name
_SETTER = re.compile(r"(?i)(?:.*[.:>])?(?:(?:set|with)\w*)?$")
_READER = re.compile(
    r"(?i)(?:get|set|env|define|option|property|attr|argument|put|fetch)\w*!?\(\s*(?:\w+\s*,\s*)?[bfru]?[\"']-*$"
)
_OPEN_QUOTE = re.compile(r"\w\w'\w|[&<]'\w+|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|([\"'`])")

# What is read after a name. A piece with a group is a literal.
_LITERAL = (
    r"\\+[\"']([^\"'\\\n]*)"
    r"|\"\"\"(.+?)(?:\"\"\"|\Z)|'''(.+?)(?:'''|\Z)"
    r"|[rR][\"'][\w-]{0,16}[(\[{]([^\n]*?)[)\]}][\w-]{0,16}[\"']"  # C++, R
    r"|\#{1,4}\"(.*?)\"\#"  # Rust, Swift
    r"|(?:%[qQwW]?[(\[{<]|\bqq?\{)([^\n]*?)[)\]}>]"  # Ruby, Perl
    r"|<!\[CDATA\[(.*?)\]\]>"
    r"|\[=*\[([^\]\[\"'\n]*?)\]=*\]"  # Lua
    r"|\$\w*\$([^\n]+?)\$\w*\$"  # PostgreSQL
    r"|<<[-~]?\s?[\"']?[A-Za-z]\w*[\"']?[^\n]*\n[ \t]*([^\n]+)"  # what lines follow, up to a word
    r"|>([^<>\n{}()]{2,})</"
    r"|\"((?:[^\"\\\n]|\\.)*)\"?|'((?:[^'\\\n]|\\.)*)'?|`([^`\n]*)`?"
)
_LIFETIME = r"[&<]'[a-z]\w*"
_PIECE = re.compile(
    rf"(?P<glue>{_LIFETIME}|</?[A-Za-z][\w:.-]*|[&!]\w+(?=[ \t])|[bBfFrRuUlLN@$]{{1,2}}(?=\#*[\"'`]))|{_LITERAL}"
    r"|(?P<line>[ \t\r]*\n\s*)|(?P<blank>[ \t]+)|(?P<word>[^\W_][\w.!]*|_\w*)"
    r"|(?P<mark><<<|==+|=>|:=|\?\?=?|\?:|\|\||->|<-|&&|\S)",
    re.DOTALL,
)
# Words that may stand between a name and its value.
_NEUTRAL = re.compile(
    r"(?i)(?:\w+[.:]+)*(?:default\w*|value|val|str|string|text|bytes?|secure\w*|secret\w*|field|some|ok|new|from|of|to_?string|as|is|set"
    r"|var|let|const|static|n?varchar\w*|char|or|by|lazy|b64decode|password|passwd|optional|bearer|basic|token|identified"
    r"|with|toowned|to_owned|into|convertto)(?:[.:]+\w+)?!?"
)
_JOINS = re.compile(r"[=:(\[{,><!*@\\]|:=|=>|<-|===?|\?\?=?|\?:|\|\|")
_GOES_ON = re.compile(r"[=:(\[{,>\\+|-]|:=|=>|<-|->|\?\?|\?:|\|\||&&")
_PAIRS, _LISTS = ("=", ":", "=>", ":="), ("{", ",", "(", "[")
_GIVES = re.compile(r"\s*(?:=|or\b|\|\||\?[?:]|:=)")
_IS_KEY = re.compile(r"\s*(?::(?!:)|=>|=(?!=))")
_VALUE = re.compile(r"(?i)(?:default|value|val)\w*")
_NEXT = re.compile(r"[\"'<-]*(?:value|default|string|val)\b|[.+|&=]|\?[?:]")
_MAX_REACH, _MAX_PIECES = 400, 40

# A value without quotes, and what may be between it and the name.
_BARE = re.compile(
    r"""(?:(?P<pair>["']?[,:]?\s+["']?(?:value|default)["']?\s*[=:]\s*)
      |\\*["'`]?[\])}>]{0,2}(?P<mark>[ \t]*(?:[:?+]?==?>?|:-?|<-)[ \t]*)
       (?:[|>][+-]?\d?[ \t]*)?(?:\n[ \t]+)?(?:[&!][\w!:-]*[ \t]+)?
      |[ \t]+(?:is[ \t]+)?)
      (?:(?P<scheme>(?i:bearer|basic|token|digest|apikey|session))[ \t=]+)?(?P<value>[^\s"'`<>=][^\s"'`<>]*)""",
    re.VERBOSE,
)
_LEAD = re.compile(r"[\s#/;*!-]*(?:(?i:export|set|setx|setenv|env|arg|local|readonly)\s+(?:-\w\s+)?)?[\"']?(?:\$env:)?")
_END_OF_LINE = re.compile(r"[ \t]*(?:(?:[#;]|//|-->).*|\\)?$", re.MULTILINE)
_CUT = re.compile(r"[,;&)}\]|](?:.*)")

_TEMPLATE = re.compile(  # closed or not: one may be typed
    r"[$#]?\{+[^{}]*(?:\}+|$)|^\$\w+$|\$\(\w*\)?|%\(\w*\)?[srd]?|%[srd](?!\w)|^<[^>]*>?$|^\[.*\]?$|^\*\*.*|^[*.x_#?-]+$|^\d+/.*"
    r"|^(?i:bearer|basic|token) "
)
_PROSE = re.compile(
    r"(?i)(?:^|\s)(?:the|your?|an?|is|to|of|for|must|not|enter|and|no|or|be|at|use|with|in)(?:\s|$)|\(\)"
)
_PATH = re.compile(r"[.~]{0,2}/|.*://|[,;:)\] ]|[A-Za-z@.-]+(?:/[A-Za-z.-]+)+$")
_CODE = re.compile(
    r".*(?:[(){}\[\],;]|:$)|[A-Z][A-Z0-9]*_[A-Z0-9_]+$"
    r"|(?:[a-z]*(?:int|float|utf|sha|md|base|str|arg|pass\w*|secret|token|key)|[a-z])\d+\w*$"
)
_UNMARKED = re.compile(r"(?=.*[\d!@#$])[^\s\"'`:]+")  # `password "…"`
_WORDS = re.compile(r"[A-Za-z_][A-Za-z_.]*")
_NO_TOKEN = re.compile(r"[\s\\(){}\[\]<>,;]|^0x|://")
_KIND = re.compile(
    r"(?i)(?:0x[0-9a-f]{1,8}|yes|no|true|false|none|null|str(?:ing)?|func(?:tion)?|object|undefined|number"
    r"|bool(?:ean)?)$"
)
_RUN = re.compile(r"(?:[\w.@-]+:)?([^\s\"'`<>(){}\[\],;]{8,})")
_RULED = re.compile(
    r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d.*[!@#$]|.*[!@#$].*\d|(?:.*[A-Za-z]\d[a-z]){2}|(?:.*[!@#$]){2})\w[\w!@#$^&*?.+-]{7,}"
)
_MAX_READ_CHARS = 200  # of a name or a value: these tell what it is

# Passwords that no name is beside.
_PLACES = tuple(
    (is_typed, re2.compile(place))
    for is_typed, place in (
        (True, r"[a-zA-Z][\w+.-]*://[^\s/:@\"'`<>]*:([^\s\"'`<>]+)@"),
        (True, r"\w:([^\s:@\"'`<>]+)@(?:tcp|udp|unix)?\("),
        (True, r"jdbc:oracle:\w+:[^/\s\"']+/([^@\s\"']+)@"),
        (
            False,
            r"(?:^|[\s\"'\[,])-(?:[pPaAwWk][\s\"',=]{0,4}|(?:u|-user)[\s=]{0,2}[\"']?[^\s:\"']+:|U\s?[^\s%\"']+%)"
            r"([^\s\"'`-][^\s\"'`]*)",
        ),
    )
)


def find_named_values(text: str) -> Iterator[Span]:
    """Yields where values of names of secrets are, and passwords in addresses and options of commands."""
    for is_typed, place in _PLACES:
        for match in place.finditer(text):
            if _is_password("", match[1], True) if is_typed else _is_token(match[1]):
                yield Span(*match.span(1))
    searched = 0
    for match in _NAME.finditer(text):
        start, end = match.span()
        name = text[max(start, end - _MAX_READ_CHARS) : end]
        password = _PASSWORD.search(name)
        found = password or _OTHER_NAME.search(name)
        if found is not None and not _LABEL.search(found["rest"] or ""):
            secret = _Name(text, start, end, name, name[: found.start()], password is not None)
            yield from _find_values(secret)
            if secret.is_password and name.lower() != "pass":  # to pass on
                line_end = text.find("\n", end, end + _MAX_READ_CHARS)
                stop = line_end if line_end >= 0 else end + _MAX_READ_CHARS
                yield from _find_beside(secret, max(searched, start - len(secret.before)), stop)
                searched = stop  # of a long line with many names, no place is read twice


@dataclass(frozen=True, slots=True)
class _Name:
    """A name of a secret in a text."""

    text: str
    start: int
    end: int
    name: str
    beginning: str  # what is before the word that tells
    is_password: bool

    @property
    def before(self) -> str:
        """Its line before it."""
        return self.text[max(self.text.rfind("\n", 0, self.start) + 1, self.start - _MAX_READ_CHARS) : self.start]

    @property
    def is_set(self) -> bool:
        """True for `set_password("…")`, but not for `hash_password("…")` and the `t.pass("…")` of a test."""
        return len(self.name) - len(self.beginning) > len("pass") and _SETTER.fullmatch(self.beginning) is not None

    @property
    def is_symbol(self) -> bool:
        """True for `:password`."""
        return self.text[self.start - 1 : self.start] == ":"

    def accepts(self, value: str, is_next: bool, is_quoted: bool) -> bool:
        """True for a value that is a secret. `is_next`: it stands next to the name, with marks between at most."""
        is_chosen = self.is_password and is_next and _is_password(self.name, value[:_MAX_READ_CHARS], is_quoted)
        return is_chosen or _is_token(_TEMPLATE.sub("", value[:_MAX_READ_CHARS]))


def _find_values(name: _Name) -> Iterator[Span]:
    text, before = name.text, name.before
    quote = next((match[1] for match in reversed([*_OPEN_QUOTE.finditer(before)]) if match[1]), "")
    is_key = (
        before[-1:] != "" and before[-1:] in "\"'`" and text[name.end : name.end + 2].lstrip("\\")[:1] == before[-1]
    )
    bare = _find_bare(name, before)
    if bare is not None:
        yield bare
    start, limit = name.end, name.end + _MAX_REACH // (1 if name.is_password else 2)
    if is_key:
        start = text.index(before[-1], start) + 1
    elif quote:
        closing = text.find(quote, start, limit)
        line_end = text.find("\n", start, limit)
        limit = min(each for each in (closing, line_end, limit) if each >= 0)
    is_reader = is_key and _READER.search(before) is not None
    for span, is_next in _Statement(name, is_key, is_reader).iter_literals(start, limit):
        if name.accepts(text[span.start : span.end].strip(), is_next, True):
            yield span


def _find_beside(name: _Name, start: int, end: int) -> Iterator[Span]:
    """Yields what looks random between two places on the line of a name."""
    for match in _RUN.finditer(name.text, start, end):
        if (match.end(1) <= name.start or match.start(1) >= name.end) and _is_token(match[1]):
            yield Span(*match.span(1))


def _find_bare(name: _Name, before: str) -> Span | None:
    match = _BARE.match(name.text, name.end, name.end + _MAX_REACH)
    if match is None:
        return None
    start, end = match.span("value")
    is_line = _LEAD.fullmatch(before) is not None and _END_OF_LINE.match(name.text, end) is not None
    cut = None if is_line else _CUT.search(name.text, start, end)
    end = end if cut is None else cut.start()
    value, mark = name.text[start:end], match["mark"] or ""
    if match["scheme"] and is_random(value):
        return Span(start, end)
    is_item = mark.startswith(":") and before.rstrip()[-1:] in ("{", ",") and name.text[end : end + 1] in ("}", ",")
    is_given = (
        (is_line and (mark != "" or any(map(str.isdigit, value))))
        or is_item
        or mark in ("=", ":-")
        or match["pair"]
        or name.name.startswith("--")
    )
    return Span(start, end) if name.accepts(value, bool(is_given), False) else None


@dataclass(slots=True)
class _Statement:
    """The statement of a name, as far as it is read."""

    name: _Name
    is_key: bool  # the name stands in quotes
    is_reader: bool  # of a call such as `getenv("PASSWORD", "…")`
    depth: int = 0  # of brackets, from the name on
    is_next: bool = True  # nothing but marks of assignment is between the name and here
    is_marked: bool = False
    is_pair: bool = False  # `name = …`: a comma ends it
    is_call: bool = False  # `f(name, …)`
    is_ended: bool = False
    last: str = ""  # mark or word

    def iter_literals(self, start: int, limit: int) -> Iterator[tuple[Span, bool]]:
        """Yields the literals, and whether one is next to the name."""
        text = self.name.text
        goes_on = not self.is_key and _GETTER.search(self.name.before) is not None
        for piece in islice(_PIECE.finditer(text, start, limit), _MAX_PIECES):
            kind, found = piece.lastgroup, piece[0]
            if kind is None:
                span = Span(*piece.span(piece.lastindex or 0))
                value = text[span.start : span.end].strip()
                if self.last in _LISTS and _IS_KEY.match(text, piece.end()):
                    self.is_next = _VALUE.fullmatch(value) is not None
                else:
                    is_marked = self.is_marked or found[0] == ">" or _UNMARKED.fullmatch(value) is not None
                    yield span, self.is_next and is_marked
                goes_on = goes_on or found.startswith(('"""', "'''"))
                self.last = ""
            elif kind == "line":
                is_open = goes_on or self.depth > 0 or _GOES_ON.fullmatch(self.last) is not None
                if not is_open and not _NEXT.match(text, piece.end()):
                    return
                goes_on = False
            elif kind in ("word", "mark"):
                self._read(kind, found, piece.start() == self.name.end, piece.end())
                if self.is_ended:
                    return
                self.last = found

    def _read(self, kind: str, found: str, is_first: bool, end: int) -> None:
        """Reads a word, or a mark; `is_first` directly after the name."""
        self.is_marked |= kind == "mark" and found not in "[]"
        if kind == "word":
            self.is_next = (self.is_next and _NEUTRAL.fullmatch(found) is not None) or _VALUE.fullmatch(
                found
            ) is not None
        elif found in "([{":
            self.depth += 1
            if is_first and found in "([":
                self.is_next = found == "(" and self.name.is_set
        elif found in ")]}":
            self.depth -= 1
            is_in = self.depth >= 0 or (self.is_key and self.depth == -1)
            self.is_ended = not is_in or (self.depth < 0 and not _GIVES.match(self.name.text, end))
        elif self.depth <= 0 and found in (";", ","):
            self.is_ended = found == ";" or self.is_pair
            self.is_next, self.is_call = self.is_reader, True
        elif self.depth <= 0 and found in _PAIRS and not self.is_call:
            self.is_pair = True
            is_arrow = found == "=>" and not self.is_key and not self.name.is_symbol
            self.is_next = (self.is_next or (found == "=" and not self.is_key)) and not is_arrow
        elif not _JOINS.fullmatch(found):
            self.is_next = False


def _is_password(name: str, value: str, is_quoted: bool) -> bool:
    """True for what a person could choose, and no placeholder, kind, name or code."""
    text = _TEMPLATE.sub("", value)
    if (
        (text != value and not any(map(str.isdigit, text)))
        or len(text) < 3
        or _keep_letters(text) in _keep_letters(name)
        or _KIND.match(text)
    ):
        return False
    if not is_quoted:
        return not _CODE.match(text) and (name.isupper() or not _WORDS.fullmatch(text))
    return not _PROSE.search(text) and (not _PATH.match(text) or _is_token(text))


def _is_token(text: str) -> bool:
    """True for characters that look random, or that obey the rules for passwords."""
    if len(text) < 8 or _NO_TOKEN.search(text):
        return False
    is_long = len(text) >= 20 or any(map(str.isdigit, text))
    return is_random(text, RANDOM_BITS if is_long else 1.5 * RANDOM_BITS) or _RULED.fullmatch(text) is not None


def _keep_letters(text: str) -> str:
    return "".join(filter(str.isalpha, text)).lower() or "-"
