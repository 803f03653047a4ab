"""`python -m midtoken` does the same as `midtoken`."""

import sys

from midtoken.cli import main

sys.exit(main())
