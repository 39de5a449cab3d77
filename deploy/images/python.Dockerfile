# SPDX-License-Identifier: Apache-2.0
# The Python host, the agent and the proxy; `make image` puts the wheel into the folder `wheels`.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}
RUN groupadd --gid 10001 recprocessor \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin recprocessor
COPY wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/recprocessor-*.whl)[cpu,serving-proxy,store]"
ENV TF_CPP_MIN_LOG_LEVEL=2
USER 10001:10001
EXPOSE 8500 8501 8502 8503
CMD ["serving-proxy", "--help"]
