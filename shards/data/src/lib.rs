//! The shard on every data core: listeners, routes, parked pops.
