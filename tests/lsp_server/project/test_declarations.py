"""What a file declares and imports."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from lsp_server.project import declarations
from lsp_server.project.declarations import Import, Summary, summarize
from lsp_server.project.grammar import load_grammar


def _summarize(language: str, text: str) -> Summary:
    return summarize(text.encode(), load_grammar(language))


_CASES = {
    "python": (
        """
from birds.nests import Egg as E
LIMIT: int = 3
class Owl(Bird, key="x"):
    def fly(
        self, height: float | None = None, *paths: os.PathLike[str] | str,
    ) -> dict[str, int]:
        def local(): ...
""",
        ("LIMIT: int", "class Owl(Bird, key=…)"),
        ("Owl: def fly(self, height: float | None = …, *paths: os.PathLike[str] | str) -> dict[str, int]",),
        (Import("birds.nests", "Egg"),),
    ),
    "javascript": (
        """
import Nest, { Egg } from "./nests.js";
export const limit = 3;
export class Owl extends Bird {
  wings = 2;
  fly(height = 1, ...rest) { const local = 1; }
}
""",
        ("export const limit", "class Owl extends Bird"),
        ("Owl: wings", "Owl: fly(height = …, ...rest)"),
        (Import("./nests.js", "Nest"), Import("./nests.js", "Egg")),
    ),
    "typescript": (
        """
import * as nests from "./nests";
export interface Nest<T> { eggs: T[]; lay(egg: Egg): void }
export function hatch<T extends Egg>(egg: T, wait: number = 1): Promise<T> { return wait; }
""",
        ("interface Nest<T>", "function hatch<T extends Egg>(egg: T, wait: number = …): Promise<T>"),
        ("Nest: eggs: T[]", "Nest: lay(egg: Egg): void"),
        (Import("./nests"),),
    ),
    "go": (
        """
package birds
import "example.com/nests"
const Limit = 3
type Owl struct { Wings int }
func (o *Owl) Fly(height int, opts ...Option) (int, error) { return 0, nil }
""",
        ("Limit", "Owl struct { Wings int }"),
        ("Owl: Wings int", "Owl: func (o *Owl) Fly(height int, opts ...Option) (int, error)"),
        (Import("example.com/nests"),),
    ),
    "rust": (
        """
use crate::nests::{Nest, Egg as E};
pub const LIMIT: usize = 3;
pub struct Owl<T> { pub wings: u8 }
impl<T> Owl<T> where T: Clone { pub fn new(wings: u8) -> Self { Self {} } }
""",
        ("pub const LIMIT: usize", "pub struct Owl<T>"),
        ("Owl: pub wings: u8", "Owl: pub fn new(wings: u8) -> Self"),
        (Import("crate::nests::Nest"), Import("crate::nests::Egg")),
    ),
    "java": (
        """
import com.nests.Nest;
public class Owl extends Bird {
  private static final int LIMIT = 3;
  public Map<String, Egg> fly(int height, String... rest) throws IOException { return null; }
}
""",
        ("public class Owl extends Bird",),
        (
            "Owl: private static final int LIMIT",
            "Owl: public Map<String, Egg> fly(int height, String... rest) throws IOException",
        ),
        (Import("com.nests.Nest"),),
    ),
    "c": (
        """
#include "nests.h"
#define LIMIT 3
struct owl { int wings; };
static int fly(struct owl *owl, int height) { return 0; }
""",
        ("#define LIMIT", "struct owl", "fly(struct owl *owl, int height)"),
        ("owl: int wings",),
        (Import("nests.h"),),
    ),
    "cpp": (
        """
#include "nests.hpp"
namespace birds {
class Owl : public Bird {
  std::vector<Egg> fly(int height, const std::string& why = "x") const override { return {}; }
};
}
""",
        ("class Owl : public Bird",),
        ("Owl: fly(int height, const std::string& why = …) const override",),
        (Import("nests.hpp"),),
    ),
}


@pytest.mark.parametrize("language", _CASES)
def test_names_are_declared_with_types_and_without_bodies_and_values(language: str) -> None:
    text, names, members, imports = _CASES[language]
    found = _summarize(language, text)
    assert tuple(each.text for each in found.declarations if not each.parent) == names
    assert tuple(f"{each.parent}: {each.text}" for each in found.declarations if each.parent) == members
    assert found.imports == imports


def test_what_stands_in_very_many_others_is_left_out() -> None:
    def nest(depth: int) -> list[str]:
        found = _summarize("cpp", "namespace a {\n" * depth + "struct Inner {};\n" + "}" * depth)
        return [each.name for each in found.declarations if each.name == "Inner"]

    assert [nest(10), nest(40)] == [["Inner"], []]


def test_a_text_that_is_no_code_has_no_declarations() -> None:
    """Tree-sitter needs a minute to find what 300,000 brackets declare, and stops all threads meanwhile."""
    assert _summarize("c", "int known(void);\n" + "(" * 100).declarations != ()
    assert _summarize("c", "int known(void);\n" + "(" * 15_000) == Summary()


def test_a_text_that_takes_too_many_steps_has_no_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "_MAX_PARSER_STEPS", 2)
    assert _summarize("python", "def long(): ...\n" * 100) == Summary()
    assert [each.name for each in _summarize("python", "def short(): ...\n").declarations] == ["short"]


def test_nothing_keeps_a_text_that_was_read() -> None:
    """Tree-sitter 0.26 never frees what a function has returned to it."""
    source = b"def short(): ...\n" * 10
    before = sys.getrefcount(source)
    summarize(source, load_grammar("python"))
    assert sys.getrefcount(source) == before


def test_a_use_of_rust_with_very_many_braces_is_read_as_one_path() -> None:
    found = _summarize("rust", "use a::{b, c::{d}};\nuse " + "e::{" * 900 + "f" + "}" * 900 + ";\n").imports
    assert found[:2] == (Import("a::b"), Import("a::c::d"))
    assert len(found) == 3


def test_threads_may_read_at_the_same_time() -> None:
    """Each page of the playground has a language server in one process."""
    source = b"def f(x): ...\n" * 2_000
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: summarize(source, load_grammar("python")), range(16)))
    assert [len(each.declarations) for each in found] == [1] * 16
