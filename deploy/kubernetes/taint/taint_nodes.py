"""Taint the nodes that preflight fails, and remove the taint when they pass: ``taint_nodes.py --mode=apply``.

The verdict is the condition ``PreflightFailed`` that node-problem-detector sets. An unknown, missing or old condition
changes nothing, and neither does a failure of the job alone (action ``fix-job``). Only a limited share of the nodes has
the taint at any time. Only this taint is ever added or removed. Needs only Python's standard library.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import ssl
import sys
import time
from calendar import timegm
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

CONDITION, KEY, EFFECT = "PreflightFailed", "gpu-preflight/failed", "NoSchedule"
#: Seconds after which a condition is old (node-problem-detector repeats it every five minutes), and allowed clock skew.
OLD_S, SKEW_S = 900, 300
_TIMEOUT_S, _PAGE, _MOST_BYTES, _MOST_NODES = 30, 50, 32 << 20, 20000
_MESSAGE = re.compile(r"(?:\[([a-z-]{1,20})\] )?([A-Za-z0-9][A-Za-z0-9._-]{0,61}[A-Za-z0-9])\b")

Node = Mapping[str, Any]


class ApiError(Exception):
    """The API server refused a request or gave no answer; ``status`` is 0 without one."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the status and the reason."""
        super().__init__(text)
        self.status = status


class Api:
    """The API server of this pod's cluster, with its service account."""

    def __init__(self, host: str, port: int, account: str) -> None:
        """Take the address, and the folder with token and ca.crt."""
        self._host, self._port, self._account = host, port, account

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the decoded answer; raises ApiError."""
        try:
            with open(os.path.join(self._account, "token"), encoding="ascii") as stream:
                headers = {"Authorization": f"Bearer {stream.read().strip()}", "Accept": "application/json"}
            if body is not None:
                headers["Content-Type"] = "application/merge-patch+json"
            context = ssl.create_default_context(cafile=os.path.join(self._account, "ca.crt"))
            server = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=context)
            try:
                server.request(method, path, None if body is None else json.dumps(body), headers)
                answer = server.getresponse()
                text = answer.read(_MOST_BYTES + 1)
            finally:
                server.close()
            if answer.status != 200:
                raise ApiError(answer.status, f"{method} {path.partition('?')[0]}: HTTP status {answer.status}")
            if len(text) > _MOST_BYTES:
                raise ApiError(0, f"{method} {path.partition('?')[0]}: the answer is too long")
            return json.loads(text)
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            raise ApiError(0, f"{method} {path.partition('?')[0]}: {type(error).__name__}: {error}") from None

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes, page by page; raises ApiError."""
        more, number = "", 0
        while True:
            page = self.request("GET", f"/api/v1/nodes?limit={_PAGE}" + (f"&continue={quote(more)}" if more else ""))
            for node in page["items"]:
                number += 1
                yield _slim(node)
            more = page.get("metadata", {}).get("continue") or ""
            if not more:
                return
            if number > _MOST_NODES:
                raise ApiError(0, f"more than {_MOST_NODES} nodes")

    def set_taints(self, node: Node, taints: list[dict[str, Any]]) -> None:
        """Replace the taints of a node that has not changed since it was read; raises ApiError."""
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        path = f"/api/v1/nodes/{quote(node['metadata']['name'], safe='')}"
        self.request("PATCH", path, {"metadata": version, "spec": {"taints": taints}})


def _slim(node: Node) -> Node:
    """Return the fields that are used; a node also lists its images."""
    meta, spec = node["metadata"], node.get("spec", {})
    conditions = [one for one in node.get("status", {}).get("conditions") or () if one.get("type") == CONDITION]
    return {
        "metadata": {"name": meta["name"], "resourceVersion": meta["resourceVersion"]},
        "spec": {"taints": spec.get("taints") or [], "unschedulable": spec.get("unschedulable", False)},
        "status": {"conditions": conditions},
    }


