"""``advise``: memory and time of every way out of the full-pool cast. Pure functions.

Lowest first: formulas, gpus, backends (what sglang has, by release and architecture), deployment
(the question), ways (the answers, each with its figures), advice (which of them to take).
"""
