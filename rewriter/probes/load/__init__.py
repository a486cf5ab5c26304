"""``bench``: drives a running sglang over HTTP and says what its numbers can tell.

Lowest first: failures, reply, connection, streams, client (one request); statistics, measure
(trials); identity, compare (two benches).
"""
