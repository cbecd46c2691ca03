"""Kubernetes and Slurm texts as people paste them: each unhealthy object is named; made by hand."""

from __future__ import annotations

import gc
import json
import time
from typing import Any

import pytest

from preflight.recognition import exit_status, read_text


def findings(text: str) -> list[tuple[str, str]]:
    """Return status and message of each finding."""
    return [(finding["status"], finding["message"]) for part in read_text(text, "pasted") for finding in part.findings]


def facts(text: str) -> dict[str, Any]:
    """Return the facts of the one part."""
    (part,) = read_text(text, "pasted")
    return part.taken.facts


DAEMONS = """NAME        DESIRED   CURRENT   READY   UP-TO-DATE   AVAILABLE   NODE SELECTOR   AGE
plugin-a    9         9         {ready}       9            {ready}           <none>          30d
plugin-b    9         9         9       9            9           <none>          30d
"""


def test_a_table_of_any_kind_names_the_row_that_is_not_well() -> None:
    assert findings(DAEMONS.format(ready=9)) == [("pass", "2 objects are healthy")]
    assert findings(DAEMONS.format(ready=7)) == [("warn", "plugin-a: 7 of 9 ready (line 2)")]


@pytest.mark.parametrize(
    ("state", "status"),
    [("Running", "pass"), ("Succeeded", "pass"), ("Failed", "fail"), ("notReady", "warn"), ("Frobbed", "unknown")],
)
def test_a_state_that_is_not_known_is_shown_as_it_is_printed(state: str, status: str) -> None:
    ((got, message),) = findings(f"NAME      STATE       AGE\njob-a     {state:<11} 4h\n")
    assert got == status
    assert status == "pass" or state in message


def test_a_state_in_a_column_of_any_name_is_not_silent() -> None:
    assert findings("NAME   JOB STATUS   AGE\na      FAILED       3h\n")[0][0] == "fail"
    assert findings("NAME   PROBE    READY   AGE\na      Failed   1/1     3h\n")[0][0] == "warn"
    assert findings("NAME   JOB STATUS   AGE\na      SUCCEEDED    3h\n")[0][0] == "pass"


def test_an_empty_cell_does_not_shift_the_others() -> None:
    text = "NAME     STATUS    VOLUME    CLASS    AGE\nclaim    Pending             fast     3m\n"
    assert facts(text)["objects"][0]["columns"] == {
        "NAME": "claim", "STATUS": "Pending", "VOLUME": "", "CLASS": "fast", "AGE": "3m",
    }  # fmt: skip


POD = """apiVersion: v1
kind: Pod
metadata:
  name: worker-1
  namespace: team
spec:
  nodeName: gpu-5
status:
  containerStatuses:
  - lastState:
      terminated:
        exitCode: 137
        reason: OOMKilled
    name: train
    ready: false
    restartCount: 4
    state:
      waiting:
        message: 'back-off: restarting'
        reason: CrashLoopBackOff
  phase: Running
"""


def test_a_pod_as_yaml_names_its_last_end_and_what_it_waits_for() -> None:
    ((status, message),) = findings(POD)
    assert status == "fail"
    assert "pod worker-1 on gpu-5, container train" in message
    assert "OOMKilled exit code 137, now CrashLoopBackOff" in message


def test_a_pod_as_json_reads_as_the_same_as_yaml() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    container = {"name": "train", "ready": False, "restartCount": 4, "state": waiting,
                 "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker-1", "namespace": "team"},
           "spec": {"nodeName": "gpu-5"}, "status": {"phase": "Running", "containerStatuses": [container]}}  # fmt: skip
    for text in (json.dumps(pod), json.dumps({"kind": "List", "apiVersion": "v1", "items": [pod]}, indent=4)):
        own = facts(text)["pods"][0]
        yaml = facts(POD)["pods"][0]
        for container in (*own["containers"], *yaml["containers"]):
            del container["line"]
        assert own == yaml


def test_a_manifest_has_no_status_and_is_left_to_others() -> None:
    assert read_text(POD.partition("status:")[0], "pasted") == []


