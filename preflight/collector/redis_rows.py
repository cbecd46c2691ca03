"""Conversion of rows of a switch's database to the form of a record."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Sequence

#: Queues and priority groups read for each port: those of unicast traffic.
_MOST_QUEUES = 8


def is_read(name: str) -> bool:
    """Return whether a port (``Ethernet0``), queue or priority group becomes a row."""
    port, _, number = name.partition(":")
    if not (port.startswith("Ethernet") and port[8:].isdecimal()):
        return False
    return not number or (number.isdecimal() and len(number) < 4 and int(number) < _MOST_QUEUES)


def counters(fields: "Sequence[str]", rows: "Mapping[str, Sequence[Optional[str]]]") -> "Dict[str, Any]":
    """Return the fields that occur, and for each name a row of their values.

    ``rows`` has the values in the order of the fields, with None for an absent one. Numbers become integers; absent
    values and ``N/A`` become None.
    """
    places = [place for place in range(len(fields)) if any(row[place] is not None for row in rows.values())]
    return {
        "fields": [fields[place] for place in places],
        "rows": {name: [_number(rows[name][place]) for place in places] for name in sorted(rows)},
    }


def table(rows: "Mapping[str, Mapping[str, str]]") -> "Dict[str, Dict[str, str]]":
    """Return the rows of a table, sorted by name."""
    return {name: dict(rows[name]) for name in sorted(rows)}


def chosen(row: "Mapping[str, str]", fields: "Sequence[str]") -> "Dict[str, str]":
    """Return the wanted fields of a row, sorted; all fields if none are listed."""
    return {field: row[field] for field in sorted(fields or row) if field in row}


def _number(text: "Optional[str]") -> "Any":
    if text is None or text == "N/A":
        return None
    digits = text.isdecimal() and len(text) < 21 and all(sign in "0123456789" for sign in text)
    return int(text) if digits else text[:60]


def pairs(reply: "List[str]") -> "Dict[str, str]":
    """Return the fields of a hash from a reply that alternates names and values."""
    return {reply[place]: reply[place + 1] for place in range(0, len(reply) - 1, 2)}


def present(fields: "Sequence[str]", reply: "Sequence[Optional[str]]") -> "Dict[str, str]":
    """Return the fields that a hash has; absent ones are None in the reply."""
    return {fields[place]: text for place, text in enumerate(reply) if text is not None}
