//! Comparing states, and threads as trees.
