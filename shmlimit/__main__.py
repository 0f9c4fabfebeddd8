"""python -m shmlimit"""

import sys

from shmlimit.cli import main

if __name__ == "__main__":
    sys.exit(main())
