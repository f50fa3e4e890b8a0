"""`python -m dibs`: the same as `dibs`."""

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 11):
        sys.exit(f"dibs: the command needs Python 3.11 or newer, this is {sys.version.split()[0]}.")

    from dibs.cli import fast_add, fast_verbs

    fast_add.main()
    fast_verbs.main()

    from dibs.cli.main import main

    sys.exit(main())
