//! The simulation's parts: the model, the world that drives it beside the engine, and a pair of those between which
//! partitions move.

pub mod model;
pub mod moves;
pub mod pair;
pub mod world;
