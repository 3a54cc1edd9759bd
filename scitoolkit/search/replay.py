"""Events of a log in the codes of one space.

Codes are positions in the description of a space, so that they mean something else after a change
of a range or of the order of the parameters. A log states its space in the first event and again
in every `resume` event that changed it; here codes are computed from the values by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.search.json_values import json_data
from scitoolkit.search.parameters import Real, Variable
from scitoolkit.search.space import Space
from scitoolkit.search.trial_log import Event

ROUNDED = 1e-6
"""Share of a range by which a rounded real may be beyond it."""


class Replay:
    """Converts the events of a log, in their order, to the codes of a space.

    Args:
        space: whose codes the events receive.
        where: path of the log, for messages.

    Attributes:
        same: whether the log's space is, at this event, `space` with the same order.
        changes: differences of `space` from the log's spaces, one per line.
        inside, outside: numbers of trials whose configuration lies in `space`, or does not.
    """

    def __init__(self, space: Space, where: str = "") -> None:
        self.space, self.where = space, where
        self.stored: Space = space
        self.same: bool = True
        self.changes: list[str] = []
        self.inside = self.outside = 0

    def __call__(self, event: Event) -> Event:
        """Return an event with codes of the space; `outside` is set where it has none.

        Raises:
            CheckpointError: codes and values of the event contradict each other.
        """
        if "space" in event:
            self._describe(event["space"])
        if "codes" not in event:
            return event
        if not self._agrees(event):
            raise CheckpointError(
                f"trial {event.get('trial')}: the codes {event['codes']} are not those of "
                f"{event.get('values')} in its space",
                where=self.where,
                fix="restore the file, or start a new search",
            )
        searched = event.get("of") is None
        if not self.same:
            try:
                # Derived values are in no description: a log that is only read has no functions.
                names = {**self.stored.parameters, **self.space.derived}
                values = {n: v for n, v in event["values"].items() if n in names}
                event = {**event, "codes": self.space.encode(values)}
            except ConfigError:
                self.outside += searched
                return {**event, "codes": (), "outside": True}
        self.inside += searched
        return event

    def _describe(self, description: Mapping[str, Any]) -> None:
        lines = self.space.difference(description)
        self.changes += [line for line in lines if line not in self.changes]
        self.same = not lines and list(description) == list(self.space.parameters)
        self.stored = self.space if self.same else Space(description)

    def _agrees(self, event: Event) -> bool:
        try:
            names = {**self.stored.parameters, **self.stored.derived}
            values = {n: v for n, v in event["values"].items() if n in names}
            decoded = json_data(self.stored.decode(event["codes"]))
            kinds = self.stored.variables.values()
            inside = all(map(_is_inside, kinds, event["codes"]))
            return bool(decoded == values) and inside
        except (ValueError, IndexError, TypeError, OverflowError, AttributeError):
            return False


def _is_inside(kind: Variable, code: float | None) -> bool:
    """Return whether a code is one of a variable; None is that of an inactive one."""
    if code is None:
        return True
    if isinstance(kind, Real):
        # Logs of earlier versions hold rounded values, of which a bound may be beyond itself.
        return -ROUNDED <= kind.unit(code) <= 1 + ROUNDED
    return 0 <= code < kind.levels
