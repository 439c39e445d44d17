# ruff: noqa: E501, ISC004 - a table
"""Wrong and hostile files of MSCCL: what was changed in a good one, and what is said of it."""

from msccl_programs import pairs_all_reduce, ring_all_reduce

GOOD = ring_all_reduce(3)
PAIRS = pairs_all_reduce(3)
RACE = "a result is sent too early"
WRONG = {
    "a chunk that lacks a rank": (
        GOOD.replace('type="rrcs" srcbuf="i" srcoff="2"', 'type="rcs" srcbuf="i" srcoff="2"', 1),
        "rank 0, threadblock 0, step 4 (r): writes it last: chunk 2 of its output holds chunk 2 of 2 of 3 ranks at the end, "
        "not chunk 2 of 3 of 3 ranks",
    ),
    "a rank that is added twice": (
        PAIRS.replace('type="re" srcbuf="s" srcoff="1"', 'type="re" srcbuf="s" srcoff="0"', 1),
        "rank 0, threadblock 0, step 1 (re): adds chunk 0 of rank 1 a second time",
    ),
    "other data are added": (
        GOOD.replace('type="rrcs" srcbuf="i" srcoff="2"', 'type="rrcs" srcbuf="i" srcoff="1"', 1),
        "rank 0, threadblock 0, step 1 (rrcs): adds chunk 2 of rank 2 to chunk 1 of rank 0: other data",
    ),
    "nobody begins": (
        GOOD.replace('type="s"', 'type="nop"'),
        "rank 0, threadblock 0, step 1 (rrcs): waits for ever, in a circle with rank 2, threadblock 0, step 1; "
        "rank 1, threadblock 0, step 1",
    ),
    "a message is missing": (
        GOOD.replace('type="rcs"', 'type="r"', 1),
        "rank 1, threadblock 0, step 4 (r): waits for a message of rank 0 on channel 0 that is never sent",
    ),
    "a message that nobody takes": (
        GOOD.replace('<step s="4" type="r"', '<step s="4" type="nop"', 1),
        "rank 2, threadblock 0, step 3 (rcs): rank 0 never receives this on channel 0",
    ),
    "a sum is made too early": (
        PAIRS.replace('depid="1" deps="1"', 'depid="-1" deps="-1"', 1),
        "rank 0, threadblock 0, step 0 (re): reads chunk 0 of buffer s, which nothing has written",
    ),
    RACE: (
        PAIRS.replace('depid="0" deps="1"', 'depid="0" deps="0"', 1),
        "rank 0, threadblock 1, step 2 (s): touches chunk 0 of buffer i, as does rank 0, threadblock 0, step 1, and nothing says "
        "which comes first",
    ),
    "a dependence on nothing": (
        PAIRS.replace('depid="0" deps="1"', 'depid="9" deps="1"', 1),
        "rank 0, threadblock 1, step 2: waits for step 1 of threadblock 9, which is not there",
    ),
    "its own later step": (
        PAIRS.replace('depid="1" deps="1"', 'depid="0" deps="1"', 1),
        "line 4: rank 0, threadblock 0, step 0: waits for step 1 of its own threadblock",
    ),
    "two threadblocks on a connection": (
        PAIRS.replace('<tb id="2" send="2" recv="2"', '<tb id="2" send="1" recv="2"', 1),
        "rank 0: threadblocks 1 and 2 both send to rank 1 on channel 0",
    ),
    "sizes that do not fit": (
        GOOD.replace('dstoff="0" cnt="1"', 'dstoff="0" cnt="2"', 1),
        "rank 1, threadblock 0, step 1 (rrcs): receives 1 chunk, but rank 0, threadblock 0, step 0 sends 2",
    ),
    "a rank too much": (GOOD.replace('ngpus="3"', 'ngpus="4"'), "rank 3 of 4 has no <gpu>"),
    "a rank out of range": (
        GOOD.replace('send="1"', 'send="3"', 1), "line 3: rank 0, threadblock 0: send is '3', not a number from -1 to 2",
    ),
    "itself": (GOOD.replace('send="1"', 'send="0"', 1), "line 3: rank 0, threadblock 0: send is the rank itself"),
    "a chunk beyond the buffer": (
        GOOD.replace('srcoff="2"', 'srcoff="3"', 1), "rank 0, threadblock 0, step 1: chunks 3 to 3 of buffer i, which has 3",
    ),
    "no type": (GOOD.replace('type="s" ', "", 1), "line 4: rank 0, threadblock 0, step 0: <step> has no attribute 'type'"),
    "an unknown type": (GOOD.replace('type="s"', 'type="put"', 1), "type 'put' is unknown"),
    "steps out of order": (GOOD.replace('<step s="1"', '<step s="2"', 1), "step 1: is numbered s=2; steps count from 0"),
    "nobody to send to": (
        GOOD.replace('send="1"', 'send="-1"', 1), "rank 0, threadblock 0, step 0: s has no rank to send to"),
    "what cannot be checked": (GOOD.replace("allreduce", "custom"), "coll 'custom' says nothing that could be checked"),
    "chunks that do not divide": (
        GOOD.replace("allreduce", "alltoall").replace('perloop="3"', 'perloop="4"'),
        "nchunksperloop 4 is no multiple of 3 ranks, as alltoall needs",
    ),
    "another collective": (GOOD.replace("allreduce", "alltoall"), "adds chunk 0 of rank 0 to chunk 0 of rank 1: other data"),
    "no XML": ("hello\n", "line 1: not XML: syntax error"),
    "cut off": (GOOD[:700], "not XML: "),
    "an entity bomb": (
        '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>\n' + GOOD,
        "line 1: a document type declaration, which an algorithm has no use for, is refused",
    ),
    "a file of the machine": (
        '<!DOCTYPE algo SYSTEM "file:///etc/passwd">\n' + GOOD, "line 1: a document type declaration",
    ),
    "other elements": (GOOD.replace("<algo", "<system><algo").replace("</algo>", "</algo></system>"), "element 'system' at the top"),
    "too many chunks": (GOOD.replace('perloop="3"', 'perloop="99999999"'), "nchunksperloop is '99999999', not a number from 1"),
    "too much work": (GOOD.replace('cnt="1"', 'cnt="4194303"', 1), "chunks 0 to 4194302 of buffer i, which has 3"),
}  # fmt: skip
