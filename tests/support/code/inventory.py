"""An inventory of parts: what is there, what is reserved, and what has to be ordered."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta


class OutOfStockError(Exception):
    """There are fewer parts than were asked for."""

    def __init__(self, part, wanted, available):
        super().__init__(f"{wanted} of {part} are wanted, but only {available} are available")
        self.part = part
        self.missing = wanted - available


@dataclass
class Order:
    part: str
    quantity: int
    placed: date
    delivery_days: int = 14

    @property
    def expected(self) -> date:
        return self.placed + timedelta(days=self.delivery_days)

    def is_late(self, today: date) -> bool:
        return today > self.expected


@dataclass
class Inventory:
    stock: Counter = field(default_factory=Counter)
    reserved: dict = field(default_factory=lambda: defaultdict(Counter))
    orders: list = field(default_factory=list)

    def available(self, part: str) -> int:
        """Returns how many of the part nobody has reserved."""
        return self.stock[part] - sum(parts[part] for parts in self.reserved.values())

    def reserve(self, project: str, part: str, quantity: int) -> None:
        if quantity <= 0:
            raise ValueError(f"quantity must be positive, not {quantity}")
        available = self.available(part)
        if quantity > available:
            raise OutOfStockError(part, quantity, available)
        self.reserved[project][part] += quantity

    def release(self, project: str) -> None:
        self.reserved.pop(project, None)

    def take(self, project: str) -> Counter:
        """Removes what a project has reserved from the stock."""
        taken = self.reserved.pop(project, Counter())
        self.stock.subtract(taken)
        return taken

    def order(self, part: str, quantity: int, today: date) -> Order:
        order = Order(part, quantity, today)
        self.orders.append(order)
        return order

    def receive(self, order: Order) -> None:
        self.orders.remove(order)
        self.stock[order.part] += order.quantity

    def find_late(self, today: date) -> Iterator[Order]:
        return (order for order in self.orders if order.is_late(today))

    def find_short(self, minimum: int) -> list[str]:
        ordered = Counter()
        for order in self.orders:
            ordered[order.part] += order.quantity
        return sorted(part for part in self.stock if self.available(part) + ordered[part] < minimum)


def merge(inventories: Iterable[Inventory]) -> Inventory:
    """Returns one inventory with the stock and the orders of all, and no reservations."""
    merged = Inventory()
    for inventory in inventories:
        merged.stock.update(inventory.stock)
        merged.orders.extend(inventory.orders)
    return merged
