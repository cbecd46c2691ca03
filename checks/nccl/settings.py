"""Checks of NCCL variables: unknown names, misread values, contradictions.

The checks judge the environment that a new job would inherit, and the environments of running ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.checks.nccl.settings_scope import concerned, known, nccl_versions, redacted, rule_findings, unread
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.nccl_settings.catalogue import dotted, table
from preflight.facts.nccl_settings.rank_agreement import MUST, values
from preflight.facts.nccl_settings.unknown_names import repeats_default
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, verb, warned

if TYPE_CHECKING:
    from preflight.facts.nccl_settings.collect import RankEnvironment

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


def _nccl(node: NodeFacts) -> int:
    """Return how many of NCCL's variables are set."""
    return sum(setting.name.startswith("NCCL_") for setting in node.nccl_env.settings)


def _counted(node: NodeFacts) -> str:
    number = _nccl(node)
    return f"{number or 'no'} NCCL variable{' is' if number < 2 else 's are'} set"


# --- names -----------------------------------------------------------------------------------------


@check(
    "nccl.unknown-variables",
    title="Every NCCL variable that is set is known to NCCL or a plug-in",
    fault="An NCCL variable is set that no program reads",
    impact="drifts",
    explains=(("fleet.ranks-agree", "part"),),
    source=f"{GUIDE}; names that NCCL 2.3.5 to 2.30.7 and the known plug-ins read",
    fix="Correct the name (`env | grep -i nccl`, /etc/nccl.conf), or unset it; it has no effect.",
    action="fix-job",
    gating=False,  # never fails
)
def unknown_variables(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the names of NCCL variables with those that known programs read.

    These are NCCL, its plug-ins and PyTorch.

    ## Why it matters
    A misspelt name raises no error: the setting has no effect, and time is lost looking for another fix.

    ## Verdicts
    An unknown name warns, and the message shows the nearest known one. So do names that are often used but never
    existed (NCCL_TIMEOUT, NCCL_IB_ENABLE), lower-case names, and lines of a file that begin with ``export``. Names of
    plug-ins, nccl-tests, profilers, images and PyTorch are recognised.

    ## False alarms
    A variable of a plug-in or an NCCL newer than 2.30.7 that this version does not know.
    """
    found = list(rule_findings(node, site, "unknown_names"))
    missing = list(unread(node, "a name that neither NCCL nor a plug-in reads"))
    yield from (*found, *missing)
    if not found and not missing:
        yield passed(f"{_counted(node)}{_owners(node)}", evidence=[PROCESS])


def _owners(node: NodeFacts) -> str:
    if not concerned(node.nccl_env):
        return ""
    owners = {table().owner(one.name) for one in node.nccl_env.settings if "NCCL" in one.name}
    theirs = sorted(owners - {"NCCL", ""})
    every = "its name" if len(node.nccl_env.settings) == 1 else "every name"
    return f"; {every} is known" + (f", and some belong to {', '.join(theirs)}" if theirs else "")


@check(
    "nccl.variable-version",
    title="The installed NCCL reads every NCCL variable that is set",
    fault="The installed NCCL does not read an NCCL variable that is set",
    impact="drifts",
    explains=(("nccl.run-settings", "log"),),
    source=f"{GUIDE} (since, deprecated, removed); names that each of the releases 2.3.5 to 2.30.7 reads",
    fix="Check `env | grep NCCL` and /etc/nccl.conf; use the name of the installed release, or `unset` it.",
    action="fix-job",
    gating=False,  # never fails
)
def variable_version(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the set NCCL variables with those that the installed NCCL reads.

    ## Why it matters
    Scripts outlive releases: a name that was removed in 2.5 is still copied between scripts, and a name from 2.28 has
    no effect in an image with 2.21.

    ## Verdicts
    Removed and renamed names warn with their replacement; deprecated names warn too. Names newer than every installed
    NCCL warn. The installed NCCL is found in the loader's directories and Python packages; if none is found, only
    variables that no release of the newest series reads are reported.

    ## False alarms
    A job whose image has a different NCCL than the node; run preflight inside the container.
    """
    found = list(rule_findings(node, site, "version_names"))
    missing = list(unread(node, "a variable of another release"))
    yield from (*found, *missing)
    if not found and not missing:
        yield passed(f"{_counted(node)}{_releases(node)}", evidence=[PROCESS])


def _releases(node: NodeFacts) -> str:
    if not concerned(node.nccl_env):
        return ""
    versions = nccl_versions(node)
    release = f"NCCL {' and '.join(map(dotted, versions))}" if versions else "the newest NCCL"
    mine = [table().variables.get(one.name) for one in node.nccl_env.settings]
    private = [variable.name for variable in mine if variable is not None and not variable.documented]
    also = f"; {', '.join(private[:3])} {verb(len(private), 'is')} not documented, so any release may change that"
    return f"; no name is deprecated in, removed from or newer than {release}{also if private else ''}"


# --- values ----------------------------------------------------------------------------------------


@check(
    "nccl.variable-values",
    title="NCCL reads the value of every NCCL variable as written",
    fault="NCCL reads the value of an NCCL variable differently",
    impact="slows-job",
    explains=(
        ("nccl.socket-ifname", "part"),
        ("nccl.ib-hca", "part"),
        ("nccl.gid-index", "part"),
        ("nccl.pinned-choices", "part"),
        ("nccl.left-over-disables", "part"),
        ("nccl.contradictions", "part"),
        ("nccl.run-settings", "log"),
    ),
    source=f"{GUIDE}; numbers as in NCCL 2.30 src/misc/param.cc (strtoll, base 0)",
    fix="Correct it in the job script or /etc/nccl.conf: digits without quotes or units, words as in the user guide.",
    action="fix-job",
)
def variable_values(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the value of each NCCL variable as NCCL does, and judge it.

    ## Why it matters
    NCCL silently parses numbers as in C: ``true`` and ``"1"`` are 0, ``4M`` is 4, ``010`` is 8. Quotes, blanks and
    carriage returns become part of a name, and unknown words are ignored.

    ## Verdicts
    Such values warn. An algorithm or protocol unknown to NCCL 2.24 and later fails, because it ends the job. An IB
    time-out below 18 or infinite (at 16, a connection fails after 1.9 s), fewer than 7 retries, a buffer that is not a
    power of two of at least 1 MiB, and an empty value also warn. A value that repeats the default passes.

    ## False alarms
    A time-out or buffer size that was tuned for this fabric; add a comment where it is set.
    """
    found = [*rule_findings(node, site, "bad_values"), *redacted(node)]
    missing = list(unread(node, "a value that NCCL does not read as written"))
    yield from (*found, *missing)
    if not found and not missing:
        yield passed(f"{_counted(node)}{_defaults(node)}", evidence=[PROCESS])


def _defaults(node: NodeFacts) -> str:
    if not concerned(node.nccl_env):
        return ""
    same = repeats_default(node.nccl_env)
    also = f"; {', '.join(same[:3])} {verb(len(same), 'is')} set to the default" if same else ""
    return f"; NCCL takes {'its' if _nccl(node) == 1 else 'every'} value as written{also}"


@check(
    "nccl.contradictions",
    title="No two NCCL variables conflict",
    fault="Two NCCL variables conflict",
    impact="slows-job",
    explains=(("nccl.pinned-choices", "names"), ("nccl.run-settings", "log")),
    source=f"{GUIDE}; NCCL 2.30 src/init.cc, src/transport/, src/graph/tuning.cc",
    fix="Find both (`env | grep NCCL`, /etc/nccl.conf, ~/.nccl.conf); keep the intended one and `unset` the other.",
    action="fix-job",
)
def contradiction(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for NCCL variables that exclude each other or have no effect together.

    ## Why it matters
    The image sets one variable, the user's file another, the job script a third. Each is sensible alone, but together
    they stop the job at start or leave a slow path.

    ## Verdicts
    Conflicts that end the job fail: NCCL_NET=IB with NCCL_IB_DISABLE=1, a plug-in's network without plug-ins, NVLS as
    the only algorithm although NVLS is off, several ranks on a GPU with NVLS required. Others warn, such as a minimum
    number of channels above the maximum. Ranks of one job on the node must agree on algorithm, protocol, buffers and
    channels, otherwise they wait for each other, which fails; any other difference warns.

    ## False alarms
    A variable that is set on purpose for one test and overrides a file for all other jobs.
    """
    found = [*rule_findings(node, site, "contradictions"), *redacted(node), *_ranks_that_differ(node)]
    missing = list(unread(node, "a variable that contradicts others"))
    yield from (*found, *missing)
    if not found and not missing:
        yield passed(f"{_counted(node)}, without contradictions" if _nccl(node) else _counted(node),
                     evidence=[PROCESS])  # fmt: skip


def _ranks_that_differ(node: NodeFacts) -> Iterator[Finding]:
    """Compare the ranks of each job on the node with each other."""
    ranks = known(lambda: node.nccl_ranks)
    jobs: dict[str, list[RankEnvironment]] = {}
    for rank in ranks.environments if ranks is not None else ():
        jobs.setdefault(rank.variables.get("SLURM_JOB_ID", ""), []).append(rank)
    for alike in jobs.values():
        if len(alike) < 2:
            continue
        by_rank = {rank.who: values(rank.variables) for rank in alike[:16]}
        for name in sorted({name for settings in by_rank.values() for name in settings}):
            found = {who: settings.get(name, "unset") for who, settings in by_rank.items()}
            if len(set(found.values())) > 1:
                (one, first), (other, second) = _two_of(found)
                grade = failed if name in MUST else warned
                yield grade(f"{name} is {first} in {one}, and {second} in {other}", subject=name,
                          found=", ".join(sorted(set(found.values()))[:8]), expected="one value in all ranks of a job",
                          evidence=["env:ranks"])  # fmt: skip


def _two_of(found: dict[str, str]) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the first item, and the first one with a different value."""
    first, *rest = found.items()
    return first, next(one for one in rest if one[1] != first[1])


@check(
    "nccl.socket-threads",
    title="NCCL_SOCKET_NTHREADS × NCCL_NSOCKS_PERTHREAD is at most 64",
    fault="NCCL_SOCKET_NTHREADS × NCCL_NSOCKS_PERTHREAD exceeds 64",
    impact="drifts",
    explains=(("nccl.run-settings", "log"),),
    source=f"{GUIDE}#nccl-socket-nthreads; limits of NCCL 2.30 src/transport/net_socket.cc: 16 threads, 64 sockets",
    fix="Unset both, or `export NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4` if TCP needs several sockets.",
    action="fix-job",
    answers=("NT-ENV-8",),
    gating=False,  # never fails
)
def threads(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare TCP threads, and sockets for each connection, with NCCL's limits.

    ## Why it matters
    Beyond 16 threads or 64 sockets, NCCL warns in its log and uses fewer than requested; each thread takes a CPU from
    the ranks and the data loaders.

    ## Verdicts
    More than 16 threads, or a product above 64, warns. The defaults are 1 (AWS: 2 and 8; Google Cloud: 4 threads).

    ## False alarms
    A node that uses only RDMA, where neither has an effect.
    """
    found = [*rule_findings(node, site, "socket_threads"), *redacted(node)]
    missing = list(unread(node, "NCCL_SOCKET_NTHREADS or NCCL_NSOCKS_PERTHREAD"))
    yield from (*found, *missing)
    if not found and not missing:
        limits = [
            one.text for one in node.nccl_env.settings if one.name in ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
        ]
        yield passed(
            f"{' with '.join(limits)} is within NCCL's limits"
            if limits
            else "NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD are not set",
            evidence=[PROCESS],
        )
