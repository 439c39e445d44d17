"""Every configuration of the oracle corpus loads, or fails where ASTRA-sim fails and names the key."""

import json
import re
from pathlib import Path

import pytest

from chakra.errors import ConfigError
from chakra.replay.config import check_fit, load_groups, load_memory, load_network, load_system

#: cases of family j whose fault lies in a configuration file -> what the default mode's message must hold
WRONG = {
    "j022_direct0": "all-reduce-implementation.*window of 0",
    "j029_bandwidth_0": "network.yml:3: key 'bandwidth'",
    "j031_topology_unknown": "network.yml:1: key 'topology'.*Mesh",
    "j032_network_lengths_differ": "key 'npus_count' has 2 entries",
    "j035_network_bad_yaml": "network.yml:2:1: not valid YAML",
    "j039_splits_0": "'preferred-dataset-splits'",
    "j044_policy_unknown": "'scheduling-policy'.*SJF",
    "j045_optimization_unknown": "'collective-optimization'",
    "j046_impl_unknown": "'all-reduce-implementation' has \"tree\"",
    "j048_impl_empty": "'all-reduce-implementation' is an empty list",
    "j050_impl_two_for_1d": "names 2 algorithms, but the network .* has 1 dimension$",
    "j051_system_bad_json": "system.json:1:30: not valid JSON",
    "j053_comp_only_roofline_no_peak": "'peak-perf' is missing",
    "j100_mem_per_node_no_counts": "'num-nodes' is missing",
    "j101_mem_type_unknown": "'memory-type'.*CXL",
    "j105_group_id_0": "comm_groups.json: key '0'",
    "j140_custom_two_files": "'all-reduce-implementation-custom' must be a list with exactly one",
}
#: faults that only show in ASTRA-sim when something uses the value
LATE_AT_HEAD = {"j048_impl_empty", "j053_comp_only_roofline_no_peak"}


def load(case: Path, compat: str | None) -> int:
    network = load_network(case / "network.yml", compat=compat)
    system = load_system(case / "system.json", compat=compat)
    memory = load_memory(case / "memory.json", compat=compat)
    check_fit(network, system, memory)
    if (case / "comm_groups.json").exists():
        load_groups(case / "comm_groups.json", compat=compat, npus=network.npus)
    return network.npus


@pytest.mark.shared
@pytest.mark.parametrize("compat", [None, "astra-sim"])
def test_all_cases(shared: Path, compat: str | None) -> None:
    """Families a to i load in both modes; the wrong files of family j give a message that names the key."""
    seen = set()
    for case in sorted((shared / "oracle" / "corpus").iterdir()):
        seen.add(case.name)
        npus = json.loads((case / "case.json").read_text())["npus"]
        if case.name in WRONG and not (compat and case.name in LATE_AT_HEAD):
            with pytest.raises(ConfigError) as caught:
                load(case, compat)
            assert "\n" not in str(caught.value)
            if compat is None:
                assert re.search(WRONG[case.name], str(caught.value)), case.name
        elif case.name.startswith("j"):
            load(case, compat)
        else:
            assert load(case, compat) == npus, case.name
    assert set(WRONG) <= seen


@pytest.mark.shared
def test_both_modes_read_the_same(shared: Path) -> None:
    """Where ASTRA-sim and the files agree (families a to i), the two modes give equal values."""
    compared = 0
    for case in sorted((shared / "oracle" / "corpus").iterdir()):
        if not case.name.startswith("j"):
            for loader, name in ((load_network, "network.yml"), (load_system, "system.json")):
                assert loader(case / name) == loader(case / name, compat="astra-sim"), case.name
                compared += 1
    assert compared > 400
