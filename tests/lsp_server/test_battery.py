"""Text is not read ahead on a battery that is low."""

from types import SimpleNamespace
from typing import Any

import pytest

from lsp_server import battery
from lsp_server.battery import Battery
from tests.support.lsp_editor import wait_for
from tests.support.lsp_in_process import InProcess


def test_the_system_is_asked_once_a_minute() -> None:
    now_s, charges = [100.0], [19.0, None, 19.0]
    low = Battery(lambda: charges.pop(), lambda: now_s[0])
    found = []
    for now_s[0] in (100.0, 159.0, 160.0, 219.9, 221.0):
        found.append((low.is_below(20), low.is_below(19), len(charges)))
    assert found == [(True, False, 2)] * 2 + [(False, False, 1)] * 2 + [(True, False, 0)]


@pytest.mark.parametrize(
    ("psutil", "percent"),
    [
        (None, None),  # it is not installed
        (SimpleNamespace(), None),  # it does not know this system
        (SimpleNamespace(sensors_battery=lambda: None), None),
        (SimpleNamespace(sensors_battery=lambda: SimpleNamespace(percent=7, power_plugged=True)), None),
        (SimpleNamespace(sensors_battery=lambda: SimpleNamespace(percent=7, power_plugged=None)), None),
        (SimpleNamespace(sensors_battery=lambda: SimpleNamespace(percent=7, power_plugged=False)), 7.0),
    ],
)
def test_what_the_system_does_not_tell_is_no_low_battery(
    psutil: Any, percent: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(battery, "psutil", psutil)
    assert battery._read_percent() == percent


@pytest.mark.parametrize(("settings", "is_sent"), [({}, False), ({"prefetchMinBattery": 10}, True)])
async def test_a_low_battery_ends_prefetching(settings: dict[str, Any], is_sent: bool, both: InProcess) -> None:
    charges = list[float]()
    both.server._prefetcher.battery = Battery(lambda: charges.append(10.0) or 10.0)  # type: ignore[func-returns-value]
    both.editor.settings = settings
    await both.start_with("x")
    await wait_for(lambda: len(charges) > 0)
    if is_sent:
        await wait_for(lambda: len(both.backend.prefetches) > 0)
    assert (await both.ask_and_finish(0, 1, "y")).items != []
    assert (both.backend.prefetches != []) is is_sent
