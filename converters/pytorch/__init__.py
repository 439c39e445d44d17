"""From a PyTorch host trace and its Kineto device trace to one graph that replays like the machine.

``job.run`` takes the files of one rank to a linked JSON or an execution trace, ``ranks.convert_job`` those
of a whole job. The steps between are `host`, `device` (reading), `pair`, `attach`, `sync`, `comm` (joining),
`timeline`, `graph` (ordering) and `emit` (writing); ``docs/guides/pytorch.md`` says what each does and why.
"""
