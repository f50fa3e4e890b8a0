"""A believable day of jobs on eight pretend GPUs, in a queue of its own: for `scripts/demo`, pictures and tests."""
