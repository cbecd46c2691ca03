"""Errors of other tools, and known false alarms: each row with its tests.

The rows are from a survey of public health-check tools (NHC, azurehpc-health-checks, gpud, DCGM, NVSentinel and
others), each with the observed behaviour. A test is named ``file::test``, with the fixture or case in brackets if one
represents the row.
"""

from __future__ import annotations

_SILENT = "scenarios/test_false_alarms.py::test_false_alarm_stays_silent"

#: Row -> the error of another tool, and our tests.
NODE: dict[str, tuple[str, tuple[str, ...]]] = {
    "L01": (
        "a lost configuration means healthy",
        (
            "scenarios/test_lessons.py::test_a_cluster_file_without_content_ends_the_run",
            "unit/expectations/test_cluster.py::test_missing_file",
            "unit/expectations/test_cluster.py::test_unreadable_file",
        ),
    ),
    "L02": (
        "an unknown hardware type passes",
        (
            "scenarios/test_lessons.py::test_a_machine_from_nowhere_passes_nothing_that_needs_its_numbers",
            "unit/facts/test_gpu.py::test_a_part_from_nowhere_is_unknown_not_well",
        ),
    ),
    "L03": (
        "a proxy's answer taken for a machine type",
        ("scenarios/test_lessons.py::test_no_metadata_service_is_queried",),
    ),
    "L04": (
        "a missing tool finds nothing wrong",
        (
            "scenarios/test_lessons.py::test_no_pass_rests_on_a_probe_that_failed",
            "robustness/judge/test_honesty.py::test_garbage_in_every_record",
            "unit/judge/test_honesty.py::test_no_evidence_at_all",
        ),
    ),
    "L05": (
        "a dead driver means a node without GPUs",
        (
            "scenarios/test_false_alarms.py::test_a_dead_driver_is_no_node_without_gpus",
            "unit/facts/test_gpu.py::test_dead_driver_with_gpus_on_the_bus_is_never_no_gpus",
            "scenarios/test_nodes.py::test_planted_fault[driver not loaded]",
        ),
    ),
    "L06": (
        "a crash is a pass",
        (
            "unit/judge/test_honesty.py::test_a_crash_is_unknown_logged_and_preserves_earlier_results",
            "robustness/judge/test_honesty.py::test_mutated_records_never_crash",
        ),
    ),
    "L07": (
        "an empty answer is a pass",
        (
            "unit/cli/test_cli.py::test_damaged_evidence_is_a_node_without_an_answer",
            "unit/transport/test_local.py::test_an_answer_that_is_cut_or_damaged",
            "integration/ssh/test_openssh.py::test_cut_in_mid_answer",
            "unit/gate/test_verdict_cache.py::test_only_a_complete_verdict_is_accepted",
            "unit/gate/test_gate.py::test_a_node_without_an_answer_is_not_judged",
        ),
    ),
    "L08": (
        "a second look heals",
        (
            "unit/judge/test_honesty.py::test_judging_twice_gives_the_same_bytes",
            "unit/facts/test_gpu.py::test_judging_the_log_twice_gives_the_same",
        ),
    ),
    "L09": (
        "a status lost in the background",
        ("scenarios/test_lessons.py::test_one_failure_among_many_is_the_exit_status",),
    ),
    "L10": (
        "success over a failed part",
        (
            "unit/judge/test_honesty.py::test_overall_is_never_better_than_any_finding",
            "unit/gate/test_gate.py::test_a_verdict_is_never_better_than_any_gating_finding",
        ),
    ),
    "L12": (
        "an interrupted scan is a success",
        (
            "integration/local/test_commands.py::test_an_interrupt_gives_a_report_with_unknown_results",
            "integration/local/test_gate.py::test_a_terminated_gate_reports_what_is_missing",
            "integration/local/test_gate.py::test_a_deadline_ends_what_no_signal_can",
            "integration/local/test_fleet.py::test_the_process_ends_at_a_signal_even_if_a_node_hangs",
            "integration/local/test_fleet.py::test_the_deadline_of_a_run_names_the_nodes_still_queued",
        ),
    ),
    "L11": (
        "a later pass overwrites an earlier failure",
        (
            "scenarios/history/test_fortnight.py::test_what_is_gone",
            "scenarios/history/test_fortnight.py::test_what_came_back",
            "scenarios/history/test_fortnight.py::test_a_node_that_was_silent_is_neither_new_nor_gone",
        ),
    ),
    "L13": ("256 failures are status 0", ("unit/judge/test_honesty.py::test_exit_status",)),
    "L14": (
        "an action without a finding",
        ("unit/facts/test_gpu.py::test_a_failed_remapping_is_one_finding_with_its_fix",),
    ),
    "L15": (
        "a rule that never fires: wrong field index",
        (
            "checks/test_checks.py::test_every_check_can_pass_fail_and_be_unsure",
            "unit/facts/test_gpu.py::test_nvml_and_nvidia_smi_agree",
        ),
    ),
    "L16": (
        "a rule that never fires: nothing prints the word",
        ("checks/test_checks.py::test_every_check_can_pass_fail_and_be_unsure",),
    ),
    "L17": (
        "anything but one bad word is healthy",
        (
            "unit/facts/test_gpu.py::test_words_that_are_not_data",
            "checks/test_checks.py::test_fixture[gpu.fabric-state/insufficient-resources-told-by-nvidia-smi]",
        ),
    ),
    "L18": (
        "nothing configured is passed",
        ("scenarios/test_nodes.py::test_healthy_node_without_a_cluster_file_has_no_fail_and_no_warn",),
    ),
    "L19": (
        "a rehearsal prints passes",
        (
            "scenarios/test_lessons.py::test_a_rehearsal_is_marked_in_every_format",
            "scenarios/test_nodes.py::test_node_documents_state_that_they_are_made_by_hand",
            "integration/local/test_gate.py::test_a_dry_run_holds_no_job_back_and_is_marked_as_one",
        ),
    ),
    "L20": (
        "all HCAs gone is a warning",
        (
            "integration/container/test_container.py::test_a_promised_hca_that_the_container_lacks_fails",
            "checks/test_checks.py::test_fixture[rdma.device-count/none-but-expected]",
            "checks/test_checks.py::test_fixture[rdma.device-count/directory-empty-no-expectation]",
            "checks/test_checks.py::test_fixture[rdma.device-count/never-looked]",
            "integration/container/test_container_views.py::test_a_hidden_sys_makes_the_node_unknown",
        ),
    ),
    "L21": (
        "nodes left out in silence",
        (
            "unit/judge/test_honesty.py::test_coverage_adds_up",
            "unit/judge/test_honesty.py::test_a_node_without_an_answer_is_unknown",
        ),
    ),
    "L22": (
        "a typo drains the node",
        (
            "unit/expectations/test_cluster.py::test_error_names_file_line_key_and_fix",
            "unit/expectations/test_cluster.py::test_errors_in_declarations",
            "unit/cli/test_cli.py::test_a_wrong_cluster_file_is_reported_before_anything_is_touched",
            "integration/local/test_gate.py::test_a_misspelt_check_drains_no_node",
            "integration/local/test_gate.py::test_a_usage_error_in_a_script_drains_no_node",
        ),
    ),
    "L23": (
        "a missing tool is unhealthy",
        (
            "scenarios/test_false_alarms.py::test_tools_that_are_missing_are_no_fault",
            "unit/facts/test_gpu.py::test_what_a_container_cannot_see_is_no_fault",
        ),
    ),
    "L24": (
        "a flap of yesterday, or of the node's start, drains it",
        (
            "scenarios/test_nodes_counters.py::test_one_reading_is_history",
            "checks/test_checks.py::test_fixture[counters.flaps/link-flaps]",
            "scenarios/test_lessons.py::test_a_flap_before_the_window_is_no_fault",
        ),
    ),
    "L25": (
        "ports of others judged as fabric",
        (
            "scenarios/test_false_alarms.py::test_what_is_not_a_compute_port_is_not_judged",
            f"{_SILENT}[ports of storage are down]",
            "scenarios/test_nodes_b200.py::test_bridges_are_not_compute_ports_without_a_cluster_file",
        ),
    ),
    "L26": (
        "a rule for other hardware condemns this one",
        (
            "unit/facts/test_gpu.py::test_healthy_parts_are_silent",
            f"{_SILENT}[no NVLink fabric on a PCIe card]",
            "scenarios/test_nodes_b200.py::test_healthy_node_raises_nothing",
        ),
    ),
    "L27": (
        "absolute limits instead of the device's own",
        (
            "scenarios/test_false_alarms.py::test_a_link_is_compared_with_its_own_maximum",
            f"{_SILENT}[93 degrees on a GPU that may have more]",
            "unit/facts/test_gpu.py::test_healthy_parts_are_silent",
        ),
    ),
    "L29": (
        "measured on a GPU that still cools down from a burn",
        ("scenarios/test_lessons.py::test_nothing_of_ours_burns_or_times_a_gpu",),
    ),
    "L31": (
        "lifetime totals fail today",
        (
            f"{_SILENT}[errors of the GPU's whole life]",
            f"{_SILENT}[counters that are no errors, or whose life-long total says nothing]",
            "checks/test_checks.py::test_fixture[gpu.ecc-uncorrected/aggregate-alone-is-history]",
        ),
    ),
    "L32": (
        "an application's errors fail the node",
        (
            f"{_SILENT}[errors of applications]",
            "unit/facts/test_gpu.py::test_policy_of_each_code",
        ),
    ),
    "L33": (
        "a container's view judged as the host",
        (
            "scenarios/test_false_alarms.py::test_limits_of_a_container_are_not_faults_of_the_host",
            "integration/container/test_container.py::test_a_hidden_rdma_class_is_not_a_node_without_rdma",
            "integration/container/test_container_views.py::test_what_is_not_shown_is_unknown_never_absent",
            "unit/facts/test_gpu.py::test_what_a_container_cannot_see_is_no_fault",
        ),
    ),
    "L34": (
        "no time limit on a tool",
        (
            "scenarios/test_lessons.py::test_every_tool_hangs_and_the_run_ends_and_names_them",
            "integration/local/test_collector.py::test_the_deadline_holds_for_those_who_ignore_it",
        ),
    ),
    "L35": (
        "a wait for what cannot be killed",
        (
            "integration/local/test_collector.py::test_what_the_kernel_holds_is_abandoned_with_its_stack",
            "integration/local/test_collector.py::test_what_this_user_may_not_kill_is_abandoned",
        ),
    ),
    "L36": (
        "children left behind",
        (
            "integration/local/test_collector.py::test_descendants_do_not_hold_up_or_survive_a_command",
            "integration/local/test_collector.py::test_probes_die_with_the_caller_or_the_collector",
        ),
    ),
    "L37": (
        '"timed out" without a name',
        (
            "scenarios/test_lessons.py::test_every_tool_hangs_and_the_run_ends_and_names_them",
            "integration/local/test_collector.py::test_a_command_that_hangs_is_named_by_how_it_hung",
        ),
    ),
    "L38": (
        "one time-out slanders all",
        (
            "integration/local/test_fleet.py::test_a_transport_that_does_not_come_back_costs_one_node_and_no_worker",
            "integration/ssh/test_faults.py::test_no_fault_touches_another_node",
        ),
    ),
    "L39": (
        "no total budget",
        (
            "integration/local/test_fleet.py::test_the_process_ends_at_the_deadline_even_if_a_node_hangs",
            "integration/local/test_collector.py::test_the_deadline_ends_what_runs_and_names_what_never_began",
        ),
    ),
    "L40": (
        "checks inside the scheduler's periodic health program",
        (
            "integration/local/test_gate.py::test_the_health_check_reads_and_has_it_judged_in_the_background",
            "integration/local/test_gate.py::test_a_prolog_after_a_good_verdict_collects_and_imports_nothing",
        ),
    ),
    "L41": (
        "the monitor dies with the driver",
        (
            "unit/facts/test_gpu.py::test_gpus_read_before_nvml_hung_are_reported",
            "unit/facts/test_gpu.py::test_a_lost_gpu_does_not_hide_the_others",
        ),
    ),
    "L42": ("a check that writes", ("unit/judge/test_honesty.py::test_probe_table_is_read_only",)),
    "L43": (
        "a reset that kills a neighbour's job",
        ("unit/facts/test_gpu.py::test_fixes_name_the_jobs_they_interrupt",),
    ),
    "L44": (
        "a name that reaches a shell",
        (
            "integration/local/test_collector.py::test_arguments_reach_no_shell",
            "unit/reports/test_html.py::test_hostile_text_shows_as_text",
            "unit/expectations/test_cluster.py::test_the_checkpoints_probe_is_one_argument_vector",
            "unit/cli/test_cli.py::test_a_hostile_node_name_stays_in_its_directory_and_is_shown_as_text",
            "robustness/test_hostile.py::test_every_output",
            "robustness/test_hostile.py::test_no_name_is_run",
        ),
    ),
    "L28": (
        "a floor that no machine reaches",
        (
            "unit/expectations/test_cluster_roofline.py::test_a_floor_above_the_roofline_ends_the_run",
            "checks/test_checks.py::test_fixture[nccl-tests.busbw/floor-above-the-roofline-of-a-recognised-part]",
        ),
    ),
    "L30": (
        "a slow transport is taken for a slow GPU",
        (
            "checks/test_checks.py::test_fixture[nccl-tests.busbw/tcp-in-the-log]",
            "unit/parsers/test_nccl.py::test_report_with_socket_lines_between",
        ),
    ),
    "L45": ("configuration that is code", ("scenarios/test_lessons.py::test_no_text_is_ever_run_as_code",)),
    "L46": (
        "the kernel's words in HTML as they are",
        (
            "unit/reports/test_html.py::test_hostile_text_shows_as_text",
            "robustness/test_hostile.py::test_a_browser_runs_none_of_it",
        ),
    ),
    "L47": (
        "the reason is cut before the fact",
        (
            "unit/facts/test_gpu.py::test_reasons_begin_with_the_fault",
            "unit/gate/test_gate.py::test_the_reason_names_check_subject_and_fault_first",
        ),
    ),
    "L48": ("a finding that nobody can act on", ("checks/test_checks.py::test_fixture",)),
    "L49": (
        "a format mark printed as it is",
        (
            "checks/test_checks.py::test_fixture",
            "checks/test_checks.py::test_fixture",
        ),
    ),
    "L50": (
        "words of the output parsed by the next tool",
        ("integration/local/test_commands.py::test_check_on_this_machine",),
    ),
    "L51": (
        "a drain of somebody else's is lifted",
        (
            "integration/slurm/test_drain.py::test_the_drain_of_another_survives_both_verdicts",
            "integration/slurm/test_drain.py::test_who_edits_our_reason_takes_the_drain_over",
            "integration/slurm/test_hooks.py::test_a_drain_by_hand_survives",
        ),
    ),
    "L52": (
        "the breaker counts nodes that are not meant",
        (
            "unit/gate/test_slurm.py::test_cpu_nodes_do_not_count",
            "unit/gate/test_slurm.py::test_of_other_partitions_or_out_of_service_does_not_count",
            "integration/slurm/test_hooks.py::test_six_failing_at_once_leave_five_in_service",
        ),
    ),
    "L53": (
        "acts on what was seen days ago, before a reset",
        (
            "unit/gate/test_verdict_cache.py::test_age_boot_and_node",
            "unit/gate/test_verdict_cache.py::test_what_it_was_judged_by_must_not_have_changed",
        ),
    ),
    "L54": (
        "a check that cannot be switched off",
        (
            "unit/cli/test_cli.py::test_switched_off_checks_are_named",
            "unit/gate/test_gate.py::test_switched_off_and_shadow_checks_are_off_by_choice",
        ),
    ),
    "L55": (
        "a node is taken away from the job that runs on it",
        (
            "integration/slurm/test_health_check.py::"
            "test_a_sick_node_is_drained_and_lifted_while_its_job_goes_on_and_a_drain_by_hand_stays",
        ),
    ),
    "L56": ("unknown ranks below ok", ("unit/judge/test_honesty.py::test_overall_is_never_better_than_any_finding",)),
    "L57": (
        "a value is cut at the second equals sign",
        (
            f"{_SILENT}[NCCL_IB_HCA with two equals signs]",
            "unit/parsers/test_nccl.py::test_hca_list_worked_examples",
        ),
    ),
    "L58": (
        "columns and lines counted",
        (
            "unit/facts/test_gpu.py::test_noise_round_the_document_does_no_harm",
            "unit/parsers/test_nccl.py::test_columns",
            "unit/parsers/test_host.py::test_lspci_with_names_and_without_domains",
        ),
    ),
    "L59": ("the wrong letter case", ("unit/facts/test_gpu.py::test_inactive_in_any_letter_case",)),
    "L60": ("redirections misspelt", ("unit/judge/test_honesty.py::test_probe_table_is_read_only",)),
    "L61": (
        "only the first device is looked at",
        ("scenarios/test_false_alarms.py::test_every_device_is_looked_at_not_the_first",),
    ),
    "L62": ("a full name against a short one", ("unit/expectations/test_cluster.py::test_classes_by_node_set",)),
    "L63": (
        "mixed nodes crash the comparison",
        (
            "checks/test_checks.py::test_fixture[gpu.same-model/two-models]",
            "unit/expectations/test_cluster.py::test_mixed_and_empty_machines_are_no_part",
        ),
    ),
    "L64": (
        "a bandwidth from one iteration",
        ("scenarios/test_lessons.py::test_what_we_measure_ourselves_is_long_enough",),
    ),
}

