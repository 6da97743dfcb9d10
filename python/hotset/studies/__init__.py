# SPDX-License-Identifier: Apache-2.0
"""Studies that train on traces or tabulate them, in NumPy. `python3 -m hotset <study> --help` runs
one on files:

    coactivation    tables of experts that are used together, by user
    select-experts  the experts that an ESFT adapter tunes (expert_selection)
    train-gate      the networks of the predictor learned-gate (train_gate)
    working-set     concentration and locality of routing (working_set)
"""

from __future__ import annotations

from hotset.studies import coactivation, expert_selection, train_gate, working_set

__all__ = ["coactivation", "expert_selection", "train_gate", "working_set"]
