//! Rows of the network machine.
