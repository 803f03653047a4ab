"""From a completion request to bytes that continue exactly what was typed."""

OWNER = "midtoken"  # another distribution has a package of this name, too
