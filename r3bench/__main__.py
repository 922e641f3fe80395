"""``python -m r3bench``: the command line."""

import sys

from r3bench.cli import main

sys.exit(main())
