"""Tables of SONiC's Redis databases, over a read-only connection.

Sources: the Redis protocol (RESP2); sonic-swss-common (``database_config.json``).
"""

import json
import socket
import threading
import time

from . import redis_rows
from .records import Deadline, Record, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

    Put = Callable[[str, Record], None]

#: Commands that may be sent. All are read-only, and none blocks the server for long.
COMMANDS = frozenset(("HGETALL", "HMGET", "PING", "SCAN", "SELECT", "TYPE"))

#: Files that list SONiC's databases. The second exists on every switch, but has several entries only if each ASIC has
#: separate databases.
CONFIG = "/var/run/redis/sonic-db/database_config.json"
GLOBAL = "/var/run/redis/sonic-db/database_global.json"

#: Default socket and database numbers, used if the file is missing.
_SOCKET = "/var/run/redis/redis.sock"
_NUMBERS = {"APPL_DB": 0, "COUNTERS_DB": 2, "CONFIG_DB": 4, "STATE_DB": 6}
_SEPARATORS = {"APPL_DB": ":"}

#: Maximum bytes of a configuration file, of one string in a reply and of all replies; maximum elements of a list.
_MOST_CONFIG, _MOST_TEXT, _MOST_BYTES, _MOST_ELEMENTS = 100000, 1000000, 64000000, 1000000

#: Keys requested per SCAN, and commands sent before their replies are read.
_STEP, _AT_ONCE = "1000", 200

#: One connection to the databases of a switch at a time.
_one = threading.Lock()


class RedisError(Exception):
    """A server replied with an error, or violated the protocol."""


class ReadOnlyRedis:
    """A connection that sends only the commands in ``COMMANDS``."""

    def __init__(self, path: str, timeout_s: float) -> None:
        """Connect to a server's socket; raises OSError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._stream = self._socket.makefile("rb", 65536)
        self._bytes_left = _MOST_BYTES

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def answers(self, commands: "Sequence[Sequence[str]]") -> "List[Any]":
        """Send commands together; return the replies, each a value or a RedisError.

        Raises ValueError for a command that is not allowed, RedisError and OSError if the connection is unusable.
        """
        wanted = []
        for command in commands:
            if command[0] not in COMMANDS:
                raise ValueError("{} is not one of the read-only commands".format(command[0]))
            words = [word.encode("utf-8") for word in command]
            wanted.append(b"*%d\r\n" % len(words))
            wanted += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self._socket.sendall(b"".join(wanted))
        return [self._answer() for _ in commands]

    def answer(self, *command: str) -> "Any":
        """Send one command; return its reply. Raises RedisError for an error reply."""
        answer = self.answers([command])[0]
        if isinstance(answer, RedisError):
            raise answer
        return answer

    def _answer(self, depth: int = 0) -> "Any":
        line = self._stream.readline(1000)
        sign, rest = line[:1], line[1:-2]
        if not line.endswith(b"\r\n"):
            raise RedisError("the reply is truncated" if len(line) < 1000 else "the reply is not valid RESP")
        if sign == b"+":
            return rest.decode("utf-8", "replace")
        if sign == b"-":
            return RedisError(rest.decode("utf-8", "replace")[:200])
        if sign not in (b":", b"$", b"*") or not rest.lstrip(b"-").isdigit():
            raise RedisError("the reply is not valid RESP")
        number = int(rest)
        if sign == b":":
            return number
        if number < 0:
            return None
        if sign == b"$":
            return self._text(number)
        if depth > 2 or number > _MOST_ELEMENTS:
            raise RedisError("a list of {} elements is too large".format(number))
        return [self._answer(depth + 1) for _ in range(number)]

    def _text(self, length: int) -> str:
        self._bytes_left -= length
        if length > _MOST_TEXT or self._bytes_left < 0:
            raise RedisError("the replies exceed {} bytes".format(_MOST_BYTES))
        raw: bytes = self._stream.read(length + 2)
        if len(raw) != length + 2:
            raise RedisError("the reply is truncated")
        return raw[:-2].decode("utf-8", "replace")


def collect(probes: "Sequence[Mapping[str, Any]]", timeout_s: float, deadline: Deadline, cap: int, put: "Put") -> None:
    """Read the tables and counters of the probes; store a record for each probe."""
    with _one:
        databases: Dict[str, List[Mapping[str, Any]]] = {}
        for probe in probes:
            databases.setdefault(probe["target"].partition(" ")[0], []).append(probe)
        until = min(time.monotonic() + timeout_s, deadline.at)
        for name, wanted in databases.items():
            at_s = round(time.monotonic(), 6)
            try:
                values = _database(name, wanted, until)
            except (RedisError, ValueError) as error:
                why = {"status": "error", "why": "Redis: {}".format(error)}
                values = {}
            except socket.timeout:
                why = {"status": "timeout", "why": "Redis has not answered"}
                values = {}
            except OSError as error:
                why = refusal(error, "Redis of SONiC")
                values = {}
            for probe in wanted:
                put(probe["key"], dict(_record(values[probe["key"]], cap), at_s=at_s) if values else dict(why))


def _record(value: "Any", cap: int) -> Record:
    size = len(json.dumps(value, separators=(",", ":")))
    if size > cap:
        return {"status": "cut", "why": "{} bytes, at most {} are sent".format(size, cap)}
    return {"status": "ok", "value": value}


def _database(name: str, probes: "Sequence[Mapping[str, Any]]", until: float) -> "Dict[str, Any]":
    """Return the values of one database's probes, by key."""
    path, number, separator = _place(name)
    redis = ReadOnlyRedis(path, max(0.1, until - time.monotonic()))
    try:
        redis.answer("SELECT", str(number))
        tables = {probe["target"].partition(" ")[2]: probe for probe in probes if "names" not in probe}
        keys = _keys(redis, set(tables), separator, until) if tables else {}
        values = {}
        for table, probe in tables.items():
            rows = dict(_hashes(redis, keys[table], probe.get("fields", []), until))
            named = {key.partition(separator)[2]: row for key, row in rows.items()}
            values[probe["key"]] = redis_rows.table(named)
        for probe in probes:
            if "names" in probe:
                values[probe["key"]] = _counters(redis, probe["names"], probe["fields"], until)
        return values
    finally:
        redis.close()


