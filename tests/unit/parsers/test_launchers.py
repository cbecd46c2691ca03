"""Ranks and their distribution, as stated by launchers."""

from __future__ import annotations

import pytest

from preflight.parsers.job_config import megatron
from preflight.parsers.job_config.settings import JobSettings
from tests.support import paths

_ARGUMENTS = " pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size 2\n"


def read(script: str) -> JobSettings:
    return megatron.parse(script + _ARGUMENTS, "train.sh")


def launch(script: str) -> dict[str, object]:
    """Return the resulting settings of the ranks."""
    wanted = ("gpus", "nodes", "gpus_per_node", "distribution")
    return {name: own.value for name, own in read(script).values.items() if name in wanted}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8", {"nodes": 4, "gpus_per_node": 8}),
        ("torchrun --nnodes=4 --nproc-per-node=gpu", {"nodes": 4}),
        # one task starts the ranks of its node: tasks are not ranks, and their distribution is irrelevant
        ("#SBATCH --nodes=4\n#SBATCH --ntasks=4 --ntasks-per-node=1 --gpus-per-node=8\n"
         "srun torchrun --nnodes 4 --nproc_per_node 8", {"nodes": 4, "gpus_per_node": 8}),
        ("#SBATCH --ntasks=4\n#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node 8",
         {"nodes": 4, "gpus_per_node": 8}),
        ("#SBATCH -N 4 --distribution=cyclic\nexport SLURM_DISTRIBUTION=cyclic\n"
         "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8", {"nodes": 4, "gpus_per_node": 8}),
        ("#SBATCH --nodes=4 --gres=gpu:h100:8\nsrun torchrun --nnodes=${SLURM_JOB_NUM_NODES} "
         "--nproc-per-node=$SLURM_GPUS_ON_NODE", {"nodes": 4, "gpus_per_node": 8}),
        ("#SBATCH --nodes=4\nNNODES=${SLURM_NNODES:-1}\nsrun torchrun --nnodes $NNODES --nproc_per_node 8",
         {"nodes": 4, "gpus_per_node": 8}),
        ("NNODES=${SLURM_NNODES:-2}\ntorchrun --nnodes $NNODES --nproc_per_node 8", {"nodes": 2, "gpus_per_node": 8}),
        ("#SBATCH -N 4\n#SBATCH --ntasks-per-node=8\nsrun python", {"nodes": 4, "gpus_per_node": 8}),
        ("srun -N4 -n32 -m cyclic python -m torch", {"nodes": 4, "gpus": 32, "distribution": "cyclic"}),
        ("#SBATCH --gpus=32\nsrun python", {"gpus": 32}),
        ("mpirun -np 32 --map-by node -H gpu1:8,gpu2:8,gpu3:8,gpu4:8 python",
         {"gpus": 32, "gpus_per_node": 8, "distribution": "cyclic"}),
        ("mpirun -np 32 --map-by ppr:8:node python", {"gpus": 32, "gpus_per_node": 8}),
        ("mpirun -n 32 -N 8 --rank-by node python", {"gpus": 32, "gpus_per_node": 8, "distribution": "cyclic"}),
        ("deepspeed --num_nodes 4 --num_gpus 8 train.py", {"nodes": 4, "gpus_per_node": 8}),
        ("accelerate launch --num_processes 32 --num_machines 4", {"gpus": 32, "gpus_per_node": 8}),
        ("srun -N 4 bash -c 'torchrun --nproc_per_node 8 --nnodes 4 x.py'", {"nodes": 4, "gpus_per_node": 8}),
        ("python -m torch -N 7 -n 9 -G 3", {}),
    ],
)  # fmt: skip
def test_ranks_of_a_launcher(script: str, expected: dict[str, object]) -> None:
    assert launch(script) == expected


def test_a_number_of_nodes_that_varies_is_not_read() -> None:
    settings = read("torchrun --nnodes 1:4 --nproc_per_node 8")
    assert "nodes" in settings.unread
    assert settings.gaps == ("train.sh:1: --nnodes: '1:4' is not a number",)


