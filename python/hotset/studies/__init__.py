# SPDX-License-Identifier: Apache-2.0
"""What is asked of traces by training or tabulating, in NumPy. `python3 -m hotset <study> --help`
runs one on files:

coactivation    tables of experts that fire together, by user
select-experts  the experts that an adapter of ESFT tunes (expert_selection)
train-gate      the networks of the predictor learned-gate (train_gate)
working-set     how concentrated and how local routing is (working_set)
"""

from __future__ import annotations

from hotset.studies import coactivation, expert_selection, train_gate, working_set

__all__ = ["coactivation", "expert_selection", "train_gate", "working_set"]
