# SPDX-License-Identifier: Apache-2.0
"""Write deploy/kubernetes/recprocessor.yaml: the Helm chart, rendered with deploy/kubernetes/values.yaml.

    python tools/make_manifests.py

helm is found in build/deploy-tools (`make build/deploy-tools/helm`) or PATH.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "recprocessor"
PLAIN = ROOT / "deploy" / "kubernetes"
_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Written by `make manifests` from deploy/helm/recprocessor and values.yaml beside this file.
"""


def find_helm() -> str | None:
    """Return the path of helm, or None."""
    return shutil.which("helm", path=str(ROOT / "build" / "deploy-tools")) or shutil.which("helm")


def render(helm: str, *options: str, release: str = "recprocessor") -> str:
    """Return the manifests of the chart as a release of that name.

    Raises
    ------
    ValueError
        helm refuses the values, or a template.
    """
    # helm that was compiled with `go install` believes that it is for Kubernetes 1.20.
    command = [helm, "template", release, str(CHART), "--namespace", "recprocessor", "--kube-version", "1.30", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ValueError(ended.stderr.strip())
    # Helm 4 has empty lines before these marks.
    return re.sub(r"\n+---\n", "\n---\n", ended.stdout)


def plain_manifests(helm: str) -> str:
    """Return the content of the committed file."""
    return _HEAD + render(helm, "--values", str(PLAIN / "values.yaml"))


def main() -> int:
    helm = find_helm()
    if helm is None:
        print("helm: not found, expected it in PATH or from `make build/deploy-tools/helm`", file=sys.stderr)
        return 1
    (PLAIN / "recprocessor.yaml").write_text(plain_manifests(helm), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
