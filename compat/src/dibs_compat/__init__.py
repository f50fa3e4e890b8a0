"""The names of older GPU schedulers, translated onto dibs.

`scheduler` is the tool with the commands `schedule` and `sch`; `simple_hypersearch` is in the package
`simple_gpu_scheduler`. `gpu_task_scheduler` and GPUPeasy will follow.
"""