def _place(name: str) -> "Tuple[str, int, str]":
    """Return the socket, number and separator of a database; raises RedisError."""
    several = _object(GLOBAL).get("INCLUDES")
    if isinstance(several, list) and len(several) > 1:
        raise RedisError("each of {} ASICs has separate databases, which are not read".format(len(several) - 1))
    config = _object(CONFIG)
    about = config.get("DATABASES", {}).get(name, {})
    instance = config.get("INSTANCES", {}).get(about.get("instance", "redis"), {})
    path, number = instance.get("unix_socket_path", _SOCKET), about.get("id", _NUMBERS[name])
    separator = about.get("separator", _SEPARATORS.get(name, "|"))
    if not isinstance(path, str) or not isinstance(number, int) or not isinstance(separator, str) or not separator:
        raise RedisError("{} does not contain the location of {}".format(CONFIG, name))
    return path, number, separator


def _object(path: str) -> "Dict[str, Any]":
    """Return the object in a JSON file; empty if there is none."""
    try:
        with open(path, "rb") as stream:
            value = json.loads(stream.read(_MOST_CONFIG).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _keys(redis: ReadOnlyRedis, tables: "Iterable[str]", separator: str, until: float) -> "Dict[str, List[str]]":
    """Return the keys of each table, from one scan of the database."""
    keys_of: Dict[str, Dict[str, None]] = {table: {} for table in tables}
    cursor = "0"
    while True:
        _require_time(until)
        step = redis.answer("SCAN", cursor, "COUNT", _STEP)
        if not _is_step(step):
            raise RedisError("the reply to SCAN is malformed")
        cursor, keys = step
        for key in keys:
            table = key.partition(separator)[0]
            if table in keys_of:
                keys_of[table][key] = None  # SCAN may return a key twice
        if cursor == "0":
            return {table: list(keys) for table, keys in keys_of.items()}


def _is_step(answer: "Any") -> bool:
    """Return whether a reply is a cursor and a list of keys."""
    if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[1], list):
        return False
    return isinstance(answer[0], str) and all(isinstance(key, str) for key in answer[1])


def _is_row(answer: "Any") -> bool:
    return isinstance(answer, list) and all(text is None or isinstance(text, str) for text in answer)


def _hashes(
    redis: ReadOnlyRedis, keys: "Sequence[str]", fields: "Sequence[str]", until: float
) -> "Iterator[Tuple[str, Dict[str, str]]]":
    """Yield the fields of each key; keys of another type are skipped."""
    for at in range(0, len(keys), _AT_ONCE):
        _require_time(until)
        some = keys[at : at + _AT_ONCE]
        rows = redis.answers([_hash(key, fields) for key in some])
        for place, row in enumerate(rows):
            if _is_row(row):
                texts = redis_rows.present(fields, row) if fields else redis_rows.pairs(row)
                yield some[place], redis_rows.chosen(texts, fields)


def _hash(key: str, fields: "Sequence[str]") -> "Sequence[str]":
    return ["HMGET", key, *fields] if fields else ["HGETALL", key]


def _counters(redis: ReadOnlyRedis, names: str, fields: "List[str]", until: float) -> "Dict[str, Any]":
    listed = redis.answer("HGETALL", names)
    if not _is_row(listed) or None in listed:
        raise RedisError("the reply to HGETALL is malformed")
    objects = {name: oid for name, oid in redis_rows.pairs(listed).items() if redis_rows.is_read(name)}
    rows: Dict[str, List[Any]] = {}
    read = list(objects)
    for at in range(0, len(read), _AT_ONCE):
        _require_time(until)
        some = read[at : at + _AT_ONCE]
        answers = redis.answers([["HMGET", "COUNTERS:" + objects[name], *fields] for name in some])
        for place, row in enumerate(answers):
            rows[some[place]] = row if _is_row(row) and len(row) == len(fields) else [None] * len(fields)
    return redis_rows.counters(fields, rows)


def _require_time(until: float) -> None:
    if time.monotonic() > until:
        raise socket.timeout()
