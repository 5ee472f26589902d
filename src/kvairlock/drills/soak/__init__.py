"""The soak: many tenants, more load than memory, clients that leave."""
