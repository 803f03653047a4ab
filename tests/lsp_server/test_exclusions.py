"""When the policy is asked about documents, and that nothing is sent while its answer is not known."""

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lsp_server.exclusion import Exclusions, Policy
from tests.support.lsp_editor import wait_for

_UNKNOWN = "whether a rule excludes it is not known yet"


class _SlowPolicy(Policy):
    """A policy whose answers wait until the test allows them. It excludes what is in `excluded`."""

    def __init__(self) -> None:
        super().__init__({})
        self.excluded: set[str] = set()
        self.may_answer = threading.Event()
        self.asked: list[list[str]] = []

    def find_exclusions(self, languages: Mapping[str, str], *_: Sequence[str]) -> dict[str, str | None]:
        self.asked.append(list(languages))
        found = {uri: "a rule" if uri in self.excluded else None for uri in languages}
        self.may_answer.wait(20)
        return found


class _Bench:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.policy = _SlowPolicy()
        self.exclusions = Exclusions(self.policy, lambda: self.now_s)
        self.exclusions.configure((), [])

    async def ask(self, uri: str = "a") -> str | None:
        await self.exclusions.ask({uri: ""}, wait_s=0.01)
        return self.exclusions.find_exclusion(uri)

    async def ask_until_known(self, uri: str = "a") -> str | None:
        self.policy.may_answer.set()
        await self.exclusions.ask({uri: ""})
        await wait_for(lambda: not self.exclusions._looks)
        return self.exclusions.find_exclusion(uri)


@pytest.fixture
async def bench() -> _Bench:
    return _Bench()


async def test_an_answer_is_valid_for_a_second_and_asked_again_after_half_of_it(bench: _Bench) -> None:
    await bench.ask_until_known()
    bench.policy.may_answer.clear()
    bench.policy.excluded.add("a")
    for bench.now_s, exclusion, num_asked in ((0.4, None, 1), (0.9, None, 2), (1.1, _UNKNOWN, 2)):
        assert await bench.ask() == exclusion
        await wait_for(lambda num_asked=num_asked: len(bench.policy.asked) == num_asked)  # type: ignore[misc]
    assert await bench.ask_until_known() == "a rule"


async def test_what_is_excluded_stays_so_until_the_policy_says_otherwise(bench: _Bench) -> None:
    bench.policy.excluded.add("a")
    assert await bench.ask_until_known() == "a rule"
    bench.policy.may_answer.clear()
    bench.policy.excluded.clear()
    bench.now_s = 9.0
    assert await bench.ask() == "a rule"
    assert await bench.ask_until_known() is None


async def test_an_answer_by_older_settings_does_not_count(bench: _Bench) -> None:
    await bench.ask()
    bench.exclusions.configure(("a*",), [])
    bench.policy.excluded.add("a")
    assert await bench.ask_until_known() == "a rule"
    assert len(bench.policy.asked) == 2


async def test_a_document_waits_for_no_others(bench: _Bench) -> None:
    await bench.exclusions.ask(dict.fromkeys("bcd", ""), wait_s=0.01)
    assert await bench.ask() == _UNKNOWN
    assert bench.policy.asked == [["b", "c", "d"], ["a"]]  # the first is not answered yet
    bench.policy.may_answer.set()


async def test_who_waits_until_it_is_known_waits_for_the_settings_too(bench: _Bench) -> None:
    exclusions = Exclusions(bench.policy)
    bench.policy.may_answer.set()
    waiting = asyncio.create_task(exclusions.ask({"a": ""}))
    await asyncio.sleep(0.05)
    assert (waiting.done(), exclusions.find_exclusion("a")) == (False, _UNKNOWN)
    exclusions.configure((), [])
    await asyncio.wait_for(waiting, 20)
    assert exclusions.find_exclusion("a") is None


async def test_changed_rules_count_within_a_second(tmp_path: Path) -> None:
    now_s = [0.0]
    exclusions = Exclusions(Policy({"PATH": os.environ["PATH"]}), lambda: now_s[0])
    exclusions.configure((), [])
    uri, rules = (tmp_path / "a.py").as_uri(), tmp_path.resolve() / ".midtokenignore"
    seen = []
    for text in ("b.py\n", "a.py\n"):
        rules.write_text(text)
        now_s[0] += 1.0
        await exclusions.ask({uri: ""})
        seen.append(exclusions.find_exclusion(uri))
    assert seen == [None, "`.midtokenignore` line 1: `a.py`"]
