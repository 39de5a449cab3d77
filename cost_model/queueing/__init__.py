# SPDX-License-Identifier: Apache-2.0
"""Predict waiting and response times of models on their own cores or in pools."""

from cost_model.queueing.erlang import erlang_c
from cost_model.queueing.pool import Member, Pool, Prediction
from cost_model.queueing.waiting import Waiting, mean_wait_allen_cunneen

__all__ = ["Member", "Pool", "Prediction", "Waiting", "erlang_c", "mean_wait_allen_cunneen"]
