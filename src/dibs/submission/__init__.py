"""From what a person types or writes to the request that is sent: options, scripts, `#SBATCH` lines, times.

Imports `model`, `system` and `sweeps`. It decides nothing about machines; the queue does.
"""
