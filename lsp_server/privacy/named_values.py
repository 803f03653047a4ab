"""Finds values beside a telling name: `password = "…"`, `config("DB_PASSWORD", default="…")`, `return "…"` in a getter.

There is no grammar of any language. How surprising a value must be depends on how near it is to the name:

1. next to the name of a password, with signs of assignment, types and words such as `default` between at most: whatever
   a person could choose;
2. on the line or in the statement of such a name, or after a name such as `token`: characters that look random, or that
   follow the rules for passwords (letters of both cases, digits and a special character).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import re2

from lsp_server.privacy.surprise import RANDOM_BITS, is_random


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """From a character to before another one."""

    start: int
    end: int


# Names of passwords in any language, those of other secrets, and those that need something before them.
_PASSWORDS = (
    r"passw(?:or)?d|passwort|passphrase|passcode|securestring|pswd|pwd|secret|(?:api|access|private|secret)[_.-]?key"
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
    r"|expir|valid|count|index|ref|arn|store|manager|provider|placeholder|enable|require|with_|\.getpw|hint|title|desc|scope|ttl|timeout|algo?|kind|mode|state|location)"
)
# A literal; one that is not closed is one, too.
_LITERAL = (
    r"\\+[\"']([^\"'\\\n]*)"
    r"|\"\"\"\s*(.+?)\s*(?:\"\"\"|\Z)|'''\s*(.+?)\s*(?:'''|\Z)"
    r"|[rR][\"'][\w-]{0,16}[(\[{]([^\n]*?)[)\]}][\w-]{0,16}[\"']"  # C++, R
    r"|r?\#{1,4}\"(.*?)\"\#"  # Rust, Swift
    r"|(?:%[qQwW]?[(\[{<]|\bqq?\{)([^\n]*?)[)\]}>]"  # Ruby, Perl
    r"|<!\[CDATA\[(.*?)\]\]>"
    r"|\[=*\[([^\]\[\"'\n]*?)\]=*\]"  # Lua
    r"|\$\w*\$([^\n]+?)\$\w*\$"  # PostgreSQL
    r"|<<[-~]?\s?[\"']?[A-Za-z]\w*[\"']?[^\n]*\n[ \t]*([^\n]+)"  # what lines follow, up to a word
    r"|>([^<>\n{}()]{2,})</"
    r"|\"((?:[^\"\\\n]|\\.)*)\"?|'((?:[^'\\\n]|\\.)*)'?|`([^`\n]*)`?"
)
_OPENING = r"[\"'`]|[rR]?\#*\"|[rR]\"|\[=*\[|>[^<>\n{}()]{2,}</|<!\[|<<|%[qQwW]?[(\[{<]|qq?\{|\$\w*\$"
# What may be between a name and the literal next to it.
_GLUE = (
    r":\s*[\[\]&?*]*[A-Za-z][\w.\[\]| ,?&<>:]{0,60}=|[ \t]+"
    r"|[=:(\[{,\\>](?:\s*(?:\#|//)[^\n\"'`]*\n)?\s+"
    r"|\s+(?=[\"'-]*(?:value|default|string)\b|</?\w)|[=:(\[{,><!*@\]]|->|\?\??[=:]?|\|\|?"
    r"|[&<]'[a-z]\w*|</?[A-Za-z][\w:.-]*|[&!]\w+[ \t]"
    r"|[bBfFrRuUlLN@$]{1,2}(?=\#*[\"'`])"
    r"|(?i:(?:\w+[.:]+){0,3}(?:default\w*|value|val|str|string|text|bytes?|secure\w*|secret\w*|field|some|ok|new|from|of|is"
    r"|to_?string|as|set|var|let|const|static|n?varchar\w*|char|or|by|lazy|b64decode|password|passwd|optional|bearer|basic"
    r"|token|with|in|option|to_?owned|into|convertto)(?:[.:]+\w+)?!?)\b"
)
_QUOTED = re.compile(  # the lookahead is an atomic group, so that the time is linear
    rf"\\*[\"'`]?(?:[\])]{{1,2}}(?=\s*(?:[=:{{]|or\b|\|\||\?|\.default)))?"
    rf"(?P<instead>[ \t]*[,:=(.][^\"'`\n;]{{0,80}}(?:\bdefault(?=[=(])|\b(?:or|else)\b|\|\||\?\??[:=]?(?=\s))"
    rf"|,\s*[\"'](?:value|default)[\"'](?=\s*:))?"
    rf"(?=(?P<between>(?:(?!{_OPENING})(?:{_GLUE})){{0,12}}))(?P=between)(?:{_LITERAL})(?![ \t]*(?:=>|:[ \t]*[^\s:]))",
    re.DOTALL,
)
# What follows it in a list, or is joined to it.
_MORE = re.compile(
    r"\s*(?:[,+:]|else|or|\|\|)?(?:[ \t]*(?:\#|//)[^\n]*)?\s*[a-zA-Z]?"
    r"(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)')(?![ \t]*[:=])"
)
# Which of it is allowed: after a quoted name (k), in a call such as `getenv` (r), after `set_password` (s), others (n).
_NEXT = re.compile(
    r"(?:k(?![,\]])|r|s(?![\[,])|n(?![\[(,]|=>)).*|.\[\w*\]\s*=.*|.*(?:default|value)\W*", re.DOTALL | re.IGNORECASE
)
_SETTER = re.compile(r"(?i)(?:.*[.:>])?(?:(?:set|with)\w*)?$")
_READER = re.compile(
    r"(?i)(?:get|set|env|define|option|property|attr|argument|put|fetch)\w*!?\(\s*(?:\w+\s*,\s*)?[bfru]?[\"']-*$"
)
# The rest of a statement: lines go on in the next one after such signs and before a literal.
_STATEMENT = re.compile(
    r"[^\n;]*(?:(?:(?<=\{)|(?<=\{ ))[^}]{0,200}"
    r"|(?:(?:(?<=[=:(\[,\\>+|&])|(?<=[=:(\[,\\>+|&] )|(?<=\"\"\")|(?<=\"\"\" ))[ \t]*\n|\n[ \t]+(?=[\"'.]))[^\n]*){0,4}"
)
_ARGUMENTS = re.compile(r"(?:(?!,\s*[\"']?\w+[\"']?\s*[:=])[^\n;]){0,200}")  # up to the next key
# Of several passwords, each beside a name: in the brackets, in the lines below that are further in, or on the line.
_MANY = re.compile(r"(?i)(?:(?<!pas)s|.*by_?[a-z]+)\d*$")  # from the name of a password on
_TABLE = re.compile(
    r"[^\n]{0,80}[{(\[][ \t]*\n(?:(?![ \t]*[)}\]])[^\n]*\n){0,200}"
    r"|[\"']?:[ \t]*\n(?P<in>[ \t]+)[^\n]*\n?(?:(?P=in)[^\n]*\n?){0,200}|\][ \t]*\n(?:[^\[\n][^\n]*\n?){0,200}"
    r"|[^\n{\[]{0,80}(?:[{\[]|(?:dict|array)\()[^\n}]*|"
)
_PAIR = re.compile(
    r"(^[ \t]*-|[\w.@-]+[\"']?\]?[ \t]*(?:=>|[:=,]))[ \t]*"
    r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`(){}\[\],;]+)[ \t]*$)",
    re.MULTILINE,
)
_MAX_REACH = 400  # from a name, so that the time is linear; a value that does not end there is followed to its end
_ENDS = {quote: re.compile(rf"{quote}|\n") for quote in "\"'`"} | {"": re.compile(r"[\s\"'`<>(){}\[\],;]")}
_ENDS |= {quote: re.compile(quote) for quote in ('"""', "'''")}

