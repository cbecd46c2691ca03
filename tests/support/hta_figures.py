"""Idle, overlapped and exposed time by HolisticTraceAnalysis, in percent, as JSON.

Run by a Python with HolisticTraceAnalysis: ``PYTHON hta_figures.py RANK0.json RANK1.json …``. Exposed time is HTA's
``non_compute_time``: communication and copies without a kernel that computes.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings


def main(files: list[str]) -> None:
    """Print the figures of each rank."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]

    analysis = TraceAnalysis(trace_files=dict(enumerate(files)), trace_dir="/")
    times = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    overlap = analysis.get_comm_comp_overlap(visualize=False).to_dict("records")
    figures: dict[int, dict[str, float]] = {
        int(row["rank"]): {"idle": row["idle_time_pctg"], "exposed": row["non_compute_time_pctg"]} for row in times
    }
    for row in overlap:
        figures[int(row["rank"])]["overlap"] = row["comp_comm_overlap_pctg"]
    print(json.dumps([figures[rank] for rank in sorted(figures)]))


if __name__ == "__main__":
    main(sys.argv[1:])
