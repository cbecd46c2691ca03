"""Plan of a job as text: step, memory, axes, violations, next command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight.facts.host import size_text
from preflight.reports.sanitize import one_line

#: Statuses that need attention, in order.
ORDER = ("fail", "warn", "unknown")
#: Maximum number of notes that are shown.
_MOST_NOTES = 20
GIB = 2**30


def render(plan: Mapping[str, Any], *, explain: bool = False) -> str:
    """Return the text of a ``preflight.layout/1`` document."""
    lines = [*headline(plan), *_findings(plan), *_budget(plan), *_compared(plan)]
    lines += [*_axes(plan), *_links(plan), *_batches(plan), *_costs(plan, explain=explain), *_search(plan)]
    if explain:
        lines += _timeline(plan)
        lines += ["", "rates"] if plan["rates"] else []
        lines += [f"  {own['name']:24}{own['value']:16}{own['origin']}" for own in plan["rates"]]
        lines += [f"  {'cluster':24}{'':16}{one_line(plan['cluster']['source'])}"] if plan["cluster"] else []
        lines += ["", "settings"]
        lines += [
            f"  {name:24}{one_line(str(own['value'])):16}{one_line(own['origin'])}"
            for name, own in plan["settings"].items()
        ]
        lines += [f"  {level:24}{'measured':16}{one_line(origin)}" for level, origin in plan["measured"].items()]
    lines += [f"note: {one_line(gap)}" for gap in plan["gaps"][:_MOST_NOTES]]
    if (more := len(plan["gaps"]) - _MOST_NOTES) > 0:
        lines.append(f"note: and {more:,} more notes (--json has them)")
    return "\n".join(lines) + "\n"


def headline(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first lines: job, step and memory, or why there is no plan."""
    job, step, memory, cluster = plan["job"], plan["step"], plan["memory"], plan["cluster"]
    where = f"{cluster['nodes'] or '?'} x {cluster['part']}" if cluster else "an unknown cluster"
    if job is None:
        yield f"no plan: {one_line(plan['unknown'][-1])}"
        return
    active = f" ({job['active_parameters'] / 1e9:.1f} active)" if job["active_parameters"] != job["parameters"] else ""
    sizes = " ".join(f"{short}{job[name]}" for short, name in _SHORT if job[name] > 1)
    yield (
        f"{job['parameters'] / 1e9:.1f} B parameters{active} on {job['gpus']:,} GPUs of {one_line(where)}: "
        f"{sizes + ' ' if sizes else ''}dp{job['data']}, {job['microbatches']} microbatches"
    )
    if step is None:
        yield f"step    unknown: {one_line(plan['unknown'][-1])}"
    else:
        yield (
            f"step    {step['seconds']:.4g} s ({step['low']:.3g} to {step['high']:.3g}), "
            f"{step['tokens_per_second']:,.0f} tokens/s, {step['flops_per_gpu'] / 1e12:.0f} TFLOP/s per GPU, "
            f"MFU {step['mfu']:.1%}"
        )
    available = f" of {cluster['memory_gib']:g}" if cluster and cluster["memory_gib"] else ""
    parts = ", ".join(f"{name} {memory[f'{name}_gib']:.1f}" for name in _MEMORY if memory[f"{name}_gib"] >= 0.05)
    yield f"memory  {memory['total_gib']:.1f}{available} GiB in tensors: {parts}"


_SHORT = (("tp", "tensor"), ("cp", "context"), ("ep", "expert"), ("pp", "pipeline"), ("vp", "virtual_stages"))
_MEMORY = ("weights", "gradients", "states", "buffers", "activations", "logits")