def test_conditions_of_a_node_as_json() -> None:
    def node(pressure: str) -> str:
        conditions = [{"type": "DiskPressure", "status": pressure, "reason": "KubeletHasDiskPressure"},
                      {"type": "Ready", "status": "True", "reason": "KubeletReady"}]  # fmt: skip
        return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-5"},
                           "status": {"conditions": conditions}})  # fmt: skip

    assert [status for status, _ in findings(node("False"))] == ["pass"]
    assert findings(node("True"))[0][0] == "fail"
    assert "node gpu-5: DiskPressure is True" in findings(node("True"))[0][1]


DESCRIBED = """Name:         run-7
Namespace:    team
Labels:       <none>
API Version:  example.org/v1
Kind:         TrainJob
Status:
  Conditions:
    Last Transition Time:  2026-10-01T12:00:00Z
    Reason:                Created
    Status:                True
    Type:                  Created
    Last Transition Time:  2026-10-01T13:00:00Z
    Message:               one replica ended with an error
    Reason:                ReplicaFailed
    Status:                {failed}
    Type:                  Failed
Events:  <none>
"""


def test_a_description_of_any_kind_has_its_conditions() -> None:
    assert [status for status, _ in findings(DESCRIBED.format(failed="False"))] == ["pass"]
    ((status, message),) = findings(DESCRIBED.format(failed="True"))
    assert status == "fail"
    assert "TrainJob run-7: Failed is True (ReplicaFailed: one replica ended with an error)" in message


QUEUE = """             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                11     train    one-a     anne  R    3:12:44      4 gpu[1-4]
                12     train    two-b     anne PD       0:00      4 ({reason})
"""


@pytest.mark.parametrize("reason", ["Priority", "Resources", "Dependency"])
def test_a_job_that_waits_as_it_should_is_none(reason: str) -> None:
    assert [status for status, _ in findings(QUEUE.format(reason=reason))] == ["pass"]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("launch failed requeued held", "warn"), ("DependencyNeverSatisfied", "warn"), ("ReqNodeNotAvail", "unknown"),
        # a limit: as intended, or too low for the job
        ("QOSMaxGRESPerUser", "unknown"), ("AssocGrpGRES", "unknown"),
    ],
)  # fmt: skip
def test_a_job_that_will_not_start_is_named(reason: str, status: str) -> None:
    ((got, message),) = findings(QUEUE.format(reason=reason))
    assert (got, message.partition(":")[0]) == (status, "job 12 waits")


def test_an_exit_by_a_signal_is_named() -> None:
    text = "JobID|State|ExitCode|NodeList\n5|FAILED|0:9|n1\n6|FAILED|139:0|n2\n7|COMPLETED|0:0|n3\n"
    assert [("SIGKILL" in message, "SIGSEGV" in message) for _, message in findings(text)] == [
        (True, False), (False, True),
    ]  # fmt: skip


def test_slurms_json_reads_as_its_tables() -> None:
    rows = [{"node": {"state": states}, "nodes": {"nodes": [name]}, "partition": {"name": "p"},
             "reason": {"description": reason}}
            for name, states, reason in (("n1", ["IDLE"], ""), ("n2", ["DOWN", "DRAIN"], "no link"))]  # fmt: skip
    ((status, message),) = findings(json.dumps({"sinfo": rows, "errors": []}, indent=1))
    assert status == "fail"
    assert "n2: out of service, state down+drain: no link" in message


def test_a_list_without_a_header_needs_states_of_its_own() -> None:
    assert read_text("eth0 down\neth1 down\neth2 down\n", "pasted") == []
    assert [status for status, _ in findings("n1 idle\nn2 alloc\nn3 mix\n")] == ["pass"]
    assert findings("n1 idle\nn2 down*\nn3 mix\n")[0][0] == "fail"


def test_controllers_and_partitions() -> None:
    assert findings("Slurmctld(primary) at c1 is UP\n")[0][0] == "pass"
    assert findings("Slurmctld(primary) at c1 is DOWN\n")[0][0] == "fail"
    partition = "PartitionName=p\n   Nodes=n[1-4]\n   State={} TotalCPUs=8 TotalNodes=4\n"
    assert findings(partition.format("UP"))[0][0] == "pass"
    assert findings(partition.format("DOWN"))[0][0] == "warn"


def test_cut_json_is_a_gap_and_no_pass() -> None:
    (part,) = read_text('{\n "apiVersion": "v1",\n "kind": "Pod",\n "status": {\n', "pasted")
    assert part.taken.cut
    assert part.findings == []


