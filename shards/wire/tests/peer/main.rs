//! The peer link from outside: its frames, its two ends against each other, and one of them against a peer by hand.

mod connection;
mod frames;
mod limits;
mod random;
mod samples;
mod support;
