"""From a PyTorch host trace and its Kineto device trace to one graph that replays like the machine."""
