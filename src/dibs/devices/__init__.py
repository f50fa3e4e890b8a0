"""Reads GPUs and judges the readings: driver, health, foreign processes, usage.

Imports `model`, `system` and `leases`. Data flows from `probe` through `assessment` to `view`.
"""
