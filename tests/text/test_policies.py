"""Golden dependency graphs, written down by hand from the rules of each policy (not from our output).

``F1 < F0``: the forward compute of layer 1 waits for that of layer 0; c: the collective after a compute; a
prime: the next pass.
"""

from collections.abc import Callable

import pytest

Golden = Callable[..., None]

ALL = "ALLREDUCE ALLREDUCE ALLREDUCE"
WEIGHTS = "NONE NONE ALLREDUCE"
NONE = "NONE NONE NONE"
RECOMPUTE = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2"


def test_data(golden: Golden) -> None:
    """Weight gradients are reduced beside the backward pass; the next pass waits for them layer by layer."""
    golden(
        """
        F0
        F1 < F0
        F2 < F1
        W2 < F2
        cW2 < W2
        I2 < W2
        W1 < I2
        cW1 < W1
        I1 < W1
        W0 < I1
        cW0 < W0
        F0' < cW0 W0
        F1' < F0' cW1
        F2' < F1' cW2
        W2' < F2'
        cW2' < W2'
        I2' < W2'
        W1' < I2'
        cW1' < W1'
        I1' < W1'
        W0' < I1'
        cW0' < W0'
        """,
        "DATA",
        WEIGHTS,
        WEIGHTS,
        WEIGHTS,
        passes=2,
    )


def test_data_without_collectives_waits_for_the_computes(golden: Golden) -> None:
    """NONE yields no node; who would wait for it waits for the compute that would have issued it."""
    golden(
        """
        F0
        F1 < F0
        W1 < F1
        I1 < W1
        W0 < I1
        F0' < W0
        F1' < F0' W1
        W1' < F1'
        I1' < W1'
        W0' < I1'
        """,
        "DATA",
        NONE,
        NONE,
        passes=2,
    )


def test_data_has_no_forward_and_input_collectives(golden: Golden) -> None:
    """Only the weight gradients are communicated, whatever the other columns say."""
    golden("F0\nW0 < F0\ncW0 < W0", "DATA", ALL)


def test_data_reorder(golden: Golden) -> None:
    """Input gradients first, down to layer 1; then the weight gradients of layers 1 and 0."""
    golden(
        """
        F0
        F1 < F0
        F2 < F1
        I2 < F2
        W2 < I2
        cW2 < W2
        I1 < W2
        W1 < I1
        cW1 < W1
        W0 < W1
        cW0 < W0
        F0' < cW0 W0
        F1' < F0' cW1
        F2' < F1' cW2
        I2' < F2'
        W2' < I2'
        cW2' < W2'
        I1' < W2'
        W1' < I1'
        cW1' < W1'
        W0' < W1'
        cW0' < W0'
        """,
        "DATA_REORDER",
        WEIGHTS,
        WEIGHTS,
        WEIGHTS,
        passes=2,
    )


def test_model(golden: Golden) -> None:
    """Forward and input-gradient collectives block; weight gradients are not communicated."""
    golden(
        """
        F0
        cF0 < F0
        F1 < cF0
        cF1 < F1
        I1 < cF1
        cI1 < I1
        W1 < I1
        I0 < W1 cI1
        W0 < I0
        F0' < W0
        cF0' < F0'
        F1' < cF0'
        cF1' < F1'
        I1' < cF1'
        cI1' < I1'
        W1' < I1'
        I0' < W1' cI1'
        W0' < I0'
        """,
        "MODEL",
        ALL,
        ALL,
        passes=2,
    )


def test_model_without_collectives(golden: Golden) -> None:
    """A missing cI is stood for by I: the chain of computes is kept."""
    golden("F0\nF1 < F0\nI1 < F1\nW1 < I1\nI0 < W1 I1\nW0 < I0", "MODEL", NONE, NONE)


@pytest.mark.parametrize("policy", ["HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA"])
def test_hybrids(golden: Golden, policy: str) -> None:
    """As MODEL, with weight gradients reduced beside; the next pass waits for them layer by layer."""
    golden(
        """
        F0
        cF0 < F0
        F1 < cF0
        cF1 < F1
        I1 < cF1
        cI1 < I1
        W1 < I1
        cW1 < W1
        I0 < W1 cI1
        W0 < I0
        cW0 < W0
        F0' < cW0
        cF0' < F0'
        F1' < cF0' cW1
        cF1' < F1'
        I1' < cF1'
        cI1' < I1'
        W1' < I1'
        cW1' < W1'
        I0' < W1' cI1'
        W0' < I0'
        cW0' < W0'
        """,
        policy,
        ALL,
        ALL,
        passes=2,
        model_parallel=2,
    )


