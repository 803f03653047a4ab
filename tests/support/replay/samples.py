"""What the replays of editing type and what the scripted model answers: text of many scripts, tabs, emoji, brackets."""

from collections.abc import Sequence

LINES = ["class Node:", "\tdef f(self, x):", '\t\treturn "é"', "", "変数 = f(x)  # 😀", "  ж = [1, (2)]", "x"]

# What the scripted model generates after a text that ends with the first string.
COMPLETIONS: Sequence[tuple[str, Sequence[str]]] = [
    ("x", ["1, (y))"]),
    ("e", ["lse:\n", "\treturn {жж: 1}\n", "\tpass"]),
    ("n", [" 変数変 + 😀😀x"]),
    ("é", ["tage = naïve.é()"]),
    ("変", ["数 = 'ß'"]),
    ("ж", ["ук(self, 数)\t# tab"]),
    ("😀", ["😀 smile"]),
    ("(", ["self, x):\n\t\tpass"]),
    (")", [":\n\n\tyield"]),
    (":", ["\n\tif x == (1, 2):\n", "\t\tbreak"]),
    (" ", ["value = other"]),
    ("\t", ["self.value"]),
    ("\n", ["def 変(ж):\n    pass"]),
    ("=", ["= 'a b'"]),
    ("1", []),
    ("", ["etc(…)"]),
]

TYPED = "xen éж変😀():= 1_\n\tab"
