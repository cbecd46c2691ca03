"""Manifest of a Kubernetes MPIJob that runs the script of a campaign's rounds.

The format is kubeflow.org/v2beta1 of the MPI operator (pkg/apis/kubeflow/v2beta1/types.go). One worker pod runs on each
node. preflight only prints the manifest; it creates nothing in a cluster.
"""

from __future__ import annotations

import json
import math
import textwrap

from preflight.bench.campaign import CampaignPlan
from preflight.campaign.command_lines import WATCH_S
from preflight.campaign.scripts import NODE_FILE
from preflight.terminal import UsageError

#: Maximum number of bytes in a script: the limit of a ConfigMap (1 MiB), minus room for its metadata.
_LARGEST = 1_040_000

#: Seconds, in addition to the budget, for pulling images and starting workers.
_START_S = 600

_MANIFEST = """\
# {nodes} nodes, one worker on each; no other job may run on them:
#   kubectl apply -f FILE
#   kubectl wait --for=condition=Complete --timeout={deadline}s job/{name}-launcher
#   kubectl logs job/{name}-launcher | sed -n 's/^campaign: //p' | base64 -d | tar xz
#   preflight judge {name}
# Add the RDMA resource and the network annotation of your cluster to the workers.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
  rounds.sh: |
{script}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: {name}
spec:
  slotsPerWorker: 1
  launcherCreationPolicy: WaitForWorkersReady
  runPolicy:
    cleanPodPolicy: All
    backoffLimit: 0
    activeDeadlineSeconds: {deadline}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: launcher
              image: {image}
              command: [sh, /preflight/rounds.sh, /tmp/{name}]
              volumeMounts:
                - {{name: rounds, mountPath: /preflight}}
          volumes:
            - name: rounds
              configMap:
                name: {name}
    Worker:
      replicas: {nodes}
      restartPolicy: Never
      template:
        metadata:
          labels:
            preflight-bench: {label}
        spec:
          affinity:
            nodeAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                nodeSelectorTerms:
                  - matchExpressions:
                      - key: kubernetes.io/hostname
                        operator: In
                        values: {values}
            podAntiAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                - topologyKey: kubernetes.io/hostname
                  labelSelector:
                    matchLabels:
                      preflight-bench: {label}
          containers:
            - name: worker
              image: {image}
              command:
                - sh
                - -c
                - printf '%s\\n' "$NODE_NAME" >{node_file} && mkdir -p /run/sshd && exec /usr/sbin/sshd -De
              env:
                - name: NODE_NAME
                  valueFrom:
                    fieldRef:
                      fieldPath: spec.nodeName
              readinessProbe:
                tcpSocket:
                  port: 22
                periodSeconds: 2
              resources:
                limits:
                  nvidia.com/gpu: {gpus}
              securityContext:
                capabilities:
                  add: [IPC_LOCK]
              volumeMounts:
                - {{name: shm, mountPath: /dev/shm}}
          volumes:
            - name: shm
              emptyDir:
                medium: Memory
"""


def mpijob(plan: CampaignPlan, script: str, image: str) -> str:
    """Return the manifest with a script. Raises UsageError if it cannot contain it."""
    if len(script.encode()) > _LARGEST:
        raise UsageError(f"the script of these rounds is {len(script.encode()):,} bytes, and a ConfigMap holds 1 MiB: "
                         "use fewer nodes")  # fmt: skip
    if wrong := next((sign for sign in script if not sign.isprintable() and sign != "\n"), ""):
        raise UsageError(f"--env: a manifest cannot contain the character {wrong!r}")
    return _MANIFEST.format(
        nodes=len(plan.nodes), name=f"preflight-bench-{plan.id}", image=json.dumps(image), gpus=plan.gpus,
        label=json.dumps(plan.id), node_file=NODE_FILE, values=json.dumps(list(plan.nodes)),
        deadline=math.ceil(plan.budget_s + plan.run_limit_s) + WATCH_S + _START_S,
        script=textwrap.indent(script.rstrip("\n"), "    ", lambda line: bool(line.strip())),
    )  # fmt: skip
