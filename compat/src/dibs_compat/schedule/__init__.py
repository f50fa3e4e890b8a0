"""The tool behind /tmp/gpu_scheduler_info: its command lines of 2016 (`schedule`) and 2018 (`sch`) on dibs leases.

One call waits for GPUs, runs one task in the foreground, and gives them back.
"""