def test_hybrid_customized_leaves_out_what_a_layers_policy_has_not(golden: Golden) -> None:
    """A DATA layer has no forward and input collectives, a MODEL layer none of weights; the graph is a
    hybrid's."""
    golden(
        """
        F0
        cF0 < F0
        F1 < cF0
        F2 < F1
        cF2 < F2
        I2 < cF2
        cI2 < I2
        W2 < I2
        I1 < W2 cI2
        W1 < I1
        cW1 < W1
        I0 < W1 I1
        W0 < I0
        cW0 < W0
        F0' < cW0
        cF0' < F0'
        F1' < cF0' cW1
        F2' < F1' W2
        cF2' < F2'
        I2' < cF2'
        cI2' < I2'
        W2' < I2'
        I1' < W2' cI2'
        W1' < I1'
        cW1' < W1'
        I0' < W1' I1'
        W0' < I0'
        cW0' < W0'
        """,
        "HYBRID_CUSTOMIZED",
        f"{ALL} HYBRID_DATA_MODEL",
        f"{ALL} DATA",
        f"{ALL} MODEL",
        passes=2,
        model_parallel=2,
    )


def test_hybrid_transformer(golden: Golden) -> None:
    """As the hybrids, but the gradient of the first layer's input is communicated too and ends the pass."""
    golden(
        """
        F0
        cF0 < F0
        F1 < cF0
        cF1 < F1
        I1 < cF1
        cI1 < I1
        W1 < I1
        cW1 < W1
        I0 < W1 cI1
        cI0 < I0
        W0 < I0
        cW0 < W0
        F0' < cW0 cI0
        cF0' < F0'
        F1' < cF0' cW1
        cF1' < F1'
        I1' < cF1'
        cI1' < I1'
        W1' < I1'
        cW1' < W1'
        I0' < W1' cI1'
        cI0' < I0'
        W0' < I0'
        cW0' < W0'
        """,
        "HYBRID_TRANSFORMER model_parallel_NPU_group: 2",
        ALL,
        ALL,
        passes=2,
    )


def test_recomputation_runs_from_the_checkpoint_up_to_the_initiator(golden: Golden) -> None:
    """Before I(2) the forward pass of layers 1 (the nearest checkpoint) up to, not including, 2; R is a
    recomputed F."""
    golden(
        """
        F0
        cF0 < F0
        F1 < cF0
        cF1 < F1
        F2 < cF1
        cF2 < F2
        F3 < cF2
        cF3 < F3
        I3 < cF3
        cI3 < I3
        W3 < I3
        cW3 < W3
        R1 < W3 cI3
        cR1 < R1
        I2 < cR1
        cI2 < I2
        W2 < I2
        cW2 < W2
        I1 < W2 cI2
        cI1 < I1
        W1 < I1
        cW1 < W1
        I0 < W1 cI1
        cI0 < I0
        W0 < I0
        cW0 < W0
        """,
        f"{RECOMPUTE} checkpoints: 2 0 1 checkpoint_initiates: 1 2",
        ALL,
        ALL,
        ALL,
        ALL,
    )


def test_recomputation_of_several_layers_before_the_last(golden: Golden) -> None:
    """The first backward compute may initiate; recomputed layers chain through their collectives."""
    golden(
        """
        F0
        cF0 < F0
        F1 < cF0
        F2 < F1
        cF2 < F2
        R0 < cF2
        cR0 < R0
        R1 < cR0
        I2 < R1
        W2 < I2
        I1 < W2 I2
        W1 < I1
        I0 < W1 I1
        W0 < I0
        """,
        f"{RECOMPUTE} checkpoints: 1 0 checkpoint_initiates: 1 2",
        "ALLREDUCE NONE NONE",
        NONE,
        "ALLREDUCE NONE NONE",
    )


def test_a_checkpoint_that_initiates_recomputes_nothing(golden: Golden) -> None:
    """c = j: there is nothing between them."""
    golden(
        "F0\nF1 < F0\nI1 < F1\nW1 < I1\nI0 < W1 I1\nW0 < I0",
        f"{RECOMPUTE} checkpoints: 1 1 checkpoint_initiates: 1 1",
        NONE,
        NONE,
    )


EMBEDDING = "ALLTOALL ALLTOALL NONE"


def test_dlrm(golden: Golden) -> None:
    """The exchange of the embeddings overlaps the bottom layers (B = 1) and is waited for by the first top
    layer.

    On the way back it is issued after the first top layer's input gradient; W(0) waits for it.
    """
    golden(
        """
        F0
        cF0 < F0
        F1 < F0
        F2 < F1 cF0
        F3 < F2
        W3 < F3
        cW3 < W3
        I3 < W3
        W2 < I3
        cW2 < W2
        I2 < W2
        cI0 < I2
        W1 < I2
        cW1 < W1
        I1 < W1
        W0 < I1 cI0
        F0' < W0
        cF0' < F0'
        F1' < F0' cW1
        F2' < F1' cF0' cW2
        F3' < F2' cW3
        W3' < F3'
        cW3' < W3'
        I3' < W3'
        W2' < I3'
        cW2' < W2'
        I2' < W2'
        cI0' < I2'
        W1' < I2'
        cW1' < W1'
        I1' < W1'
        W0' < I1' cI0'
        """,
        "HYBRID_DLRM 1",
        EMBEDDING,
        WEIGHTS,
        WEIGHTS,
        WEIGHTS,
        passes=2,
    )