def _findings(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield findings that need attention, then the checks that pass."""
    findings = plan["findings"]
    open_checks = {finding["check"] for finding in findings if finding["status"] in ORDER}
    for status in ORDER:
        alike: dict[tuple[str, str], list[str]] = {}
        for finding in findings:
            if finding["status"] == status:
                alike.setdefault((finding["message"], finding.get("fix") or ""), []).append(finding["check"])
        for (message, fix), names in alike.items():
            more = f" and {len(names) - 1} more checks" if len(names) > 1 else ""
            yield f"{status.upper():<8}{names[0]}{more}: {one_line(message)}"
            if fix:
                yield f"{'':8}{'' if status == 'unknown' else 'fix: '}{one_line(fix)}"
    passed = sorted({finding["check"] for finding in findings if finding["status"] == "pass"} - open_checks)
    if passed:
        yield f"{'PASS':<8}{', '.join(passed)}"


def _budget(plan: Mapping[str, Any]) -> Iterator[str]:
    if plan["step"] is None:
        return
    total = plan["step"]["seconds"]
    yield ""
    yield f"{'of the step':16}{'share':>7} {'time':>10} {'hidden':>10}   bandwidth assumed"
    for part in plan["step"]["parts"]:
        if part["seconds"] + part["hidden"] < 0.0005 * total:
            continue
        busbw = (
            f"   {part['busbw_gbytes_s']:.0f} GB/s over {part['crosses']} ({part['basis']})" if part["basis"] else ""
        )
        hidden = f"{part['hidden']:.3g} s" if part["hidden"] else ""
        yield f"{part['name']:16}{part['seconds'] / total:>7.1%} {part['seconds']:>8.3g} s {hidden:>10}{busbw}"


def _compared(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the measured parts of a step beside the planned ones."""
    compared = plan["compared"]
    if compared is None:
        return
    ranks = f"of {compared['ranks']} rank{'s' if compared['ranks'] > 1 else ''}" if compared["ranks"] else "of the log"
    yield ""
    yield f"{ranks:16}{'planned':>10}{'measured':>12}{'waiting':>11}"
    for part in compared["parts"]:
        waiting = f"{part['waiting']:.3g} s" if part["waiting"] >= 0.0005 * compared["seconds"] else ""
        yield f"{part['name']:16}{part['planned']:>8.3g} s{part['measured']:>10.3g} s{waiting:>11}".rstrip()
    if compared["parts"]:
        yield f"{'idle':16}{'':>10}{compared['idle']:>10.3g} s"
    yield f"{'step':16}{plan['step']['seconds']:>8.3g} s{compared['seconds']:>10.3g} s"


def _axes(plan: Mapping[str, Any]) -> Iterator[str]:
    if not plan["axes"]:
        return
    yield ""
    yield f"{'axis':16}{'ranks':>6}  {'crosses':8}{'collective':16}{'each':>10} {'times':>8} {'sent per step':>14}"
    for own in plan["axes"]:
        yield (
            f"{own['axis']:16}{own['ranks']:>6}  {own['crosses']:8}{own['collective']:16}"
            f"{size_text(own['bytes']):>10} {round(own['count']):>8,} {size_text(own['bytes_of_step']):>14}"
        )


def _links(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the load of each link of a GPU."""
    if not plan["links"]:
        return
    yield ""
    yield f"{'link of a GPU':16}{'sent per step':>14} {'line rate':>11} {'busy':>7}   mostly"
    for own in plan["links"]:
        sent = size_text(own["bytes_of_step"]) if own["bytes_of_step"] is not None else "unknown"
        rate = f"{own['gbytes_s']:,.0f} GB/s" if own["gbytes_s"] is not None else "unknown"
        busy = f"{own['busy']:.1%}" if own["busy"] is not None else "unknown"
        yield f"{own['link']:16}{sent:>14} {rate:>11} {busy:>7}   {one_line(own['largest'])}".rstrip()


def _batches(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tokens per GPU that are needed to hide each level's all-reduce."""
    if not plan["batches"]:
        return
    yield ""
    yield f"{'batch per GPU':16}{'needs >':>9}{'has':>10}   all-reduce that overlaps with it"
    for own in plan["batches"]:
        yield (
            f"{own['level']:16}{own['too_few_tokens']:>9,}{own['tokens']:>10,.0f}   "
            f"{own['all_reduce_gbytes_s']:.0f} GB/s{'' if own['busy'] else ': GPUs wait'}"
        )


def _costs(plan: Mapping[str, Any], *, explain: bool) -> Iterator[str]:
    """Yield the costs and, with ``explain``, the missing inputs."""
    computed = [own for own in plan["costs"] if own["value"] is not None]
    if computed or explain:
        yield ""
    for own in computed:
        yield f"{own['name']:20} {own['value']:,.0f} {own['unit']}".rstrip() + f" = {one_line(own['origin'])}"
    for own in plan["costs"] if explain else ():
        if own["missing"]:
            wanted = ", ".join(f"--set {name}=... ({what})" for name, what in own["missing"].items())
            yield f"{own['name']:20} unknown: state {wanted}"


def _timeline(plan: Mapping[str, Any]) -> list[str]:
    """Return the busy stages of a pipeline in each slot; nothing for over 40 slots."""
    own = plan["pipeline"]
    if own is None or not 0 < len(own["active"]) <= 40:
        return []
    steps = " ".join(map(str, own["active"]))
    return ["", f"{'stages at work':20} {steps} of {own['stages']}: {own['busy']:.0%} busy"]


def _search(plan: Mapping[str, Any]) -> Iterator[str]:
    if plan["search"] is None:
        return
    yield ""
    if not plan["search"]:
        yield "no layout on these GPUs fits in their memory"
        return
    yield "fastest layouts that fit"
    for own in plan["search"]:
        yield f"{own['seconds']:>9.4g} s  {own['memory_gib']:.0f} GiB  MFU {own['mfu']:.1%}  {own['difference']}"
