"""The names of older GPU schedulers, translated onto dibs.

`simple_hypersearch` is in the package `simple_gpu_scheduler`. The others will follow: `schedule` and `sch`,
`gpu_task_scheduler`, GPUPeasy.
"""