#: Requirements of the survey's XID policy, each with its kernel log.
XID: dict[str, tuple[str, ...]] = {
    "one kernel log for each row": (
        "unit/facts/test_gpu.py::test_policy_of_each_code",
        "unit/facts/test_gpu.py::test_every_code_of_the_policy_has_a_meaning_and_those_that_act_a_fix",
    ),
    "two GPUs": ("checks/test_checks.py::test_fixture[xid.gpu/two-gpus]",),
    "the previous boot": ("checks/test_checks.py::test_fixture[xid.gpu/previous-boot]",),
    "rate-limited": ("checks/test_checks.py::test_fixture[xid.gpu/rate-limited]",),
    "a PCI domain other than 0": ("checks/test_checks.py::test_fixture[xid.gpu/domain-that-is-not-zero]",),
    "154 in each wording": tuple(
        f"checks/test_checks.py::test_fixture[xid.gpu/recovery-{wording}]"
        for wording in (
            "cleared",
            "gpu-reset",
            "reboot",
            "drain-p2p",
            "drain-and-reset",
            "imex",
            "in-words-of-the-future",
        )
    ),
    "13 on one GPU again and again": (
        "checks/test_checks.py::test_fixture[xid.gpu/thirteen-on-one-gpu-by-three-processes]",
    ),
    "74 repeated, or with an SXid": ("checks/test_checks.py::test_fixture[xid.gpu/nvlink-error-repeated]",),
    "fallen off the bus without a code": (
        "checks/test_checks.py::test_fixture[xid.gpu/fallen-off-the-bus-without-a-code]",
    ),
    "an unknown code": ("checks/test_checks.py::test_fixture[xid.gpu/code-of-the-future]",),
    "before the last reset": ("checks/test_checks.py::test_fixture[xid.gpu/before-the-driver-was-loaded-again]",),
    "the driver's own word": ("checks/test_checks.py::test_fixture[xid.gpu/driver-asks-for-nothing-now]",),
    "repetitions": ("unit/facts/test_gpu.py::test_repetitions_within_a_minute_count_once",),
}

