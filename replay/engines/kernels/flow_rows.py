"""Rows of a network whose flows share links: the tables that `chakra.replay.engines.messages.flows` builds.

Rates are whole numbers, bytes per ns times 2^shift, and so are bytes left: sums of them do not depend on the order in
which they are made, so that the same flows get the same rates whatever their numbers, and folded as unfolded. Entries
carry weights in parts of `FH_WHOLE`: 1 of 1 for a flow on one path, the share of the paths that use a link for one that
is sprayed over several; on a class of links, how many flows of a class of routes a link of the class carries.
"""

from chakra.replay.engines.kernels.layout import row

(
    FLOW_HEAD,
    (
        FH_SHIFT,  # rates and bytes left are times 2^shift
        FH_WHOLE,  # parts of a weight of 1
        FH_CAP,  # rate that no flow exceeds, 0: none
        FH_PAIR_START,  # table: per NPU (class of NPUs) its first pair, and the end of the last
        FH_PAIRS,  # table: see FLOW_PAIR
        FH_LINKS,
        FH_ROUTES,
        FH_ENTRIES,
        FH_TOUCHED,  # stack: links on which a flow has started or ended since rates were computed
        FH_TOUCHED_N,
        FH_HEAP,  # routes with flows, the one whose first flow ends first on top
        FH_HEAP_N,
        FH_PLAN,  # tick of the next planned end, NEVER: none
        FH_SHARING,  # tick at which rates will be computed, -1: not planned
        FH_STAMP,  # number of the component that is being computed
        FH_LIVE,  # scratch: links of the component
        FH_LIVE_N,
        FH_TIGHT,  # scratch: links that are full in a round
        FH_MEMBERS,  # scratch: routes of the component
        FH_MEMBERS_N,
        FH_SOLVED,  # components computed so far
        FH_VISITED,  # routes in them
        FH_ADAPTIVE,  # whether a flow takes the least loaded of its routes when it starts
        FH_NPUS,  # table: number of each NPU that is simulated
        FH_SENT,  # table: bytes that each of them has sent, by logical dimension
        FH_PORTS,  # number from which receivers are ports of switches: four of each dimension or tree
        FH_GROUPS,  # links: first row of the communicators, whose numbers are those of their trees; 0: building blocks
        FH_GROUPS_N,
    ),
) = row(28)

# a pair of NPUs that exchange messages: the routes from one to the other
(
    FLOW_PAIR,
    (
        FP_DST,  # the receiving NPU; those of a sender ascend
        FP_ROUTE,  # first route
        FP_ROUTES,  # how many there are
        FP_ALONE,  # rate of a flow that is alone
        FP_BACK,  # the same on the way back
    ),
) = row(5)

# a link, or a class of links that carry alike
(
    FLOW_LINK,
    (
        FL_CAPACITY,  # rate times FH_WHOLE
        FL_FIRST,  # first entry with flows
        FL_STAMP,
        FL_TOUCHED,
        FL_LEFT,  # capacity that is not given away
        FL_WEIGHT,  # weight of flows without a rate: while rates are computed, and of those at the cap
        FL_PARTS,  # bytes carried times FH_WHOLE, of which whole bytes go to FL_BYTES
        FL_BYTES,
        FL_BUSY_NS,
        FL_SINCE,  # tick at which its first flow came
        FL_MESSAGES,
        FL_USE,  # its use over time (`link_use`), NIL: not kept
        FL_KNOWN,  # tick up to which that is counted
    ),
) = row(13)

# a route, or a class of routes that get alike
(
    FLOW_ROUTE,
    (
        FR_LATENCY,
        FR_ENTRY,  # first of its entries
        FR_ENTRIES,
        FR_FLOWS,  # flows under way
        FR_FIRST,  # the one that has the fewest bytes left, and in its NEXT the others in order
        FR_RATE,  # of each
        FR_SINCE,  # tick up to which bytes left are known
        FR_END,  # tick at which the first ends
        FR_PLACE,  # in the heap, -1: not there
        FR_STAMP,
        FR_NEW,  # scratch: its next rate, -1: not known yet
    ),
) = row(11)

# a route on a link
(
    FLOW_ENTRY,
    (
        FE_ROUTE,
        FE_LINK,
        FE_WEIGHT,
        FE_NEXT,  # entries of the link whose routes have flows
        FE_PREV,
    ),
) = row(5)
