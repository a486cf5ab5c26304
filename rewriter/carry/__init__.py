"""An ordinary patch of one release, carried to another by structure instead of by line.

The patch is applied to its own release exactly; what it changed is then found again in the other
release, statement by statement. What has not exactly one meaning there is a conflict.
"""
