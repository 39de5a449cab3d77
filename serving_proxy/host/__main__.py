# SPDX-License-Identifier: Apache-2.0
"""Run the host as `python -m serving_proxy.host`."""

import sys

from serving_proxy.host.main import main

if __name__ == "__main__":
    sys.exit(main())
