"""Design sweeps: any parameters of generator, platform, network, system and replay; crossed, sampled or optimised."""

from typing import TYPE_CHECKING

from chakra.lazy import lazy_names
from chakra.sweep.executors import Runner, runner
from chakra.sweep.method import Method
from chakra.sweep.metrics import METRICS
from chakra.sweep.pareto import front, plot
from chakra.sweep.point import run_point
from chakra.sweep.run import Shard, ranked, run_study
from chakra.sweep.sensitivity import ValueCost, sensitivity
from chakra.sweep.space import Parameter
from chakra.sweep.store import Outcome, Store, write_table
from chakra.sweep.study import Study, load_study, study_from

if TYPE_CHECKING:
    from chakra.sweep.page import study_html

__all__ = [
    "METRICS",
    "Method",
    "Outcome",
    "Parameter",
    "Runner",
    "Shard",
    "Store",
    "Study",
    "ValueCost",
    "front",
    "load_study",
    "plot",
    "ranked",
    "run_point",
    "run_study",
    "runner",
    "sensitivity",
    "study_from",
    "study_html",
    "write_table",
]

lazy_names("chakra.sweep", {"study_html": "chakra.sweep.page"})
