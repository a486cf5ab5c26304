"""``diagnose``: reads profiler traces in a bounded space and finds the full-pool KV cast.

Lowest first: files, lenient, events, windows (bytes to events); recording, families, timeline,
steps (events to kernels by step); cast, rejected, prediction, remedies (the verdict); table
(key_averages text), server, diagnosis, comparison.
"""
