"""Every report of what PyTorch recordings went wrong with has a test that gives the right value."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: report -> file of a test below `tests`, and its name
SHOWN = {
    "alltoall-empty-redop": ("calibrate/test_logs.py", "test_reported_logs_are_read_right"),
    "anonymize-kineto-date": ("pytorch/test_other_profilers.py", "test_no_date_is_left_in_an_anonymous_recording"),
    "ascend": ("pytorch/test_other_profilers.py", "test_ascends_tasks_are_device_operations"),
    "custom-allreduce": ("pytorch/test_kernel_names.py", "test_kernels_of_serving_libraries_move_bytes"),
    "kineto-inf": ("pytorch/test_other_profilers.py", "test_bare_infinities_are_read_by_all"),
    "lost-kernels": ("pytorch/test_kernel_names.py", "test_launches_without_kernels_are_counted"),
    "nccl-split": ("calibrate/test_logs.py", "test_reported_logs_are_read_right"),
    "pt-calibrate-rank-count": ("calibrate/test_logs.py", "test_reported_logs_are_read_right"),
    "pt-guide-roofline": ("pytorch/test_replayed_jobs.py", "test_the_first_commands_of_the_guide"),
    "pt-internal-wait-false-edge": ("pytorch/test_waits.py", "test_a_librarys_own_waits_are_not_the_callers"),
    "pt-rank-start-skew": ("pytorch/test_starts.py", "test_ranks_start_as_far_apart_as_recorded"),
    "pt-send-wait-lost": ("pytorch/test_waits.py", "test_a_blocking_send_is_waited_for"),
    "pt-streams-serialised": ("pytorch/test_replayed_jobs.py", "test_what_ran_side_by_side_does_so_in_every_mode"),
    "pt-sync-of-prelaunched": (
        "pytorch/test_waits.py", "test_kernels_launched_before_the_window_are_waited_for_in_order",
    ),
    "pt-what-if-flops-scales-host": (
        "pytorch/test_replayed_jobs.py", "test_twice_the_accelerator_leaves_a_step_that_the_host_limits",
    ),
    "uneven-alltoall": ("pytorch/test_uneven.py", "test_a_reported_job"),
}  # fmt: skip
#: reports of something else: numbers of collectives, builders, validation of many groups
OTHERS = ("num-", "builder-", "validate-")


@pytest.mark.parametrize("report", SHOWN)
def test_its_test_is_there(report: str) -> None:
    file, name = SHOWN[report]
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.shared
def test_every_report_is_listed(shared: Path) -> None:
    reports = {path.name for path in (shared / "reports").iterdir()}
    assert {name for name in reports if not name.startswith(OTHERS)} == set(SHOWN)
