"""Turn user input into the request that is sent: options, scripts, `#SBATCH` lines, times.

Imports `model`, `system` and `sweeps`. Decisions that depend on the machine belong to the queue.
"""