def test_a_command_line_for_another_shell_is_read() -> None:
    text = "srun bash -c 'torchrun --nproc_per_node 8 x.py --num-layers 80 --hidden-size 8192'"
    assert megatron.parse(text, "train.sh").get("layers") == 80


def test_a_variable_that_a_condition_selects_is_requested() -> None:
    text = "if [ $SIZE = 70b ]; then\n TP=8\nelse\n TP=1\nfi\npython --num-layers 8 --tensor-model-parallel-size $TP"
    settings = megatron.parse(text, "train.sh")
    assert settings.get("tensor") is None
    assert "tensor" in settings.unread
    assert settings.gaps == (
        "train.sh:6: --tensor-model-parallel-size: '$TP' is not a number (its value depends on a condition: "
        "lines 2, 4); state it with --set tensor=...",
    )


@pytest.mark.parametrize(
    "text",
    [
        "TP=${TP:-8}\nif true; then\n TP=8\nfi",  # the same value
        'if [ -z "$TP" ]; then TP=8; fi',
        "TP=8\nif true; then\n ARGS=1\nelse\n ARGS=2\nfi",
    ],
)
def test_a_variable_with_one_value_is_read(text: str) -> None:
    script = f"{text}\npython --num-layers 8 --tensor-model-parallel-size $TP"
    assert megatron.parse(script, "train.sh").get("tensor") == 8


def test_long_lists_of_options_are_read_in_linear_time() -> None:
    text = "python --num-layers 8" + " --recompute-modules a b c" * 20_000
    assert megatron.parse(text, "train.sh").get("recompute_modules") == "a,b,c"


MODEL = "python pretrain_gpt.py --num-layers 8"


@pytest.mark.parametrize(
    ("text", "gpus", "each"),
    [
        (f"srun -l uname -n\nexit\nsrun --ntasks=32 {MODEL}", 32, None),  # -n is an option of uname
        (f"srun --ntasks=4 --ntasks-per-node=1 hostname\nsrun --ntasks-per-node=8 {MODEL}", None, 8),
        (f"ON='--nodes=4 --ntasks=4'\nsrun $ON --ntasks-per-node=1 true\nsrun --ntasks-per-node=8 {MODEL}", None, 8),
        (f"srun --ntasks=32 {MODEL}\nsrun --ntasks=1 rm -f lock", 32, None),
        (f"srun --ntasks=1 bash stage.sh\nsrun --ntasks=32 {MODEL}", 32, None),
        (f"srun --ntasks=32 {MODEL}\nsrun -n1 python convert.py", 32, None),
        (f"srun --ntasks=32 ./train --num-layers 8\nsrun -n 1 {MODEL.partition(' --')[0]}", 32, None),
        ("ARGS=(--num-layers 8)\nsrun --ntasks=32 singularity exec x python t.py ${ARGS[@]}\nsrun rm x", 32, None),
        ("srun -N 4 --ntasks-per-node=1 torchrun --nproc_per_node 8 train.py --num-layers 8", None, 8),
        (f"ARGS=(--ntasks 32)\nsrun ${{ARGS[@]}} {MODEL}", 32, None),
    ],
)
def test_the_options_of_one_step_do_not_apply_to_another(text: str, gpus: int | None, each: int | None) -> None:
    settings = megatron.parse(f"#SBATCH --nodes=4\n{text}", "train.sh")
    assert (settings.get("gpus"), settings.get("gpus_per_node"), settings.get("nodes")) == (gpus, each, 4)
    assert not settings.unread
    assert not settings.gaps


def test_our_own_step_does_not_describe_the_job() -> None:
    ours = (paths.ROOT / "deploy/slurm/job.sh").read_text()
    settings = megatron.parse(f"{ours}\nsrun --ntasks-per-node=8 {MODEL}", "train.sh")
    assert (settings.get("gpus"), settings.get("gpus_per_node"), settings.get("nodes")) == (None, 8, 4)
