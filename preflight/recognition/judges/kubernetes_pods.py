"""Judges of Kubernetes pods and events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.model import Finding, counted, failed, passed, unknown, warned
from preflight.parsers.cluster.kubernetes_events import KubernetesEvent
from preflight.parsers.cluster.kubernetes_pod import ContainerState, PodDescription
from preflight.recognition.judges import Judge, Judged, PastedValue
from preflight.recognition.judges.kubernetes_words import FATAL, NOT_NORMAL, NOT_STARTED, STOPPED, cause, seconds
from preflight.textprep.plain_text import ends_of


def _is_later(event: KubernetesEvent, other: KubernetesEvent) -> bool:
    """Return whether an event is more recent than another.

    Without different ages, the event on the later line is more recent.
    """
    ages = [seconds(item.age) for item in (event, other)]
    if ages[0] is None or ages[1] is None or ages[0] == ages[1]:
        return event.line > other.line
    return ages[0] < ages[1]


def judge_events(events: Sequence[KubernetesEvent]) -> Judged:
    """Return a judge per distinct warning, or one for events without warnings."""
    warnings: dict[str, KubernetesEvent] = {}
    for event in events:
        if event.type == "Warning" or FATAL.fullmatch(event.reason) or _stops(event):
            warnings.setdefault(f"{event.reason} {event.object}", event)
    if not warnings:
        return (("container.state", no_warning),) if events else ()
    # object -> its most recent start, and the last one in the text
    starts: dict[str, tuple[KubernetesEvent, KubernetesEvent]] = {}
    for event in events:
        if event.reason == "Started":
            youngest, _ = starts.get(event.object, (event, event))
            starts[event.object] = (event if _is_later(event, youngest) else youngest, event)
    judges: list[tuple[str, Judge]] = []
    for event in warnings.values():
        started = any(_is_later(start, event) for start in starts.get(event.object, ()))
        judges.append((cause(f"{event.reason} {event.message}")[0], _event_judge(event, started)))
    return tuple(judges)


def _stops(event: KubernetesEvent) -> bool:
    """Return whether an event of type Normal terminates or blocks a pod."""
    return NOT_NORMAL.fullmatch(event.reason) is not None or STOPPED.search(event.message) is not None


def _event_judge(event: KubernetesEvent, started: bool) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        stopped = not started and NOT_STARTED.search(f"{event.reason}: {event.message}")
        report = failed if stopped or FATAL.search(event.reason) else warned
        since = "; it has started since" if started else ""
        of = f"{event.object}: " if event.object else ""
        yield report(
            f"{of}{event.reason}: {ends_of(event.message, 320)}{since} (line {event.line})", subject=event.object,
            found=event.reason, evidence=part.evidence, fix=cause(f"{event.reason} {event.message}")[1],
        )  # fmt: skip

    return judge_part


def no_warning(part: PastedValue) -> Iterator[Finding]:
    """Report that no event is a warning."""
    yield passed(f"no warning among {counted(len(part.value), 'event')}", evidence=part.evidence)


def judge_pod(pod: PodDescription) -> Judged:
    """Return judges for the containers, the state and the events of a pod."""
    judges: list[tuple[str, Judge]] = []
    for container in pod.containers:
        for state, reason, code in (
            (container.last_state, container.last_reason, container.last_exit_code),  # why it waits for a restart
            (container.state, container.reason, container.exit_code),
        ):
            bad = reason not in ("", "Completed", "ContainerCreating", "PodInitializing") or bool(code)
            if bad and state in ("Terminated", "Waiting"):
                words = f"{reason} exit code {code}" if code is not None else reason
                if container.state == "Waiting" and container.reason not in ("", reason):
                    words += f", now {container.reason}"
                again = state == container.last_state and container.state == "Running" and container.ready is True
                if again:
                    words += f", runs again after {container.restarts or 1} restarts"
                if container.message:
                    words += f": {ends_of(container.message, 320)}"
                judges.append((cause(words)[0], _container_judge(pod, container, state, words, again)))
                break
        if not judges and _ended_somehow(container):
            judges.append(("container.state", _unclear_judge(container)))
    if pod.status in ("Failed", "Unknown") or pod.reason in ("Evicted", "NodeLost", "UnexpectedAdmissionError"):
        judges.append((cause(f"{pod.reason} {pod.message}")[0], _pod_judge(pod)))
    judges += [pair for pair in judge_events(pod.events) if pair[1] is not no_warning]
    return tuple(judges) or (("container.state", pod_runs),)


def _container_judge(pod: PodDescription, container: ContainerState, state: str, words: str, again: bool) -> Judge:
    name = container.name

    def judge_part(part: PastedValue) -> Iterator[Finding]:
        on = f" on {pod.node}" if pod.node else ""
        ended = state == "Terminated" or "BackOff" in words or "Err" in words
        report = failed if ended and not again else warned
        of = f"pod {pod.name}{on}, container {name}" if pod.name or name else "the container"
        yield report(f"{of}: {state.lower()}, {words} (line {container.line})",
                     subject=pod.node or pod.name, found=words, evidence=part.evidence,
                     fix=cause(words)[1])  # fmt: skip

    return judge_part


def _pod_judge(pod: PodDescription) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        words = f"{pod.reason or pod.status}: {ends_of(pod.message, 320)}".rstrip(": ")
        yield failed(f"pod {pod.name}{f' on {pod.node}' if pod.node else ''}: {words}", subject=pod.node or pod.name,
                     found=pod.reason or pod.status, evidence=part.evidence,
                     fix=cause(f"{pod.reason} {pod.message}")[1])  # fmt: skip

    return judge_part


def _unclear_judge(item: ContainerState) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        yield unknown(f"container {item.name} ended, but its exit code cannot be read (line {item.line})",
                      found="terminated", evidence=part.evidence, fix="kubectl logs --previous POD")  # fmt: skip

    return judge_part


def _ended_somehow(item: ContainerState) -> bool:
    """Return whether a container ended without a readable reason or exit code."""
    now = item.state == "Terminated" and item.exit_code is None and not item.reason
    return now or (item.last_state == "Terminated" and item.last_exit_code is None and not item.last_reason)


def pod_runs(part: PastedValue) -> Iterator[Finding]:
    """Report whether a pod is running, if the text shows no fault in it."""
    pod: PodDescription = part.value
    if not pod.name and pod.containers:  # only the states of containers
        if all(item.state == "Running" and item.ready for item in pod.containers):
            yield passed("the container runs, and is ready", evidence=part.evidence)
        else:
            yield unknown(
                "the text does not show why the container is not ready",
                found=pod.containers[0].state,
                evidence=part.evidence,
                fix="Paste the complete output of `kubectl describe pod POD`.",
            )
        return
    waiting = [name for name, value in pod.conditions if value != "True"]
    if pod.status in ("Running", "Succeeded") and not (waiting and pod.status == "Running"):
        yield passed(f"pod {pod.name} is {pod.status}", evidence=part.evidence)
    else:
        yield unknown(f"pod {pod.name} is {pod.status or 'in an unknown state'}, and no event shows why",
                      found=pod.status, evidence=part.evidence, fix=f"kubectl get events --field-selector "
                      f"involvedObject.name={pod.name}")  # fmt: skip
