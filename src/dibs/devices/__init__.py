"""Reading GPUs and judging what was seen: driver, health, foreign processes, usage.

Imports `model`, `system` and `leases`. Data flows from `probe` through `assessment` to `view`.
"""
