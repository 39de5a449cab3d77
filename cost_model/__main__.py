# SPDX-License-Identifier: Apache-2.0
"""Run `cost-model` as `python -m cost_model`."""

from cost_model.cli import main

if __name__ == "__main__":
    main()
