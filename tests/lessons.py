"""What other tools got wrong, and the false alarms that everybody knows: each row with the tests that keep it so.

The rows are those of a survey of public health-check tools (NHC, azurehpc-health-checks, gpud, DCGM, NVSentinel and
others), each with the behaviour that was found there. A test is named ``file::test``, with the fixture or case in
brackets where one stands for the row.
"""

from __future__ import annotations

_SILENT = "test_false_alarms.py::test_false_alarm_stays_silent"

#: Row -> what went wrong elsewhere, and our tests.
NODE: dict[str, tuple[str, tuple[str, ...]]] = {
    "L01": ("a lost configuration means healthy", (
        "test_lessons.py::test_a_cluster_file_that_says_nothing_ends_the_run", "test_cluster.py::test_missing_file",
        "test_cluster.py::test_unreadable_file",
    )),
    "L02": ("an unknown hardware type passes", (
        "test_lessons.py::test_a_machine_from_nowhere_passes_nothing_that_needs_its_numbers",
        "test_facts_gpu.py::test_a_part_from_nowhere_is_unknown_not_well",
    )),
    "L03": ("a proxy's answer taken for a machine type", ("test_lessons.py::test_no_metadata_service_is_asked",)),
    "L04": ("a missing tool finds nothing wrong", (
        "test_lessons.py::test_no_pass_rests_on_a_probe_that_failed", "test_honesty.py::test_garbage_in_every_record",
        "test_honesty.py::test_no_evidence_at_all",
    )),
    "L05": ("a dead driver means a node without GPUs", (
        "test_false_alarms.py::test_a_dead_driver_is_no_node_without_gpus",
        "test_facts_gpu.py::test_dead_driver_with_gpus_on_the_bus_is_never_no_gpus",
        "test_nodes.py::test_planted_fault[driver not loaded]",
    )),
    "L06": ("a crash is a pass", (
        "test_honesty.py::test_a_crash_is_unknown_logged_and_keeps_what_was_said",
        "test_honesty.py::test_mutated_records_never_crash",
    )),
    "L07": ("an empty answer is a pass", (
        "test_cli.py::test_damaged_evidence_is_a_node_without_an_answer", "test_local_transport.py::"
        "test_an_answer_that_is_cut_or_damaged", "test_openssh.py::test_cut_in_mid_answer",
        "test_gate_cached.py::test_nothing_but_a_whole_verdict_is_one",
        "test_gate.py::test_a_node_without_an_answer_is_not_judged",
    )),
    "L08": ("a second look heals", (
        "test_honesty.py::test_judging_twice_gives_the_same_bytes",
        "test_facts_gpu.py::test_judging_the_log_twice_gives_the_same",
    )),
    "L09": ("a status lost in the background", ("test_lessons.py::test_one_failure_among_many_is_the_exit_status",)),
    "L10": ("success over a failed part", (
        "test_honesty.py::test_overall_is_never_better_than_any_finding",
        "test_gate.py::test_a_verdict_is_never_better_than_any_gating_finding",
    )),
    "L12": ("an interrupted scan is a success", (
        "test_cli.py::test_an_interrupt_gives_a_report_and_could_not_tell",
        "test_gate_runs.py::test_whoever_is_ended_says_what_is_missing",
        "test_gate_runs.py::test_a_deadline_ends_what_no_signal_can",
        "test_fleet.py::test_the_process_ends_at_a_signal_whatever_hangs",
        "test_fleet.py::test_the_runs_deadline_names_those_whose_turn_did_not_come",
    )),
    "L11": ("a later pass overwrites an earlier failure", (
        "test_history.py::test_what_is_gone", "test_history.py::test_what_came_back",
        "test_history.py::test_a_node_that_was_silent_is_neither_new_nor_gone",
    )),
    "L13": ("256 failures are status 0", ("test_honesty.py::test_exit_status",)),
    "L14": ("an action without a finding", (
        "test_facts_gpu.py::test_a_failed_remapping_is_one_finding_with_its_cure",
    )),
    "L15": ("a rule that never fires: wrong field index", (
        "test_checks.py::test_every_check_can_pass_fail_and_be_unsure", "test_facts_gpu.py::"
        "test_nvml_and_nvidia_smi_tell_the_same",
    )),
    "L16": ("a rule that never fires: nothing prints the word", (
        "test_checks.py::test_every_check_can_pass_fail_and_be_unsure",
    )),
    "L17": ("anything but one bad word is healthy", (
        "test_facts_gpu.py::test_words_that_are_not_data",
        "test_checks.py::test_fixture[gpu.fabric-state/insufficient-resources-told-by-nvidia-smi]",
    )),
    "L18": ("nothing configured is passed", (
        "test_nodes.py::test_healthy_node_without_a_cluster_file_has_no_fail_and_no_warn",
    )),
    "L19": ("a rehearsal prints passes", (
        "test_lessons.py::test_a_rehearsal_says_so_in_every_format",
        "test_nodes.py::test_node_documents_say_that_they_are_made_by_hand",
        "test_gate_runs.py::test_a_dry_run_holds_nobody_back_and_says_that_it_is_one",
    )),
    "L20": ("all HCAs gone is a warning", (
        "test_container.py::test_a_promised_hca_that_the_container_lacks_fails",
        "test_checks.py::test_fixture[rdma.device-count/none-but-expected]",
        "test_checks.py::test_fixture[rdma.device-count/directory-empty-no-expectation]",
        "test_checks.py::test_fixture[rdma.device-count/never-looked]",
        "test_container_views.py::test_a_hidden_sys_tells_nothing_of_the_node",
    )),
    "L21": ("nodes left out in silence", (
        "test_honesty.py::test_coverage_adds_up", "test_honesty.py::test_a_node_without_an_answer_is_could_not_tell",
    )),
    "L22": ("a typo drains the node", (
        "test_cluster.py::test_mistake_names_file_line_key_and_cure", "test_cluster.py::test_mistakes_in_declarations",
        "test_cli.py::test_a_wrong_cluster_file_is_told_before_anything_is_touched",
        "test_gate_runs.py::test_a_check_that_is_misspelt_drains_nobody",
        "test_gate_runs.py::test_a_mistake_in_a_script_drains_nobody",
    )),
    "L23": ("a missing tool is unhealthy", (
        "test_false_alarms.py::test_tools_that_are_missing_are_no_fault", "test_facts_gpu.py::"
        "test_what_a_container_cannot_see_is_no_fault",
    )),
    "L24": ("a flap of yesterday, or of the node's start, drains it", (
        "test_nodes_counters.py::test_one_reading_is_history",
        "test_checks.py::test_fixture[counters.flaps/link-flaps]",
        "test_lessons.py::test_a_flap_before_the_window_is_no_fault",
    )),
    "L25": ("ports of others judged as fabric", (
        "test_false_alarms.py::test_what_is_not_a_compute_port_is_not_judged", f"{_SILENT}[ports of storage are down]",
        "test_nodes_b200.py::test_bridges_are_not_compute_ports_where_nobody_says_so",
    )),
    "L26": ("a rule for other hardware condemns this one", (
        "test_facts_gpu.py::test_healthy_parts_are_silent", f"{_SILENT}[no NVLink fabric on a PCIe card]",
        "test_nodes_b200.py::test_healthy_node_raises_nothing",
    )),
    "L27": ("absolute limits instead of the device's own", (
        "test_false_alarms.py::test_a_link_is_compared_with_its_own_maximum",
        f"{_SILENT}[93 degrees on a GPU that may have more]", "test_facts_gpu.py::test_healthy_parts_are_silent",
    )),
    "L29": ("measured on a GPU that still cools down from a burn", (
        "test_lessons.py::test_nothing_of_ours_burns_or_times_a_gpu",
    )),
    "L31": ("lifetime totals fail today", (
        f"{_SILENT}[errors of the GPU's whole life]", f"{_SILENT}[counters that are no errors, or whose life-long "
        "total says nothing]", "test_checks.py::test_fixture[gpu.ecc-uncorrected/aggregate-alone-is-history]",
    )),
    "L32": ("an application's errors fail the node", (
        f"{_SILENT}[errors of applications]", "test_facts_gpu.py::test_policy_of_each_code",
    )),
    "L33": ("a container's view judged as the host", (
        "test_false_alarms.py::test_limits_of_a_container_are_not_faults_of_the_host",
        "test_container.py::test_a_hidden_rdma_class_is_not_a_node_without_rdma",
        "test_container_views.py::test_what_is_not_shown_is_unknown_never_absent",
        "test_facts_gpu.py::test_what_a_container_cannot_see_is_no_fault",
    )),
    "L34": ("no time limit on a tool", (
        "test_lessons.py::test_every_tool_hangs_and_the_run_ends_and_names_them",
        "test_collector.py::test_the_deadline_holds_for_those_who_ignore_it",
    )),
    "L35": ("a wait for what cannot be killed", (
        "test_collector.py::test_what_the_kernel_holds_is_abandoned_with_its_stack",
        "test_collector.py::test_what_this_user_may_not_kill_is_abandoned",
    )),
    "L36": ("children left behind", (
        "test_collector.py::test_descendants_do_not_hold_up_or_survive_a_command",
        "test_collector.py::test_whoever_dies_the_probes_die_too",
    )),
    "L37": ("\"timed out\" without a name", (
        "test_lessons.py::test_every_tool_hangs_and_the_run_ends_and_names_them",
        "test_collector.py::test_a_command_that_hangs_is_named_by_how_it_hung",
    )),
    "L38": ("one time-out slanders all", (
        "test_fleet.py::test_a_transport_that_does_not_come_back_costs_one_node_and_no_worker",
        "test_ssh_faults.py::test_no_fault_touches_another_node",
    )),
    "L39": ("no total budget", (
        "test_fleet.py::test_the_process_ends_at_the_deadline_whatever_hangs",
        "test_collector.py::test_the_deadline_ends_what_runs_and_names_what_never_began",
    )),
    "L40": ("checks inside the scheduler's periodic health program", (
        "test_gate_runs.py::test_the_health_check_reads_and_has_it_judged_in_the_background",
        "test_gate_runs.py::test_a_prolog_after_a_good_verdict_asks_nobody_and_imports_nothing",
    )),
    "L41": ("the monitor dies with the driver", (
        "test_facts_gpu.py::test_nvml_that_hung_keeps_what_it_said",
        "test_facts_gpu.py::test_a_lost_gpu_does_not_hide_the_others",
    )),
    "L42": ("a check that writes", ("test_honesty.py::test_probe_table_is_read_only",)),
    "L43": ("a reset that kills a neighbour's job", ("test_facts_gpu.py::test_cures_say_whom_they_interrupt",)),
    "L44": ("a name that reaches a shell", (
        "test_collector.py::test_arguments_reach_no_shell", "test_report_html.py::test_hostile_text_shows_as_text",
        "test_cluster.py::test_the_checkpoints_probe_is_one_argument_vector",
        "test_cli.py::test_a_hostile_node_name_stays_in_its_directory_and_is_shown_as_text",
        "test_hostile.py::test_every_output", "test_hostile.py::test_no_name_is_run",
    )),
    "L28": ("a floor that no machine reaches", (
        "test_cluster_roofline.py::test_a_floor_above_the_roofline_ends_the_run",
        "test_checks.py::test_fixture[nccl-tests.busbw/floor-above-the-roofline-of-a-recognised-part]",
    )),
    "L30": ("a slow transport is taken for a slow GPU", (
        "test_checks.py::test_fixture[nccl-tests.busbw/tcp-in-the-log]", "test_facts_nccl.py::"
        "test_report_with_socket_lines_between",
    )),
    "L45": ("configuration that is code", ("test_lessons.py::test_no_text_is_ever_run_as_code",)),
    "L46": ("the kernel's words in HTML as they are", (
        "test_report_html.py::test_hostile_text_shows_as_text", "test_hostile.py::test_a_browser_runs_none_of_it",
    )),
    "L47": ("the reason is cut before the fact", (
        "test_facts_gpu.py::test_reasons_begin_with_the_fault",
        "test_gate.py::test_the_reason_names_check_subject_and_fault_first",
    )),
    "L48": ("a finding that nobody can act on", ("test_lessons.py::test_every_complaint_can_be_acted_on",)),
    "L49": ("a format mark printed as it is", (
        "test_lessons.py::test_every_complaint_can_be_acted_on", "test_checks.py::test_fixture",
    )),
    "L50": ("words of the output parsed by the next tool", ("test_cli.py::test_check_on_this_machine",)),
    "L51": ("a drain of somebody else's is lifted", (
        "test_gate_slurm_manners.py::test_the_drain_of_another_survives_both_verdicts",
        "test_gate_slurm_manners.py::test_who_edits_our_reason_takes_the_drain_over",
        "test_gate_slurm_seats.py::test_a_drain_by_hand_survives",
    )),
    "L52": ("the breaker counts nodes that are not meant", (
        "test_gate_slurm_parts.py::test_cpu_nodes_do_not_count",
        "test_gate_slurm_parts.py::test_of_other_partitions_or_out_of_service_does_not_count",
        "test_gate_slurm_seats.py::test_six_failing_at_once_leave_five_in_service",
    )),
    "L53": ("acts on what was seen days ago, before a reset", (
        "test_gate_cached.py::test_age_boot_and_node",
        "test_gate_cached.py::test_what_it_was_judged_by_must_not_have_changed",
    )),
    "L54": ("a check that cannot be switched off", (
        "test_cli.py::test_switched_off_checks_are_named",
        "test_gate.py::test_switched_off_and_shadow_checks_are_off_by_choice",
    )),
    "L55": ("a node is taken away from the job that runs on it", (
        "test_gate_slurm_health.py::"
        "test_a_sick_node_is_drained_and_lifted_while_its_job_goes_on_and_a_drain_by_hand_stays",
    )),
    "L56": ("unknown ranks below ok", ("test_honesty.py::test_overall_is_never_better_than_any_finding",)),
    "L57": ("a value is cut at the second equals sign", (
        f"{_SILENT}[NCCL_IB_HCA with two equals signs]", "test_facts_nccl.py::test_hca_list_worked_examples",
    )),
    "L58": ("columns and lines counted", (
        "test_facts_gpu.py::test_noise_round_the_document_does_no_harm", "test_facts_nccl.py::test_columns",
        "test_facts_host.py::test_lspci_with_names_and_without_domains",
    )),
    "L59": ("the wrong letter case", ("test_facts_gpu.py::test_inactive_in_any_letter_case",)),
    "L60": ("redirections misspelt", ("test_honesty.py::test_probe_table_is_read_only",)),
    "L61": ("only the first device is looked at", (
        "test_false_alarms.py::test_every_device_is_looked_at_not_the_first",
    )),
    "L62": ("a full name against a short one", ("test_cluster.py::test_classes_by_node_set",)),
    "L63": ("mixed nodes crash the comparison", (
        "test_checks.py::test_fixture[gpu.same-model/two-models]",
        "test_cluster.py::test_mixed_and_empty_machines_are_no_part",
    )),
    "L64": ("a bandwidth from one iteration", (
        "test_lessons.py::test_what_we_measure_ourselves_is_long_enough",
    )),
}  # fmt: skip