def state(node: Node, now: float) -> tuple[str, str]:
    """Return failed, passed or unknown, and the check that failed."""
    conditions = node["status"]["conditions"]
    if len(conditions) != 1:
        return "unknown", ""
    (condition,) = conditions
    try:
        beat = timegm(time.strptime(condition.get("lastHeartbeatTime") or "", "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return "unknown", ""
    if not -SKEW_S <= now - beat <= OLD_S:
        return "unknown", ""
    if condition.get("status") == "False":
        return "passed", ""
    if condition.get("status") != "True":
        return "unknown", ""
    found = _MESSAGE.match(condition.get("message") or "")
    if found and found[1] == "fix-job":
        return "unknown", ""
    return "failed", found[2] if found else "failed"


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == KEY and taint.get("effect") == EFFECT


def _tainted(node: Node) -> bool:
    return any(map(_is_ours, node["spec"]["taints"]))


def plan(nodes: Iterable[Node], now: float, share: float, most: int) -> Iterator[tuple[str, Node, str]]:
    """Yield (remove, add or hold; node; check) for each node whose taint should change.

    ``hold`` is an addition that the limit forbids. Cordoned nodes get no taint; they and unknown nodes do not count.
    """
    judged = [(node, *state(node, now)) for node in nodes]
    for node, status, check in judged:
        if status == "passed" and _tainted(node):
            yield "remove", node, check
    in_service = [item for item in judged
                  if not item[0]["spec"]["unschedulable"] and (item[1] != "unknown" or _tainted(item[0]))]  # fmt: skip
    places = min(most, max(1, int(len(in_service) * share)))
    places -= sum(_tainted(node) and status != "passed" for node, status, _ in in_service)
    for node, status, check in in_service:
        if status == "failed" and not _tainted(node):
            yield "add" if places > 0 else "hold", node, check
            places -= 1


def one_round(api: Api, share: float, most: int, dry_run: bool) -> Iterator[str]:
    """Read all nodes, change taints, yield a line for each change; raises ApiError if the nodes cannot be read."""
    for change, node, check in list(plan(api.nodes(), time.time(), share, most)):
        name = node["metadata"]["name"]
        if change == "hold":
            yield f"NOT TAINTED, alert an administrator: {name} fails {check}, but the limit is reached"
            continue
        taints = [taint for taint in node["spec"]["taints"] if not _is_ours(taint)]
        done = f"removed the taint of {name}"
        if change == "add":
            taints.append({"key": KEY, "value": check, "effect": EFFECT})
            done = f"tainted {name}: {KEY}={check}:{EFFECT}"
        if dry_run:
            yield f"dry run: {done}"
            continue
        try:
            api.set_taints(node, taints)
        except ApiError as error:
            yield f"unchanged until the next round: {name}: {error}"
        else:
            yield done


def main() -> None:
    """Repeat the round until the pod ends."""
    parser = argparse.ArgumentParser(description="Taint nodes that preflight fails.")
    parser.add_argument("--mode", choices=("dry-run", "apply"), default="dry-run", help="dry-run only logs")
    parser.add_argument("--percent", type=float, default=10, help="share of the nodes (%(default)s)")
    parser.add_argument("--most", type=int, default=10, help="number of nodes (%(default)s)")
    parser.add_argument("--interval", type=float, default=60, help="seconds between rounds (%(default)s)")
    parser.add_argument("--account", default="/var/run/secrets/kubernetes.io/serviceaccount", help=argparse.SUPPRESS)
    given = parser.parse_args()
    api = Api(os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]), given.account)
    while True:
        try:
            for line in one_round(api, given.percent / 100, given.most, given.mode == "dry-run"):
                print(line, flush=True)
        except (ApiError, KeyError, TypeError, AttributeError) as error:
            print(f"the nodes cannot be read: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        time.sleep(given.interval)


if __name__ == "__main__":
    main()
