"""The patches themselves: one module a codemod, named by its effect."""
