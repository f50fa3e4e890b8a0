"""The names of older GPU schedulers, translated onto dibs.

`schedule` is the tool with the commands `schedule` and `sch`; `gpu_tasks` is what is behind the package
`gpu_task_scheduler`, `gpupeasy` what is behind the package of that name; the command simple_hypersearch is in
`simple_gpu_scheduler`.
"""
