"""How much of the engine each tenant got of late."""

import math
from collections.abc import Callable

_MEMORY_S = 30.0  # work counts for about so long: after it, a third is left
_BEHIND_FRACTION = 0.8  # of the mean of all tenants
_MAX_CLAIM = 64.0  # work that a tenant may catch up after a pause
_MIN_WORK = 0.5  # less than that is forgotten


class TenantShares:
    """The work that was done for each tenant. It fades with time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._work: dict[str, float] = {}  # in units that grow with time, so that what is older counts less
        self._total = 0.0  # of all tenants; there may be thousands

    def __len__(self) -> int:
        return len(self._work)

    def enter(self, tenant: str) -> None:
        """Notes that a tenant asks for work. For the time that it asked for nothing, it may catch up a little only."""
        self._fade()
        work = self._work.setdefault(tenant, 0.0)
        others = self._total - work
        fraction = _BEHIND_FRACTION / len(self._work)
        not_behind = others * fraction / (1 - fraction)  # the limit moves with its own work
        self._add(tenant, max(0.0, not_behind - _MAX_CLAIM * self._unit - work))

    def charge(self, tenant: str, work: float) -> None:
        """Counts work that was done now."""
        self._fade()
        self._add(tenant, work * self._unit)

    def is_behind(self, tenant: str) -> bool:
        """True if the tenant got clearly less than the others."""
        return self._work.get(tenant, 0.0) < _BEHIND_FRACTION * self._total / max(len(self._work), 1)

    def _add(self, tenant: str, work: float) -> None:
        self._work[tenant] = self._work.get(tenant, 0.0) + work
        self._total += work

    @property
    def _unit(self) -> float:
        return math.exp((self._clock() - self._since) / _MEMORY_S)

    def _fade(self) -> None:
        """Writes what the work is worth now, and forgets tenants that got next to nothing."""
        elapsed_s = self._clock() - self._since
        if elapsed_s < _MEMORY_S:
            return
        self._since += elapsed_s
        worth = math.exp(-elapsed_s / _MEMORY_S)
        self._work = {tenant: work * worth for tenant, work in self._work.items() if work * worth >= _MIN_WORK}
        self._total = sum(self._work.values())
