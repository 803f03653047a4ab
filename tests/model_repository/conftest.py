import sys

import pytest

from tests.support.fakes import FakeTriton


@pytest.fixture(autouse=True)
def triton(monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    fake = FakeTriton()
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)  # exists only inside Triton's stub
    return fake