# A value without quotes, and what may be between it and the name.
_BARE = re.compile(
    r"""(?:(?P<pair>["']?[,:]?\s+["']?(?:value|default)["']?\s*[=:]\s*)
      |\\*["'`]?[\])}>]{0,2}(?P<mark>[ \t]*(?:[:?+]?==?>?|:-?|<-)[ \t]*)
       (?:[|>][+-]?\d?[ \t]*)?(?:\n[ \t]+)?(?:[&!][\w!:-]*[ \t]+)?
      |[ \t]+(?:is[ \t]+)?)
      (?:(?P<scheme>(?i:bearer|basic|token|digest|apikey|session))[ \t=]+)?(?P<value>[^\s"'`<>=][^\s"'`<>]*)""",
    re.VERBOSE,
)
_LEAD = re.compile(
    r"[\s#/;*!+>-]*(?:(?i:export|set|setx|setenv|env|arg|local|readonly)\s+(?:-\w+\s+)?)?[\"']?(?:\$env:)?"
)
_END_OF_LINE = re.compile(r"[ \t]*(?:(?:[#;]|//|-->).*|\\)?$", re.MULTILINE)
_CUT = re.compile(r"\\[nrt].*|[,;&)}\]|](?:.*)")

_TEMPLATE = re.compile(  # closed or not: one may be typed
    r"[$#]?\{+[^{}]*(?:\}+|$)|^\$\w+$|\$\(\w*\)?|%\(\w*\)?[srd]?|%[srd](?!\w)|\.\.\.$|^(?i:your)[_-][\w-]*$|^<[^>]*>?$|^\[.*\]?$|^\*\*.*|^[*.x_#?-]+$|^\d+/.*"
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
_UNMARKED = re.compile(r"(?=.*[\d!@#$])[^\s\"'`:]+$")  # `password "…"`
_WORDS = re.compile(r"[A-Za-z_][A-Za-z_.]*")
_PASS = re.compile(r"(?:.*_)?pass$")  # an English word, too: what it is given is no other name
_CHOSEN_NAME = re.compile(r"[A-Za-z]+(?:[_-]\w*)*")
_POINTER = re.compile(r"[*&]+[A-Za-z_]\w*$")
_NO_TOKEN = re.compile(r"[\s\\(){}\[\]<>,;]|^0x|://")
_KIND = re.compile(
    r"(?i)(?:0x[0-9a-f]{1,8}|yes|no|true|false|none|null|str(?:ing)?|func(?:tion)?|object|undefined|number|test"
    r"|bool(?:ean)?)$"
)
_RUN = re.compile(r"(?:[\w.@-]+:)?([^\s\"'`<>(){}\[\],;]{8,})")
_RULED = re.compile(
    r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d.*[!@#$]|.*[!@#$].*\d|(?:.*[A-Za-z]\d[a-z]){2})\w[\w!@#$^&*?.+-]{7,}"
)
_MAX_READ_CHARS = 200  # of a name or a value: these tell what it is

# Passwords that no name is beside.
_PLACES = tuple(
    (is_typed, re2.compile(place))
    for is_typed, place in (
        (True, r"[a-zA-Z][\w+.-]*://[^\s/:@\"'`<>]*:([^\s\"'`<>]+)@"),
        (True, r"\w:([^\s:@\"'`<>]+)@(?:tcp|udp|unix)?\("),
        (
            True,
            r"(?i:auth ?= ?|basicauth|authentication|credentials)\([bu]?[\"'][^\"'\n]*[\"'], ?[bu]?[\"']([^\"'\n]+)",
        ),
        (True, r"jdbc:oracle:\w+:[^/\s\"']+/([^@\s\"']+)@"),
        (
            False,
            r"(?:^|[\s\"'\[,])-(?:[pPaAwWk][\s\"',=]{0,4}|(?:u|-user)[\s=]{0,2}[\"']?[^\s:\"']+:\\?[\"']?|U\s?[^\s%\"']+%)"
            r"([^\s\"'`-][^\s\"'`\\]*)",
        ),
    )
)


def find_named_values(text: str) -> Iterator[Span]:
    """Yields where values of names of secrets are, and passwords in addresses and options of commands."""
    for is_typed, place in _PLACES:
        for match in place.finditer(text):
            if _is_password("", match[1], True) if is_typed else _is_token(match[1]):
                yield Span(*match.span(1))
    searched = covered = listed = 0
    for match in _NAME.finditer(text):
        name = match[0][-_MAX_READ_CHARS:]
        password = _PASSWORD.search(name)
        found = password or _OTHER_NAME.search(name)
        if found is None or _LABEL.search(found["rest"] or "") or match.start() < covered:
            continue
        start, end = match.span()
        before = text[max(text.rfind("\n", 0, start) + 1, start - _MAX_READ_CHARS) : start]
        spans = [*_find_bare(text, end, name, before, password is not None)]
        rest = (_STATEMENT if password else _ARGUMENTS).match(text, end, end + _MAX_REACH)
        stop = end if rest is None else rest.end()
        if password is not None:
            spans += _find_next(text, end, name, before, name[: found.start()])
            start -= len(before)
            if start >= listed and _MANY.search(name, found.start()):
                table = _TABLE.match(text, end)
                listed = table.end() if table else end
                yield from _find_in_table(text, end, listed)
        for span in spans:
            if not text[span.end : end + _MAX_REACH].strip():
                opening = text[end : span.start].rstrip()[-3:]
                covered = _find_end(text, span.end, opening if opening in _ENDS else opening[-1:])
            yield Span(span.start, max(span.end, covered))
        if name.lower() != "pass" and stop > searched:  # to pass on
            is_cut, stop = text[stop : stop + 1] not in ("", "\n", ";"), _find_end(text, stop)
            for run in _RUN.finditer(text, max(start, searched), stop):
                if (run.end(1) <= match.start() or run.start(1) >= end) and _is_token(run[1]):
                    yield Span(*run.span(1))
            searched = stop if password or is_cut else searched  # of a line with many names, no place is read twice


def _find_end(text: str, start: int, quote: str = "") -> int:
    """Returns where a value ends that goes on at `start`: at its quote, at the end of the line or of a word."""
    end = _ENDS.get(quote, _ENDS[""]).search(text, start)
    return len(text) if end is None else end.start()


def _find_next(text: str, end: int, name: str, before: str, beginning: str) -> Iterator[Span]:
    """Yields the literal next to the name of a password, if it is a secret."""
    match = _QUOTED.match(text, end, end + _MAX_REACH)
    if match is None:
        return
    kind = "n"
    if before.endswith(('"', "'", "`")):
        kind = "r" if _READER.search(before) else "k"
    elif (len(name) - len(beginning) > len("pass") and _SETTER.fullmatch(beginning)) or before.endswith(":"):
        kind = "s"
    between = match["between"].strip()
    value = match[match.lastindex or 0]
    is_marked = re.search(r"[=:(,>{?|]|\bor\b", between) is not None or match[0].endswith("</")
    if _PASS.fullmatch(name):
        is_marked = is_marked and (name == "pass" or not _CHOSEN_NAME.fullmatch(value))
    else:
        is_marked = (
            is_marked or not name.isalpha() or name.isupper() or kind == "s" or _UNMARKED.match(value) is not None
        )
    if match["instead"] or (before + between).endswith("{,"):  # a tuple of Erlang's
        kind = "r"
    while is_marked and match is not None and _NEXT.fullmatch(kind + between):
        if _is_password(name, match[match.lastindex or 0][:_MAX_READ_CHARS], True):
            yield Span(*match.span(match.lastindex or 0))
        match = _MORE.match(text, match.end(), end + _MAX_REACH)


def _find_in_table(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields the values that may be passwords and are each beside a name, such as a user's."""
    for pair in _PAIR.finditer(text, start, end):
        group = pair.lastindex or 0
        if not _LABEL.search(pair[1]) and _is_password(pair[1], pair[group], group < 4):
            yield Span(*pair.span(group))


def _find_bare(text: str, end: int, name: str, before: str, is_password: bool) -> Iterator[Span]:
    """Yields the value without quotes that follows a name, if it is a secret."""
    match = _BARE.match(text, end, end + _MAX_REACH)
    if match is None:
        return
    start, end = match.span("value")
    is_line = _LEAD.fullmatch(before) is not None and _END_OF_LINE.match(text, end) is not None
    cut = None if is_line else _CUT.search(text, start, end)
    end = end if cut is None else cut.start()
    value, mark = text[start:end][:_MAX_READ_CHARS], match["mark"] or ""
    is_item = mark.startswith(":") and before.rstrip()[-1:] in ("{", ",") and text[end : end + 1] in ("}", ",")
    is_given = (is_line and (mark != "" or any(map(str.isdigit, value)))) or is_item or match["pair"]
    is_given = is_given or mark in ("=", ":-") or name.startswith("--")
    is_chosen = is_password and is_given and _is_password(name, value, False)
    if is_chosen or (match["scheme"] and is_random(value)) or _is_token(_TEMPLATE.sub("", value)):
        yield Span(start, end)


def _is_password(name: str, value: str, is_quoted: bool) -> bool:
    """True for what a person could choose, and no placeholder, kind, name or code."""
    text = _TEMPLATE.sub("", value)
    if (
        (text != value and not any(map(str.isdigit, text)) and len(text) < 8)
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
    if len(text) < 8 or _NO_TOKEN.search(text) or _POINTER.match(text):
        return False
    is_long = len(text) >= 20 or any(map(str.isdigit, text))
    return is_random(text, RANDOM_BITS if is_long else 1.5 * RANDOM_BITS) or _RULED.fullmatch(text) is not None


def _keep_letters(text: str) -> str:
    return "".join(filter(str.isalpha, text)).lower() or "-"
