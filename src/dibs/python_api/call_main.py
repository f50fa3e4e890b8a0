"""The program that runs one call of `dibs.Executor`: `python -P .../dibs/python_api/call_main.py KEY NUMBER`.

Python compiles a script at each start, so this one only makes dibs importable and calls `call_worker`.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from dibs.python_api import call_worker

if __name__ == "__main__":
    call_worker.main()
