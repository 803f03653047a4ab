"""Counts of what was suggested, what became of it, and why nothing was. They stay in this process."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lsp_server.no_suggestion import Reason


@dataclass(slots=True)
class Counters:
    """Of one language server, since it started."""

    suggested: int = 0  # answers with at least one item
    accepted: int = 0
    accepted_parts: int = 0  # acceptances of a word or a line
    accepted_units: int = 0  # UTF-16 units that were accepted in parts
    silences: Counter[Reason] = field(default_factory=Counter)
    filters: Counter[str] = field(default_factory=Counter)  # how often each filter changed a text
    _shown: set[int] = field(default_factory=set)

    def note_shown(self, item_id: int) -> None:
        """An item has become visible. It counts once, also if the editor says so at each key."""
        self._shown.add(item_id)

    def note_part(self, num_units: int) -> None:
        """A part of an item was accepted."""
        self.accepted_parts += 1
        self.accepted_units += num_units

    def to_json(self) -> dict[str, Any]:
        """Returns the counts as names and numbers."""
        return {
            "suggested": self.suggested,
            "shown": len(self._shown),
            "accepted": self.accepted,
            "acceptedParts": self.accepted_parts,
            "acceptedUnits": self.accepted_units,
            "silences": {str(reason): number for reason, number in sorted(self.silences.items())},
            "filters": dict(sorted(self.filters.items())),
        }
