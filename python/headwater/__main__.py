"""`python -m headwater` is the command `headwater`."""

import sys

from headwater._cli import main

sys.exit(main())
