"""The names of older GPU schedulers, translated onto dibs.

They will live here: `simple_gpu_scheduler`, `schedule` and `sch`, `gpu_task_scheduler`, GPUPeasy. None does yet.
"""