NODE_EXCERPT = """Name:               gn-014
Conditions:
  Type             Status  Reason                       Message
  ----             ------  ------                       -------
  MemoryPressure   False   KubeletHasSufficientMemory   kubelet has sufficient memory available
  Ready            True    KubeletReady                 kubelet is posting ready status
Capacity:
  cpu:             96
  nvidia.com/gpu:  4
Allocatable:
  cpu:             94
  nvidia.com/gpu:  {offered}
"""


@pytest.mark.parametrize("first", [0, 1, 6])
def test_sections_of_a_node_are_read_without_the_rest_of_it(first: int) -> None:
    """As left by `kubectl describe node | grep -A`: with its name, or only its conditions or capacity."""
    healthy = "\n".join(NODE_EXCERPT.format(offered=4).split("\n")[first:])
    assert {status for status, _ in findings(healthy)} == {"pass"}
    sick = findings("\n".join(NODE_EXCERPT.format(offered=3).split("\n")[first:]))
    assert any(status == "fail" and "3 of 4 nvidia.com/gpu" in message for status, message in sick)


def test_allocatable_devices_of_a_nodes_yaml() -> None:
    yaml = '  allocatable:\n    cpu: "94"\n    nvidia.com/gpu: "3"\n  capacity:\n    nvidia.com/gpu: "4"\n'
    assert findings(yaml)[0][0] == "fail"
    assert findings(yaml.replace('"3"', '"4"'))[0][0] == "pass"


STATUSES = {
    "described": """Status:
  Conditions:
    Last Transition Time:  2026-10-03T07:00:00Z
    Message:               {words}
    Reason:                {reason}
    Status:                True
    Type:                  {type}
""",
    "YAML": """  status:
    conditions:
    - lastTransitionTime: "2026-10-03T07:00:00Z"
      message: '{words}'
      reason: {reason}
      status: "True"
      type: {type}
""",
    "conditions alone": """conditions:
- type: {type}
  status: "True"
  reason: {reason}
  message: '{words}'
""",
}


@pytest.mark.parametrize("form", STATUSES)
def test_a_status_without_its_object(form: str) -> None:
    sick = findings(STATUSES[form].format(type="Failed", reason="JobFailed", words="worker 5 ended: exit code 134"))
    assert [status for status, _ in sick] == ["fail"]
    assert "worker 5 ended: exit code 134" in sick[0][1]
    healthy = findings(STATUSES[form].format(type="Running", reason="JobRunning", words="all workers run"))
    assert [status for status, _ in healthy] == ["pass"]


STATE = """    State:          {state}
      Reason:       {reason}
      Exit Code:    {code}
    Ready:          {ready}
    Restart Count:  2
"""


def test_the_state_of_a_container_without_its_pod() -> None:
    sick = findings(STATE.format(state="Terminated", reason="Error", code=134, ready="False"))
    assert [(status, "exit code 134" in message) for status, message in sick] == [("fail", True)]
    running = "    State:          Running\n      Started:      Sat\n    Ready:          True\n    Restart Count:  0\n"
    assert [status for status, _ in findings(running)] == ["pass"]
    assert exit_status([("pasted", read_text(running, "pasted"))]) == 0, "an excerpt lacks nothing that it is about"


EVENTS = """LAST SEEN   TYPE      REASON                   OBJECT      MESSAGE
{age}          Warning   FailedCreatePodSandBox   pod/rank3   {words}
6m          Normal    Started                  pod/{other}   Started container main
"""
LONG = ("Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "
        f"\"{'3f' * 30}\": plugin type=\"multus\" failed (add): [{'ns' * 40}]: error adding container to network: "
        "no device with the address 0000:c1:00.7")  # fmt: skip


def test_an_events_message_is_quoted_to_its_end() -> None:
    """The wrapper of an error comes first, its cause last: a container that does not start is a failure."""
    ((status, message),) = findings(EVENTS.format(age="2m", words=LONG, other="rank4"))
    assert status == "fail"
    assert "no device with the address 0000:c1:00.7" in message
    assert len(message) < 450


def test_a_container_that_was_started_since_is_no_failure() -> None:
    assert findings(EVENTS.format(age="9m", words=LONG, other="rank3"))[0][0] == "warn"
    assert findings(EVENTS.format(age="2m", words=LONG, other="rank3"))[0][0] == "fail", "it failed after that"


def test_a_waiting_job_shows_what_it_waits_for() -> None:
    assert "AssocGrpGRES" in findings(QUEUE.format(reason="AssocGrpGRES"))[0][1]


