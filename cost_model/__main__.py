# SPDX-License-Identifier: Apache-2.0
"""`python -m cost_model` is the same as `cost-model`."""

from cost_model.cli import main

if __name__ == "__main__":
    main()
