# SPDX-License-Identifier: Apache-2.0
# The Go host, without Python; `make image` prepares the folder `recprocessor`.
# The base has the C library of the machine that compiled (README.txt in the folder names the least version) or a newer one.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 recprocessor \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin recprocessor
COPY recprocessor /opt/recprocessor
ENV PATH=/opt/recprocessor/bin:/usr/local/bin:/usr/bin:/bin
USER 10001:10001
EXPOSE 8500 8501 8503
CMD ["recprocessor-host", "--help"]
