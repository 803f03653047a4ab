"""`python -m midtoken` is `midtoken`."""

import sys

from midtoken.cli import main

sys.exit(main())