def test_dlrm_enhanced_waits_for_nothing_of_the_backward_exchange(golden: Golden) -> None:
    """The same, but neither W(0) nor the next pass waits for cI(0)."""
    golden(
        """
        F0
        cF0 < F0
        F1 < F0
        F2 < F1 cF0
        W2 < F2
        cW2 < W2
        I2 < W2
        cI0 < I2
        W1 < I2
        cW1 < W1
        I1 < W1
        W0 < I1
        F0' < W0
        cF0' < F0'
        F1' < F0' cW1
        F2' < F1' cF0' cW2
        W2' < F2'
        cW2' < W2'
        I2' < W2'
        cI0' < I2'
        W1' < I2'
        cW1' < W1'
        I1' < W1'
        W0' < I1'
        """,
        "HYBRID_DLRM_ENHANCED 1",
        EMBEDDING,
        WEIGHTS,
        WEIGHTS,
        passes=2,
    )


def test_dlrm_issues_forward_collectives_only_where_they_are_all_to_all(golden: Golden) -> None:
    """Layer 1's all-gather is left out, layer 2's all-to-all is issued and waited for by nobody."""
    golden(
        """
        F0
        cF0 < F0
        F1 < F0 cF0
        F2 < F1
        cF2 < F2
        W2 < F2
        I2 < W2
        W1 < I2
        I1 < W1
        W0 < I1
        """,
        "HYBRID_DLRM_ENHANCED 0",
        "ALLTOALL NONE NONE",
        "ALLGATHER NONE NONE",
        "ALLTOALL NONE NONE",
    )


def test_dlrm_without_top_layers(golden: Golden) -> None:
    """Nobody issues cI(0); the backward pass waits for the exchange."""
    golden("F0\ncF0 < F0\nF1 < F0\nW1 < F1 cF0\nI1 < W1\nW0 < I1", "HYBRID_DLRM 1", EMBEDDING, NONE)


def test_distributed_inference(golden: Golden) -> None:
    """Forward only; a pass begins after the last collective of the one before."""
    golden(
        """
        F0
        cF0 < F0
        F1 < cF0
        cF1 < F1
        F0' < cF1
        cF0' < F0'
        F1' < cF0'
        cF1' < F1'
        F0'' < cF1'
        cF0'' < F0''
        F1'' < cF0''
        cF1'' < F1''
        """,
        "DISTRIBUTED_INFERENCE",
        ALL,
        ALL,
        passes=3,
    )


def test_micro(golden: Golden) -> None:
    """The first layer's weight-gradient collective once a pass, all independent."""
    golden("cW0\ncW0'\ncW0''", "MICRO", ALL, ALL, passes=3)


def test_all_reduce_all_to_all_is_two_collectives_in_a_row(golden: Golden) -> None:
    """Waiters wait for the second."""
    golden(
        "F0\ncF0 < F0\nc2F0 < cF0\nF1 < c2F0\nI1 < F1\nW1 < I1\nI0 < W1 I1\nW0 < I0",
        "MODEL",
        "ALLREDUCEALLTOALL NONE NONE",
        NONE,
    )


def test_update_time_stands_between_a_collective_and_its_waiters(golden: Golden) -> None:
    """Forward, input and weight collectives alike; where there is no collective there is nothing to
    update."""
    golden(
        """
        F0
        cF0 < F0
        uF0 < cF0
        F1 < uF0
        I1 < F1
        cI1 < I1
        uI1 < cI1
        W1 < I1
        cW1 < W1
        uW1 < cW1
        I0 < W1 uI1
        W0 < I0
        F0' < W0
        cF0' < F0'
        uF0' < cF0'
        F1' < uF0' uW1
        I1' < F1'
        cI1' < I1'
        uI1' < cI1'
        W1' < I1'
        cW1' < W1'
        uW1' < cW1'
        I0' < W1' uI1'
        W0' < I0'
        """,
        "HYBRID_DATA_MODEL",
        "ALLREDUCE NONE NONE",
        "NONE ALLREDUCE ALLREDUCE",
        passes=2,
        model_parallel=2,
        update_time=True,
    )


def test_update_time_of_a_micro_benchmark_follows_its_collective(golden: Golden) -> None:
    """So that it counts, as in ASTRA-sim 1.0."""
    golden("cW0\nuW0 < cW0", "MICRO", WEIGHTS, update_time=True)


def test_a_group_of_one_npu_has_nothing_to_communicate(golden: Golden) -> None:
    """Model-parallel over all NPUs: the data-parallel group is one NPU, its collectives yield no node."""
    golden(
        "F0\ncF0 < F0\nI0 < cF0\nW0 < I0\nF0' < W0\ncF0' < F0'\nI0' < cF0'\nW0' < I0'",
        "HYBRID_DATA_MODEL",
        ALL,
        passes=2,
        model_parallel=4,
    )
