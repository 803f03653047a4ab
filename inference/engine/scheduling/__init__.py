"""Which request steps next: the order, the tenants' shares, and who will be too late."""
