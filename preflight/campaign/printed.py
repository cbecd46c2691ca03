"""Output of ``preflight bench --print``, and description of a campaign's load."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace

from preflight.bench import campaign, shared_uplinks
from preflight.bench.campaign import CampaignPlan
from preflight.bench.planner import fixed_rounds, next_round
from preflight.campaign import manifest
from preflight.campaign.command_lines import command
from preflight.campaign.folder import CampaignFolder
from preflight.campaign.scripts import MPIJOB, POD_SSH_CONFIG, ScriptRounds, script
from preflight.nodeset import fold
from preflight.terminal import UsageError

_SPINES = "a round loads all uplinks between these leaves at once; other jobs on these switches become slower\n"


def load(plan: CampaignPlan) -> str:
    """Describe the nodes, the load and the limits of a campaign."""
    pairs = len(plan.nodes) // 2
    leaves = len(set(plan.leaves.values()))
    return (
        f"{len(plan.nodes)} nodes{f' on {leaves} leaves' if leaves else ''}: {fold(plan.nodes)}\n"
        f"{pairs} pairs in parallel, {plan.gpus} GPU{'s' * (plan.gpus != 1)} per node, {plan.collective} of "
        f"{plan.bytes:,} bytes; no other job may run on these nodes\n"
        f"{_SPINES if plan.loaded else ''}"
        f"at most {plan.budget_s:g} s, each run at most {plan.run_limit_s:g} s, over {plan.via}\n"
    )


def rounds(plan: CampaignPlan, form: str, opened: CampaignFolder | None, image: str | None) -> str:
    """Return the next rounds as a script, or as a manifest with the script.

    Raises UsageError if there are none, or if the form does not fit the campaign.
    """
    if (plan.via == "srun") is not (form == "sbatch") and not plan.job:
        raise UsageError(f"the campaign uses {plan.via}; use --print {'sbatch' if plan.via == 'srun' else 'sh'}")
    done = opened.done if opened else campaign.Campaign(plan)
    reports = opened.reports() if opened else {}
    bench_plan = campaign.bench_plan(done, reports, done.left_out)
    recorded = len(done.rounds)
    open_runs = done.open_runs(recorded) if recorded else []
    following = [done.rounds[-1]] if open_runs else []
    if not following:
        planned = [next_round(bench_plan, campaign.past(done, reports))] if done.rounds else fixed_rounds(bench_plan)
        following = [shared_uplinks.planned(done, reports, made, {}) for made in planned if made]
    if not following:
        raise UsageError("no runs are left; for the result: preflight judge DIR")
    first = max((launch.number for launch in done.launches), default=0) + 1
    where = os.path.abspath(opened.path) if opened else ""
    made = ScriptRounds(following, first, recorded, open_runs, where)
    rails = campaign.rails(done, reports)
    if form != MPIJOB:
        return script(plan, form, made, rails)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,300}", image or ""):
        raise UsageError(f"--image {image} is not an image name")
    plan = replace(plan, ssh_config=POD_SSH_CONFIG)
    journal = [json.dumps(line, separators=(",", ":")) for line in opened.lines] if opened else ()
    return manifest.mpijob(plan, script(plan, form, replace(made, journal=journal), rails), image or "")


def first_round(plan: CampaignPlan, opened: CampaignFolder | None) -> str:
    """Describe the load of a campaign, and the command lines of its next round."""
    done = opened.done if opened else campaign.Campaign(plan)
    reports = opened.reports() if opened else {}
    planned = next_round(campaign.bench_plan(done, reports, done.left_out), campaign.past(done, reports))
    text = load(plan)
    if planned is None:
        return f"{text}no runs are left\n"
    text += f"round {planned.number}, {planned.purpose}; later rounds depend on its results:\n"
    rails = campaign.rails(done, reports)
    for run in planned.runs:
        made = command(plan, run, rails, os.environ)
        given = [f"{name}={made.environment[name]}" for name in sorted(made.environment)
                 if name in plan.environment or name in ("CUDA_VISIBLE_DEVICES", "PREFLIGHT_BENCH")]  # fmt: skip
        text += f"  {shlex.join(['env', *given, *made.argv])}\n"
    return text
