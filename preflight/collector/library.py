"""Child process that calls pynvml or psutil.

A library call cannot be killed, but a process can.
"""

import json
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


def load(name: str, source: str) -> "Any":
    """Import the node's own library, or else the shipped one; raise ImportError."""
    try:
        return _installed(name)
    except ImportError:
        if not source:
            raise
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
    return module


def _installed(name: str) -> "Any":
    """Import a library from the node's packages.

    Full package discovery is slow, because .pth files may run code, so the most common directory is tried first.
    """
    above = os.path.dirname(os.path.dirname(sys.executable))
    prefix = above if os.path.exists(os.path.join(above, "pyvenv.cfg")) else sys.prefix
    packages = os.path.join(prefix, "lib", "python{}.{}".format(*sys.version_info), "site-packages")
    if packages not in sys.path:
        sys.path.append(packages)
    try:
        return __import__(name)
    except ImportError:
        import site

        site.main()
        return __import__(name)


def main() -> None:
    """Answer the calls requested on standard input, with one JSON line per record."""
    request = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    known: "Dict[str, Any]" = {}
    exec(compile(request["answers"], "library_" + request["library"] + ".py", "exec"), known)
    for call in request["calls"]:

        def answer(record: "Dict[str, Any]", call: str = call) -> None:
            sys.stdout.write(json.dumps({"call": call, "record": record}) + "\n")
            sys.stdout.flush()

        try:
            known["CALLS"][call](load(request["library"], request.get("source", "")), answer)
        except ImportError:
            why = "{} is not installed on this node".format(request["library"])
            answer({"status": "missing", "why": why})
        except Exception as error:
            answer({"status": "error", "why": "{}: {}".format(type(error).__name__, error)})


if __name__ == "__main__":
    main()