#: Facts that look like faults on a complete node; the first seventeen are the experts' list.
FALSE_ALARMS: dict[str, tuple[str, ...]] = {
    "GB200: SYS between GPU and NIC": (
        "checks/test_checks.py::test_fixture[topology.nearest-nic/grace-nic-on-cpu]",
        "scenarios/test_lessons.py::test_grace_is_healthy_with_every_nic_behind_the_cpu",
    ),
    "PCIe generation 1 at idle": (f"{_SILENT}[PCIe rests while the GPU is idle]",),
    "ports down that no job uses: storage, second ports, NVSwitch bridges": (
        f"{_SILENT}[ports of storage are down]",
        "scenarios/test_nodes_b200.py::test_bridges_are_not_compute_ports_without_a_cluster_file",
    ),
    "IPoIB interface down": (f"{_SILENT}[an IPoIB interface is down]",),
    "RoCE: LID 0, SM LID 0": (f"{_SILENT}[RoCE ports have LID 0 and no subnet manager]",),
    # no check of this version reads counters: these are placeholders until one does
    "lifespan": (f"{_SILENT}[counters that are no errors, or whose life-long total says nothing]",),
    "port_xmit_wait, absolute": (f"{_SILENT}[counters that are no errors, or whose life-long total says nothing]",),
    "flush completions in error": (f"{_SILENT}[counters that are no errors, or whose life-long total says nothing]",),
    "ACS: SrcValid alone": ("scenarios/test_false_alarms.py::test_source_validation_alone_does_not_fail",),
    "no NIC rows in a container, or where the cloud has no verbs device": (
        f"{_SILENT}[no NIC rows in a container]",
        f"{_SILENT}[no RDMA device where the cloud has none]",
    ),
    "no peer-memory module where DMA-BUF works": (f"{_SILENT}[no peer-memory module where DMA-BUF works]",),
    "fabric N/A on PCIe cards": (f"{_SILENT}[no NVLink fabric on a PCIe card]",),
    "XID 13, 31, 43, 45 of users' jobs": (f"{_SILENT}[errors of applications]",),
    "2X NDR at 200 Gb/s, 1X on Ethernet": (
        f"{_SILENT}[200 Gb/s in two lanes]",
        f"{_SILENT}[25 Gb/s Ethernet in one lane]",
        f"{_SILENT}[50 Gb/s Ethernet in one lane]",
        f"{_SILENT}[100 Gb/s Ethernet in one lane]",
    ),
    "4X SDR or 4X QDR on an active port": (
        f"{_SILENT}[an active port whose speed the kernel does not know]",
        f"{_SILENT}[an active RoCE port whose speed the kernel does not know]",
    ),
    "a traffic class without ECN bits on mlx5": (f"{_SILENT}[a traffic class without ECN bits on mlx5]",),
    "a GID index other than 3 in pods": (f"{_SILENT}[a GID index of its own in a pod]",),
    # more, from the notes on formats and thresholds
    "the placeholder rate of a port that is down": (f"{_SILENT}[ports of storage are down]",),
    "ACS in a virtual machine": (f"{_SILENT}[ACS on in a virtual machine]",),
    "a bus that a hypervisor flattened": (f"{_SILENT}[a bus that the hypervisor flattened]",),
    "no IOMMU": (f"{_SILENT}[no IOMMU at all]",),
    "two GPUs share a NIC": ("checks/test_checks.py::test_fixture[topology.nearest-nic/two-gpus-share-a-nic]",),
    "InfiniBand MTU 2048 by the partition": ("checks/test_checks.py::test_fixture[rdma.active-mtu/2048-by-design]",),
    "lossy RoCE": (f"{_SILENT}[lossy RoCE by design]",),
    "strict rp_filter with a subnet for each rail": (f"{_SILENT}[strict rp_filter, each rail in its own subnet]",),
    "NUMA balancing for memory tiers": (f"{_SILENT}[NUMA balancing as memory tiering]",),
    "no frequency scaling": (f"{_SILENT}[a kernel without frequency scaling]",),
    "aggregate ECC errors": (f"{_SILENT}[errors of the GPU's whole life]",),
    "eight remapped rows": (f"{_SILENT}[eight rows remapped]",),
    "the software power cap and idle clocks": (f"{_SILENT}[the power cap under load, and idle clocks]",),
    "a high absolute temperature": (f"{_SILENT}[93 degrees on a GPU that may have more]",),
    "a power limit above the default": (f"{_SILENT}[a power limit above the default]",),
    "ACCESS_REG failed, cable unplugged elsewhere, XID 63": (
        f"{_SILENT}[words of the kernel that are no fault of a GPU or of a compute port]",
    ),
    "SXid noise after an application crashed": (
        "checks/test_checks.py::test_fixture[xid.nvswitch/noise-after-a-crash]",
    ),
    "an ordinary user sees no ACS": (f"{_SILENT}[an ordinary user sees no ACS]",),
    "memory of nobody in a container": (
        "checks/test_checks.py::test_fixture[gpu.memory-headroom/held-by-nobody-in-a-container]",
    ),
}
