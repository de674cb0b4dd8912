"""``python -m warpfront``: the command line, also from a source folder that is not installed."""

import sys

from warpfront.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
