"""What only all ranks of a job together say: agreement, clocks, shared accelerators, and the replay of the job."""
