//! The HTTP decoder seen from its caller: what it takes and refuses, that no cut between two reads
//! changes anything, and hyper as the oracle.

mod connection;
mod generator;
mod oracle;
mod rules;
mod splits;
