"""`python -m vestige`, the same as `vestige`."""

import sys

from vestige.cli import main

if __name__ == "__main__":
    sys.exit(main())
