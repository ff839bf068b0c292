//! The simulation's parts: the model, and the world that drives it beside the engine.

pub mod model;
pub mod world;
