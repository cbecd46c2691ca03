"""Reader of pickles with plain values, which does not unpickle them.

PyTorch's flight recorder writes such files. Unpickling could run arbitrary code, so instructions are only decoded
(``pickletools``). Those that create numbers, strings, lists, tuples and dictionaries are interpreted; a file with any
other instruction, or with too many instructions, is rejected.
"""

from __future__ import annotations

import pickletools
import warnings
from typing import Any

from preflight.errors import PreflightError

#: Instructions that push a value stored in the file.
_PLAIN = frozenset(
    ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
     "INT", "LONG", "FLOAT", "UNICODE")
)  # fmt: skip
#: Maximum number of interpreted instructions, each of which may create an object of 100 bytes. A dump of 10,000 entries
#: has a million.
MOST = 3_000_000

_CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED = frozenset(("PROTO", "FRAME"))
_MARK = object()

CONVERT = (
    'on a machine where you trust it, convert it: python3 -c "import pickle, json, sys; '
    "json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout)\" FILE > FILE.json"
)


class UnsafePickle(PreflightError, ValueError):
    """The pickle is damaged or contains more than plain values.

    The message names the problem; if an instruction is not supported, also how to convert the file.
    """


def is_pickle(head: bytes) -> bool:
    """Return whether a file starts like a pickle of protocol 2 to 5."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def plain_values(data: bytes) -> Any:
    """Return the value in a pickle, without unpickling it.

    Raises UnsafePickle if it is damaged, too large, or contains more than plain values.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about escapes in strings
            for number, (instruction, argument, position) in enumerate(pickletools.genops(data)):
                if number > MOST:
                    raise UnsafePickle(f"the pickle has more than {MOST} instructions; it was not unpickled")
                name = instruction.name
                if name == "STOP":
                    return _single(stack)
                _follow(name, argument, stack, memo, position)
    except UnsafePickle:
        raise
    except (ValueError, IndexError, KeyError, TypeError, RecursionError, OverflowError, MemoryError) as error:
        raise UnsafePickle(f"the pickle is damaged ({str(error)[:100]}); it was not unpickled") from None
    raise UnsafePickle("the pickle ends too early; it was not unpickled")


def _single(stack: list[Any]) -> Any:
    if len(stack) != 1 or stack[0] is _MARK:
        raise UnsafePickle("the pickle is damaged; it was not unpickled")
    return stack[0]


def _follow(name: str, argument: Any, stack: list[Any], memo: dict[int, Any], position: int | None) -> None:
    if name in _PLAIN:
        stack.append(argument)
    elif name in _CONSTANT:
        stack.append(_CONSTANT[name])
    elif name in ("BINPUT", "LONG_BINPUT"):
        memo[argument] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET"):
        stack.append(memo[argument])
    elif name == "MARK":
        stack.append(_MARK)
    elif name in _MADE:
        stack.append(_MADE[name]())
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        count = int(name[-1])
        taken = stack[-count:]
        del stack[-count:]
        stack.append(tuple(taken))
    elif name == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif name in ("APPEND", "APPENDS"):
        added = [stack.pop()] if name == "APPEND" else _since_mark(stack)
        _target(stack, list).extend(added)
    elif name in ("SETITEM", "SETITEMS"):
        pairs = [stack.pop(-2), stack.pop()] if name == "SETITEM" else _since_mark(stack)
        _target(stack, dict).update(zip(pairs[::2], pairs[1::2], strict=True))
    elif name not in _IGNORED:
        raise UnsafePickle(f"the pickle needs {name} at byte {position}: it was not unpickled; {CONVERT}")


_MADE = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}


def _since_mark(stack: list[Any]) -> list[Any]:
    """Remove the last mark and the values after it; return the values."""
    for at in range(len(stack) - 1, -1, -1):
        if stack[at] is _MARK:
            taken = stack[at + 1 :]
            del stack[at:]
            return taken
    raise UnsafePickle("the pickle is damaged: a mark is missing; it was not unpickled")


def _target(stack: list[Any], kind: type) -> Any:
    if not stack or type(stack[-1]) is not kind:
        raise UnsafePickle("the pickle is damaged; it was not unpickled")
    return stack[-1]
