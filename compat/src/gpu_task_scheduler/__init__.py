"""The names of GPUTaskScheduler, as translations onto dibs.

A script that makes a scheduler usually imports its task class first. So GPUs are hidden from such a script as soon as
anything of this package is imported: `gpu_task` by the module of the class, ahead of what follows there.
"""

import os

from dibs_compat.gpu_tasks import gpu_visibility

if gpu_visibility.is_scheduler_script():
    gpu_visibility.hide(os.environ, gpu_visibility.is_cuda_up())
