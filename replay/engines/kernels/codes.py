"""The numbers that stand in rows of the engines: what a node does, which algorithm, which queue, which order.

Each number is written down here and nowhere else: kernels read it as a plain integer, which is what a compiler takes as
a constant, and the enumerations of the rest of the package (`Op`, `Family`, `Do`, `Rule`, `Schedule`, `QueueOrder`) are
made from it.
"""

# What a node does when it is issued (`chakra.replay.workload.model.Op`).
OP_TIMER = 0  # ends after its duration
OP_ZERO = 1  # ends inside the issue pass
OP_COLLECTIVE = 2
OP_SEND = 3
OP_RECV = 4
OP_SERVER = 5  # waits for a FIFO server (pooled remote memory), then its duration
OP_COMPUTE = (
    6  # a timer whose NPU computes meanwhile, where collectives beside it slow it down; else OP_TIMER
)

# Families of algorithms (`chakra.replay.collectives.algorithms.Family`).
ALG_NONE = 0  # a barrier: ends when the last member starts
ALG_RING = 1
ALG_DIRECT = 2
ALG_HALVING_DOUBLING = 3
ALG_TREE = 4
ALG_STEPS = 5  # rounds of messages given as a table
ALG_CUSTOM = 6  # a program of sends and receives on each member
ALG_LIBRARY = 7  # as long as a collective library takes; phases have it as a barrier with a duration
ALG_SWITCH = 8  # up to the switch and down again, which reduces and multicasts; phases have it as ALG_LIBRARY

# What a phase does to the data (`chakra.replay.collectives.steps.Do`).
DO_ALL_REDUCE = 0
DO_REDUCE_SCATTER = 1
DO_ALL_GATHER = 2
DO_ALL_TO_ALL = 3
DO_BROADCAST = 4
DO_REDUCE = 5

# Which of a dimension's queues a phase may use (`chakra.replay.collectives.plan.Rule`; section 3.4).
QUEUE_ANY = 0
QUEUE_FIRST = 1
QUEUE_LAST = 2
QUEUE_FIXED = 3  # queue 0, no cursor

# Who chooses the order in which a chunk takes the dimensions (`chakra.replay.collectives.plan.Schedule`; section 7.2).
SCHEDULE_PLAN = 0
SCHEDULE_ROUND_ROBIN = 1
SCHEDULE_GREEDY = 2
SCHEDULE_FLEX = 3  # greedy, and the size of the chunk, too

# Where a stream is inserted among those waiting (`chakra.replay.collectives.plan.QueueOrder`; section 7.3).
ORDER_FIFO = 0
ORDER_SMALLEST_FIRST = 1
ORDER_LESS_REMAINING = 2
ORDER_RG = 3

# Building blocks of a dimension (`chakra.replay.config.model.Topology`, in that order).
TOPO_RING = 0
TOPO_FULL = 1
TOPO_SWITCH = 2