#: What the survey's policy for XIDs asks for, each with its kernel log.
XID: dict[str, tuple[str, ...]] = {
    "one kernel log for each row": (
        "test_facts_gpu.py::test_policy_of_each_code",
        "test_facts_gpu.py::test_every_code_of_the_policy_has_a_meaning_and_those_that_act_a_cure",
    ),
    "two GPUs": ("test_checks.py::test_fixture[xid.gpu/two-gpus]",),
    "the previous boot": ("test_checks.py::test_fixture[xid.gpu/previous-boot]",),
    "rate-limited": ("test_checks.py::test_fixture[xid.gpu/rate-limited]",),
    "a PCI domain other than 0": ("test_checks.py::test_fixture[xid.gpu/domain-that-is-not-zero]",),
    "154 in each wording": tuple(
        f"test_checks.py::test_fixture[xid.gpu/recovery-{wording}]"
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
    "13 on one GPU again and again": ("test_checks.py::test_fixture[xid.gpu/thirteen-on-one-gpu-by-three-processes]",),
    "74 repeated, or with an SXid": ("test_checks.py::test_fixture[xid.gpu/nvlink-error-repeated]",),
    "fallen off the bus without a code": ("test_checks.py::test_fixture[xid.gpu/fallen-off-the-bus-without-a-code]",),
    "an unknown code": ("test_checks.py::test_fixture[xid.gpu/code-of-the-future]",),
    "before the last reset": ("test_checks.py::test_fixture[xid.gpu/before-the-driver-was-loaded-again]",),
    "the driver's own word": ("test_checks.py::test_fixture[xid.gpu/driver-asks-for-nothing-now]",),
    "repetitions": ("test_facts_gpu.py::test_repetitions_within_a_minute_count_once",),
}

#: What looks like a fault and is none, on a whole node; the first seventeen are the experts' list.
FALSE_ALARMS: dict[str, tuple[str, ...]] = {
    "GB200: SYS between GPU and NIC": (
        "test_checks.py::test_fixture[topology.nearest-nic/grace-nic-on-cpu]",
        "test_lessons.py::test_grace_is_healthy_with_every_nic_behind_the_cpu",
    ),
    "PCIe generation 1 at idle": (f"{_SILENT}[PCIe rests while the GPU is idle]",),
    "ports down that no job uses: storage, second ports, NVSwitch bridges": (
        f"{_SILENT}[ports of storage are down]",
        "test_nodes_b200.py::test_bridges_are_not_compute_ports_where_nobody_says_so",
    ),
    "IPoIB interface down": (f"{_SILENT}[an IPoIB interface is down]",),
    "RoCE: LID 0, SM LID 0": (f"{_SILENT}[RoCE ports have LID 0 and no subnet manager]",),
    # no check of this version reads counters: these hold the place until one does
    "lifespan": (f"{_SILENT}[counters that are no errors, or whose life-long total says nothing]",),
    "port_xmit_wait, absolute": (f"{_SILENT}[counters that are no errors, or whose life-long total says nothing]",),
    "flush completions in error": (f"{_SILENT}[counters that are no errors, or whose life-long total says nothing]",),
    "ACS: SrcValid alone": ("test_false_alarms.py::test_source_validation_alone_does_not_fail",),
    "no NIC rows in a container, or where the cloud has no verbs device": (
        f"{_SILENT}[no NIC rows in a container]", f"{_SILENT}[no RDMA device where the cloud has none]",
    ),
    "no peer-memory module where DMA-BUF works": (f"{_SILENT}[no peer-memory module where DMA-BUF works]",),
    "fabric N/A on PCIe cards": (f"{_SILENT}[no NVLink fabric on a PCIe card]",),
    "XID 13, 31, 43, 45 of users' jobs": (f"{_SILENT}[errors of applications]",),
    "2X NDR at 200 Gb/s, 1X on Ethernet": (
        f"{_SILENT}[200 Gb/s in two lanes]", f"{_SILENT}[25 Gb/s Ethernet in one lane]",
        f"{_SILENT}[50 Gb/s Ethernet in one lane]", f"{_SILENT}[100 Gb/s Ethernet in one lane]",
    ),
    "4X SDR or 4X QDR on an active port": (
        f"{_SILENT}[an active port whose speed the kernel does not know]",
        f"{_SILENT}[an active RoCE port whose speed the kernel does not know]",
    ),
    "a traffic class without ECN bits on mlx5": (f"{_SILENT}[a traffic class without ECN bits on mlx5]",),
    "a GID index other than 3 in pods": (f"{_SILENT}[a GID index of its own in a pod]",),
    # further ones, from the notes on formats and thresholds
    "the placeholder rate of a port that is down": (f"{_SILENT}[ports of storage are down]",),
    "ACS in a virtual machine": (f"{_SILENT}[ACS on in a virtual machine]",),
    "a bus that a hypervisor flattened": (f"{_SILENT}[a bus that the hypervisor flattened]",),
    "no IOMMU": (f"{_SILENT}[no IOMMU at all]",),
    "two GPUs share a NIC": ("test_checks.py::test_fixture[topology.nearest-nic/two-gpus-share-a-nic]",),
    "InfiniBand MTU 2048 by the partition": ("test_checks.py::test_fixture[rdma.active-mtu/2048-by-design]",),
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
    "SXid noise after an application crashed": ("test_checks.py::test_fixture[xid.nvswitch/noise-after-a-crash]",),
    "an ordinary user sees no ACS": (f"{_SILENT}[an ordinary user sees no ACS]",),
    "memory of nobody in a container": (
        "test_checks.py::test_fixture[gpu.memory-headroom/held-by-nobody-in-a-container]",
    ),
}  # fmt: skip
