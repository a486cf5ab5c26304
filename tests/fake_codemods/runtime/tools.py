"""What the fake codemods bring along."""

VERSION = "1"


def note(value):
    """Return what it is given."""
    return value


def double(value):
    """Return twice what it is given."""
    return 2 * value


def keep(value):
    """Return what it is given."""
    return value
