"""A replay said in ASTRA-sim's own flags, all of them."""

LONG = (
    "--workload-configuration=w",
    "--system-configuration=system.json",
    "--network-configuration=network.yml",
    "--remote-memory-configuration=memory.json",
    "--comm-group-configuration=empty",
    "--num-queues-per-dim=1",
    "--injection-scale=1",
    "--comm-scale=1",
    "--compute-scale=1",
    "--rendezvous-protocol=false",
    "--logging-configuration=empty",
    "--logging-folder=logs",
)
