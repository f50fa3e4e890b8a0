"""`python -m dibs`: the same as `dibs`."""

import sys

from dibs.cli import fast_add

if __name__ == "__main__":
    fast_add.main()

    from dibs.cli.main import main

    sys.exit(main())