def test_conditions_that_are_not_so_with_a_reason_are_unknown() -> None:
    sick = STATUSES["conditions alone"].replace('"True"', '"False"')
    ((status, message),) = findings(
        sick.format(
            type="QuotaReserved", reason="Pending", words="insufficient unused quota for nvidia.com/gpu, 8 more"
        )
    )
    assert status == "unknown"
    assert "8 more" in message
    waits = sick.format(type="Paused", reason="NotPaused", words="the job is not paused")
    assert [status for status, _ in findings(waits)] == ["pass"]


def test_why_a_container_does_not_start_is_quoted() -> None:
    text = """    State:          Waiting
      Reason:       RunContainerError
    Last State:     Terminated
      Reason:       StartError
      Message:      OCI runtime create failed: nvidia-container-cli: load library failed: libcuda.so.1: no such file
      Exit Code:    128
    Ready:          False
"""
    ((status, message),) = findings(text)
    assert status == "fail"
    assert "libcuda.so.1: no such file" in message
    message = "couldn't find key HF_TOKEN in Secret ml/tokens"
    pod = {"kind": "Pod", "metadata": {"name": "w-0"}, "status": {"phase": "Pending", "containerStatuses": [
        {"name": "main", "ready": False, "restartCount": 0,
         "state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}}]}}  # fmt: skip
    assert message in findings(json.dumps(pod, indent=1))[0][1]


@pytest.mark.parametrize(
    ("taint", "status"),
    [
        ("acme.io/gpu-unhealthy=true:NoSchedule", "warn"),
        ("acme.io/reserved=mia:NoSchedule", "unknown"),
        ("nvidia.com/gpu=present:NoSchedule", "pass"),
        ("dedicated=training:NoSchedule", "pass"),
    ],
)
def test_a_taint_is_named_where_it_is_not_usual(taint: str, status: str) -> None:
    text = "Name:               gn-2\nRoles:              worker\n" + f"Taints:             {taint}\n"
    text += NODE_EXCERPT.format(offered=4).partition("\n")[2]
    assert {got for got, _ in findings(text)} == {"pass", status}


def test_what_many_events_cost_grows_with_their_number() -> None:
    """Each of many reasons of one pod is compared only with its last start."""

    def cost(number: int) -> float:
        reasons = (f"R{chr(97 + at // 676)}{chr(97 + at // 26 % 26)}{chr(97 + at % 26)}" for at in range(number))
        text = "".join(f"1m  Warning  {name}  pod/w  x\n1m  Normal  Started  pod/w  x\n" for name in reasons)
        gc.collect()
        gc.disable()  # otherwise a full garbage collection would visit all objects of earlier tests
        try:
            begin = time.process_time()
            assert findings(text)
            return time.process_time() - begin
        finally:
            gc.enable()

    cost(10)
    assert cost(1600) < 10 * cost(400)


@pytest.mark.parametrize(("state", "code", "status"), [
    ({"running": {}}, 139, "warn"), ({"waiting": {"reason": "CrashLoopBackOff"}}, 139, "fail"),
    ({"running": {}}, 0, "pass"), ({"running": {}}, float("nan"), "unknown"),
])  # fmt: skip
def test_a_container_that_ended_and_runs_again(state: dict[str, Any], code: float, status: str) -> None:
    ended = {"exitCode": code} | ({"reason": "Completed"} if code == 0 else {})
    container = {"name": "train", "ready": "running" in state, "restartCount": 3, "state": state,
                 "lastState": {"terminated": ended}}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "heron-0"},
           "status": {"phase": "Running", "containerStatuses": [container]}}  # fmt: skip
    (part,) = read_text(json.dumps(pod, indent=1) + "\n", "pasted")
    assert [item["status"] for item in part.findings] == [status]


def test_findings_about_very_many_objects_are_summarised() -> None:
    """A finding for each of 40,000 pods took 300 MiB, and a minute."""
    pods = "".join(f"5m  Warning  BackOff  pod/train-{number}  Back-off restarting failed container\n"
                   for number in range(400))  # fmt: skip
    summary = findings("LAST SEEN  TYPE  REASON  OBJECT  MESSAGE\n" + pods)
    assert len(summary) == 257
    assert summary[-1][1].startswith("144 more: pod/train-256, pod/train-257, ")
